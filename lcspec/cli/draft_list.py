"""`lcspec draft list` and `lcspec draft remove`: the drafts there are, and which of them pay."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.options import THREADS
from lcspec.cli.report import note, quiet_option, size_text, table
from lcspec.draft_figures import Figures, figures, figures_of_head, threads_of
from lcspec.draft_measuring import measure_draft
from lcspec.errors import LcspecError, ModelError
from lcspec.gguf_edit import target_digest
from lcspec.hub import DerivedDraft, derived_drafts, draft_candidates, entry_of, find_model, remove_draft
from lcspec.layer_search import Texts
from lcspec.llama import Header, Model, check_memory, read_header
from lcspec.planner import FLATTER

_CONTEXT = 512  # tokens, to estimate the memory that measuring needs
_UNKNOWN = "not measured"


@dataclass(frozen=True)
class Listed:
    """A draft of a target as it is listed."""

    name: str
    kind: str
    path: Path
    figures: Figures


@click.command("list")
@click.argument("target", required=False, shell_complete=complete_model)
@click.option("--measure", is_flag=True, help="Measure first what was not measured, which takes a minute or more.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@THREADS
@quiet_option
def list_drafts(target: str | None, measure: bool, as_json: bool, threads: int | None) -> None:
    """List the drafts of TARGET, and which of them pay.

    Of a draft it is told what a token costs (in passes of the target over one token), how often its tokens are the
    target's at depths 1, 2, ... of a draft, and how fast decoding with it is expected to be in proportion to plain
    decoding: on this machine, and under the cost curves that are assumed of machines with more cores. Without TARGET
    all drafts that were made here are listed, by their targets.

    \b
    Examples:
      lcspec draft list qwen2.5-coder-1.5b --measure
      lcspec draft list --json
    """  # noqa: D301  click needs the backspace itself
    found = [_of_target(name, measure, threads) for name in ([target] if target else _targets())]
    if as_json:
        click.echo(json.dumps([_as_dict(name, draft) for name, drafts in found for draft in drafts], indent=2))
        return
    texts = [f"{name}\n{_table(drafts)}" for name, drafts in found if drafts]
    if texts:
        click.echo("\n\n".join(texts))
        if not measure and any(draft.figures.here is None for _, drafts in found for draft in drafts):
            note("--measure measures what was not")
    else:
        note(f"there is no draft{f' of {target}' if target else ''} here; `lcspec draft make` makes one")


@click.command()
@click.argument("drafts", metavar="NAME...", nargs=-1, required=True)
@quiet_option
def remove(drafts: tuple[str, ...]) -> None:
    """Delete drafts that were made here.

    \b
    Example:
      lcspec draft remove smollm2-135m-q2_k
    """  # noqa: D301  click needs the backspace itself
    known = {draft.name: draft for draft in derived_drafts()}
    for name in drafts:
        if name not in known:
            raise ModelError(f"no draft {name!r} was made here; `lcspec draft list` lists those that were")
    for draft in dict.fromkeys(known[name] for name in drafts):
        note(f"{draft.name} is deleted; {size_text(remove_draft(draft))} are free again")


def _targets() -> Iterator[str]:
    """Yield the names of the targets of which drafts were made, as far as they are here."""
    for name in dict.fromkeys(draft.provenance.target_name for draft in derived_drafts()):
        try:
            find_model(name)
        except ModelError as error:
            note(f"drafts of {name} are not listed: {error}")
        else:
            yield name


def _of_target(name: str, measure: bool, threads: int | None) -> tuple[str, list[Listed]]:
    header = read_header(find_model(name))
    threads = threads or threads_of(header)
    drafts = list(_drafts(name, header, threads))
    if measure:
        drafts = [_measured(header, draft, threads) for draft in drafts]
    return name, sorted(drafts, key=lambda draft: (-_speed(draft), draft.name))


def _speed(draft: Listed) -> float:
    return 0.0 if draft.figures.here is None else draft.figures.here.speed


def _drafts(name: str, target: Header, threads: int) -> Iterator[Listed]:
    """Yield what can draft for a target: what was made of it, smaller models, and what was made of these."""
    with Model(target, vocabulary_only=True) as model:
        candidates = draft_candidates(model, entry_of(name, ask_hub=False))
    derived = {draft.path: draft for draft in derived_drafts()}
    for candidate in candidates:
        if candidate.is_here and candidate.problem is None:
            path = find_model(candidate.name)
            draft = derived.get(path)
            yield Listed(candidate.name, _kind(draft, target), path, _figures(target, path, draft, threads))


def _kind(draft: DerivedDraft | None, target: Header) -> str:
    if draft is None:
        return "model"
    provenance = draft.provenance
    if provenance.target == target_digest(target):
        return provenance.kind
    source = provenance.target_name
    return f"{provenance.kind} of {Path(source).stem if '/' in source else source}"


def _figures(target: Header, path: Path, draft: DerivedDraft | None, threads: int) -> Figures:
    if draft is not None and draft.is_head:
        return figures_of_head(target, draft.provenance, threads)
    return figures(target, read_header(path), threads)


def _measured(target: Header, draft: Listed, threads: int) -> Listed:
    if draft.figures.here is not None or draft.path.suffix != ".gguf":
        return draft
    try:
        header = read_header(draft.path)
        check_memory(target, header, _CONTEXT)
        samples = Texts(target, (), threads).judged
        note(f"measuring {draft.name}")
        return replace(draft, figures=measure_draft(target, header, samples, threads))
    except LcspecError as error:  # the others can still be measured
        note(f"{draft.name} can't be measured: {error}")
        return draft


def _table(drafts: list[Listed]) -> str:
    rows = []
    for draft in drafts:
        known = draft.figures
        rows.append(
            (
                draft.name,
                draft.kind,
                size_text(draft.path.stat().st_size),
                _UNKNOWN if known.cost is None else f"{known.cost:.2f}",
                " ".join(f"{one:.2f}" for one in known.acceptance) or _UNKNOWN,
                _UNKNOWN if known.here is None else f"{known.here.speed:.2f}",
                *(f"{known.elsewhere[name].speed:.2f}" if name in known.elsewhere else "" for name in FLATTER),
                "" if known.here is None else "pays" if known.here.pays else "does not pay here",
            )
        )
    head = ("DRAFT", "KIND", "SIZE", "COST", "RIGHT", "HERE", *(name.upper() for name in FLATTER), "")
    return table(head, rows)


def _as_dict(target: str, draft: Listed) -> dict[str, Any]:
    known = draft.figures
    gains = {"here": known.here, **{name: known.elsewhere.get(name) for name in FLATTER}}
    return {
        "name": draft.name,
        "target": target,
        "kind": draft.kind,
        "file": str(draft.path),
        "size": draft.path.stat().st_size,
        "cost": known.cost,
        "acceptance": list(known.acceptance) or None,
        "speed": {name: None if gain is None else gain.speed for name, gain in gains.items()},
        "draft_tokens": None if known.here is None else known.here.tokens,
        "pays": None if known.here is None else known.here.pays,
    }
