"""`lcspec pair`: which models draft for which."""

import json
from dataclasses import asdict
from typing import Any

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.report import note, quiet_option, size_text, table
from lcspec.hub import (
    Candidate,
    Entry,
    check_pair,
    draft_candidates,
    entry_of,
    find_model,
    pre_tokenizer_difference,
)
from lcspec.llama import Model


@click.command()
@click.argument("target", shell_complete=complete_model)
@click.argument("draft", required=False, shell_complete=complete_model)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@quiet_option
def pair(target: str, draft: str | None, as_json: bool) -> None:
    """Say whether DRAFT can draft for TARGET, or which models could.

    A draft model needs the target's vocabulary: the same tokens and special tokens. Without DRAFT the
    models on this machine and in the catalog are looked through. Weights are not loaded.

    \b
    Examples:
      lcspec pair qwen2.5-coder-1.5b
      lcspec pair qwen2.5-coder-1.5b qwen2.5-coder-0.5b
    """  # noqa: D301  click needs the backspace itself
    entry = entry_of(target, ask_hub=False)
    with Model(find_model(target), vocabulary_only=True) as target_model:
        if draft is None:
            _list_candidates(target_model, draft_candidates(target_model, entry), as_json)
        else:
            with Model(find_model(draft), vocabulary_only=True) as draft_model:
                _judge(target_model, draft_model, _figures(entry, draft), as_json)


def _judge(target: Model, draft: Model, figures: str, as_json: bool) -> None:
    check_pair(target, draft)
    difference = pre_tokenizer_difference(target, draft)
    if as_json:
        click.echo(json.dumps({"fits": True, "pre_tokenizer_difference": difference, "figures": figures or None}))
        return
    click.echo(
        f"{draft.path.name} ({size_text(draft.header.file_size)}) can draft for {target.path.name} "
        f"({size_text(target.header.file_size)}): their tokens and special tokens are the same"
    )
    if difference is not None:
        note(f"warning: {difference}: drafts may be worse")
    click.echo(figures or "how much it gains has not been measured")


def _list_candidates(target: Model, candidates: list[Candidate], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([_as_dict(candidate) for candidate in candidates], indent=2))
        return
    click.echo(
        f"{target.path.name}: {size_text(target.header.file_size)}, {target.n_vocab:,} tokens, "
        f"architecture {target.architecture}, pre-tokenizer {target.pre_tokenizer}"
    )
    rows = [
        (
            candidate.name,
            size_text(candidate.size) if candidate.size else "?",
            "here" if candidate.is_here else "catalog",
            _verdict(candidate),
        )
        for candidate in candidates
    ]
    if rows:
        click.echo(table(("draft", "size", "where", ""), rows))
    else:
        note("no smaller model is here or in the catalog")


def _verdict(candidate: Candidate) -> str:
    if candidate.problem is not None:
        return f"does not fit: {candidate.problem}"
    verdict = "fits" if candidate.is_here else "should fit, to be checked once it is here"
    figures = _described(candidate)
    return f"{verdict}; {figures}" if figures else verdict


def _figures(entry: Entry | None, draft: str) -> str:
    for recommended in entry.drafts if entry else ():
        if recommended.model == draft:
            return _described(Candidate(draft, None, True, figures=recommended))
    return ""


def _described(candidate: Candidate) -> str:
    """Return the catalog's figures in words."""
    figures = candidate.figures
    if figures is None or figures.accepted is None or figures.speed is None:
        return ""
    return (
        f"measured: {figures.accepted:.0%} of draft tokens accepted, {figures.speed:.2f} times the speed "
        f"of plain decoding ({figures.measured})"
    )


def _as_dict(candidate: Candidate) -> dict[str, Any]:
    return {"fits": None if not candidate.is_here else candidate.problem is None, **asdict(candidate)}
