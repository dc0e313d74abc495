"""`lcspec draft make`: a smaller draft model from the target's file alone."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.draft_options import SETS_A_BLOCK, Layers, parse_budget, parse_layers
from lcspec.cli.draft_report import frontier_text, verdict
from lcspec.cli.fetching import offer_to_fetch, yes_option
from lcspec.cli.options import THREADS
from lcspec.cli.progress_bar import progress_bar
from lcspec.cli.report import note, quiet_option, size_text
from lcspec.draft_figures import target_options, threads_of
from lcspec.draft_making import check_drafting, draft_name, make_draft
from lcspec.draft_measuring import acceptance_by_depth, measure_draft, measure_target
from lcspec.gguf_edit import (
    Provenance,
    check_layers,
    cut_vocabulary,
    frequent_tokens,
    n_layers,
    read_gguf,
    target_digest,
)
from lcspec.hub import check_draft_name, drafts_folder, find_model
from lcspec.layer_search import Budget, Found, Searched, Texts, check_likeness, search_layers, text_digest
from lcspec.limits import QUANTIZATIONS
from lcspec.llama import Header, check_memory, check_whole, read_header
from lcspec.tasks.documents import Document

_CONTEXT = 1024  # tokens, to estimate the memory that is needed
_MOST_SEED = (1 << 63) - 1


@click.command()
@click.argument("target", shell_complete=complete_model)
@click.option(
    "--layers",
    metavar="auto|N|LIST",
    help="Blocks to keep: the number that pays most, N of them, or those of a list such as 0-9,12,20- "
    "[auto, unless only --quant or --vocab is given].",
)
@click.option(
    "--quant",
    metavar="TYPE",
    type=click.Choice(QUANTIZATIONS, case_sensitive=False),
    help="Quantize the weights to Q2_K, Q4_0, ...",
)
@click.option(
    "--vocab",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens that the draft can propose: those that --text has most often, then the tokenizer's first [all].",
)
@click.option(
    "--text",
    "texts",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Search by what the target writes behind passages of this text, PDF or HTML file [built-in prompts], "
    "and rank the tokens of --vocab by it.",
)
@click.option(
    "--budget",
    metavar="SETS|TIME",
    help=f"What the search may take: a number of sets of blocks to try, or a time such as 10m "
    f"[{SETS_A_BLOCK} sets for each block of TARGET].",
)
@click.option("--seed", type=click.IntRange(0, _MOST_SEED), default=0, show_default=True, help="Of the search.")
@click.option("-o", "--name", help="What the draft is called [TARGET, and what was done].")
@click.option("--force", is_flag=True, help="Replace another draft of that name.")
@click.option("--measure/--no-measure", default=True, help="Measure how often the draft is right, and what it costs.")
@THREADS
@yes_option
@quiet_option
def make(
    target: str,
    layers: str | None,
    quant: str | None,
    vocab: int | None,
    texts: tuple[Path, ...],
    budget: str | None,
    seed: int,
    name: str | None,
    force: bool,
    measure: bool,
    threads: int | None,
) -> None:
    """Make a draft model for TARGET from its own file.

    A draft of some of the target's blocks, or of all of them at fewer bits, has its vocabulary and speaks like it.
    With fewer output tokens each of its steps is cheaper, the more so the smaller the model is; a small model that
    drafts for a larger one can be cut so, too.
    Which blocks it can do without is searched for by what the target itself writes. A search that was ended goes on
    where it was; the same seed gives the same draft.

    \b
    Examples:
      lcspec draft make smollm2-135m
      lcspec draft make qwen2.5-coder-1.5b --layers 22 --budget 10m
      lcspec draft make qwen2.5-coder-1.5b --layers 0-15,20- --quant Q2_K -o small
      lcspec draft make qwen2.5-coder-0.5b --vocab 57344 --no-measure
    """  # noqa: D301  click needs the backspace itself
    offer_to_fetch(target)
    header = read_header(find_model(target, download=True))
    check_whole(header)
    check_memory(header, header, _CONTEXT)
    total = n_layers(read_gguf(header))
    if name is not None:
        check_draft_name(name)
    wanted = None if layers is None and (quant or vocab) else parse_layers("auto" if layers is None else layers, total)
    if wanted is None or not wanted.is_searched:
        _refuse_useless(("budget", "seed") if vocab else ("texts", "budget", "seed"))
    threads = threads or threads_of(header)
    check_drafting(header, threads)
    documents = [Document.read(path).text for path in texts]
    tokens = frequent_tokens(header, vocab, documents) if vocab else []
    by = Texts(header, documents, threads)
    found: Searched | None = None
    if wanted is not None and wanted.is_searched:
        check_layers(read_gguf(header), range(0, total, 2))
        found = _searched(header, by, threads, wanted, parse_budget(budget, total), seed)
        click.echo(frontier_text(found.frontier, found.chosen, total, asked=wanted.count is not None))
    kept = found.chosen if found else wanted.given if wanted else ()
    provenance = Provenance(
        target_digest(header),
        target,
        layers=kept if len(kept) < total else (),
        quant=(quant or "").upper(),
        seed=seed,
        vocabulary=vocab or 0,
        text=text_digest(by.searched) if found else _digest(documents),
        agreement=acceptance_by_depth(found.right)[0] if found else None,
        options={"budget": budget, "tried": found.tried} if found else {},
    )
    if provenance.kind == "copy":
        raise click.UsageError(
            "all blocks at all bits are the target itself: keep fewer with --layers, --quant or --vocab"
        )
    if provenance.layers:
        check_likeness(header, provenance.layers, threads, drafts_folder())
    made = make_draft(
        header,
        provenance,
        draft_name(target, provenance, total) if name is None else name,
        threads=threads,
        edits=[lambda gguf: cut_vocabulary(gguf, tokens)] if vocab else [],
        force=force,
        say=note,
    )
    note(f"{made.name} is here: {size_text(made.path.stat().st_size)}, {made.path}")
    if measure:
        judged = by.judged
        note("measuring the draft")
        click.echo(verdict(made.name, measure_draft(header, read_header(made.path), judged, threads)))


def _digest(texts: Sequence[str]) -> str:
    return sha256("\0".join(texts).encode()).hexdigest() if texts else ""


def _refuse_useless(names: Sequence[str]) -> None:
    """Make sure that nothing was said of a search that does not take place."""
    context = click.get_current_context()
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{parameter.opts[0]} means nothing without a search for blocks (--layers auto or N)"
            )


def _searched(header: Header, texts: Texts, threads: int, wanted: Layers, budget: Budget, seed: int) -> Searched:
    note("measuring what passes cost")
    costs = measure_target(header, threads)
    note("trying which blocks are missed least; Ctrl-C ends the search, and the same command goes on with it")
    with progress_bar("searching") as advance:

        def tell(share: float, found: Found) -> None:
            advance(share, what=f"{found.tried} sets tried")

        return search_layers(
            header,
            texts,
            options=target_options(header, threads),
            target_costs=costs,
            budget=budget,
            seed=seed,
            count=wanted.count,
            folder=drafts_folder(),
            tell=tell,
        )
