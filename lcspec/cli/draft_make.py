"""`lcspec draft make`: a smaller draft model from the target's file alone."""

import re

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.fetching import offer_to_fetch, yes_option
from lcspec.cli.options import THREADS
from lcspec.cli.report import note, quiet_option, size_text
from lcspec.draft_making import draft_name, make_draft
from lcspec.gguf_edit import Provenance, n_layers, read_gguf, target_digest
from lcspec.hub import find_model
from lcspec.limits import QUANTIZATIONS
from lcspec.llama import read_header, usable_physical_cores

_SPAN = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


@click.command()
@click.argument("target", shell_complete=complete_model)
@click.option("--layers", metavar="auto|N|LIST", help="Keep these blocks.")
@click.option("--quant", type=click.Choice(QUANTIZATIONS, case_sensitive=False), help="Quantize the weights to TYPE.")
@click.option("-o", "--name", help="What the draft is called.")
@click.option("--force", is_flag=True, help="Replace another draft of that name.")
@THREADS
@yes_option
@quiet_option
def make(
    target: str, layers: str | None, quant: str | None, name: str | None, force: bool, threads: int | None
) -> None:
    """Make a draft model."""
    offer_to_fetch(target)
    header = read_header(find_model(target, download=True))
    total = n_layers(read_gguf(header))
    kept = parse_layers(layers, total) if layers else ()
    provenance = Provenance(target_digest(header), target, layers=kept, quant=quant or "")
    made = make_draft(
        header,
        provenance,
        name or draft_name(target, provenance, total),
        threads=threads or usable_physical_cores(),
        force=force,
        say=note,
    )
    note(f"{made.name} is here: {size_text(made.path.stat().st_size)}")
    click.echo(made.path)


def parse_layers(text: str, total: int) -> tuple[int, ...]:
    """Return the blocks that a list such as '0-5,8' names."""
    kept: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        span = _SPAN.fullmatch(part)
        if span is None or int(span[1]) > int(span[2] or span[1]) or int(span[2] or span[1]) >= total:
            raise click.UsageError(f"--layers: {part!r} does not name blocks of a model that has 0 to {total - 1}")
        kept.update(range(int(span[1]), int(span[2] or span[1]) + 1))
    return tuple(sorted(kept))
