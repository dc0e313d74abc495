"""`lcspec models`: what is on this machine."""

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.report import note, printable, quiet_option, size_text, table
from lcspec.errors import ModelError
from lcspec.gguf_edit import target_digest
from lcspec.hub import (
    DerivedDraft,
    Entry,
    LocalModel,
    cached_path,
    catalog,
    derived_drafts,
    derived_file,
    entry_of,
    local_models,
    remove,
    remove_draft,
    user_catalog_path,
)
from lcspec.llama import read_header


@click.group(invoke_without_command=True)
@click.option("-a", "--all", "show_all", is_flag=True, help="Also those of the catalog that are not here.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.pass_context
def models(context: click.Context, show_all: bool, as_json: bool) -> None:
    """List the models on this machine, and below them the drafts made of them: size, licence, and when last used.

    \b
    Examples:
      lcspec models --all
      lcspec models path smollm2-135m
      lcspec models rm qwen2.5-coder-0.5b
    """  # noqa: D301  click needs the backspace itself
    if context.invoked_subcommand is not None:
        return
    here = local_models()
    names = {model.name for model in here}
    absent = [entry for entry in catalog().values() if show_all and entry.name not in names]
    by_target = _drafts_by_target(here)
    if as_json:
        drafts = [_draft_as_dict(draft) for found in by_target.values() for draft in found]
        click.echo(json.dumps([*map(_as_dict, here), *drafts, *map(_absent_as_dict, absent)], indent=2))
    elif here or absent or by_target:
        known = catalog()
        rows = []
        for model in [*here, None]:
            rows += [] if model is None else [_row(model, known.get(model.name), show_all)]
            rows += [_draft_row(draft, model, show_all) for draft in by_target.get(model, ())]
        rows += [_absent_row(entry) for entry in absent]
        extra = ("memory", "use") if show_all else ()
        click.echo(table(("name", "size", "licence", "last used", *extra), rows))
    else:
        note("no model is here yet; `lcspec models --all` lists what `lcspec pull` can fetch")


@models.command()
@click.argument("model", shell_complete=complete_model)
def path(model: str) -> None:
    """Print the file of MODEL, the first where it is split.

    \b
    Example:
      ls -lh "$(lcspec models path smollm2-135m)"
    """  # noqa: D301  click needs the backspace itself
    derived = derived_file(model)
    click.echo(derived if derived is not None else _found(model).files[0])


@models.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, shell_complete=complete_model)
@quiet_option
def rm(models: tuple[str, ...]) -> None:
    """Delete models from the caches, and drafts that were made here; files of your own are never touched.

    \b
    Example:
      lcspec models rm qwen2.5-coder-0.5b
    """  # noqa: D301  click needs the backspace itself
    derived = {draft.name: draft for draft in derived_drafts()}
    for model in dict.fromkeys(derived.get(name) or _found(name, may_lack_files=True) for name in models):
        freed = remove_draft(model) if isinstance(model, DerivedDraft) else remove(model)
        note(f"{printable(model.name)} is deleted; {size_text(freed)} are free again")


@models.command("catalog")
def catalog_path() -> None:
    """Print where a catalog of your own is looked for; models/README.md says what it looks like.

    \b
    Example:
      cat "$(lcspec models catalog)"
    """  # noqa: D301  click needs the backspace itself
    click.echo(user_catalog_path())


def _found(name: str, *, may_lack_files: bool = False) -> LocalModel:
    """Return a model that is in one of the caches."""
    here = [model for model in local_models() if model.is_complete or may_lack_files]
    for model in here:
        if model.name == name:
            return model
    entry = entry_of(name, ask_hub=False)
    if entry is None:
        raise ModelError(f"{name} is a file of your own, not one that lcspec fetched")
    first = cached_path(entry)
    file = f"hf:{entry.hub.repository}/{entry.files[0].name}"
    names = (file, f"{file}@{entry.hub.revision}")  # as it is called while it is not what it should be
    for model in here:
        if model.files[0] == first or (first is None and model.name in names):
            return model
    raise ModelError(f"{name} is not on this machine")


def _drafts_by_target(here: Sequence[LocalModel]) -> dict[LocalModel | None, list[DerivedDraft]]:
    """Return the drafts that were made here by the model that they are of; None stands for all that are not here."""
    drafts = derived_drafts()
    targets = {_digest(model): model for model in here if model.is_complete} if drafts else {}
    found: dict[LocalModel | None, list[DerivedDraft]] = defaultdict(list)
    for draft in drafts:
        found[targets.get(draft.provenance.target)].append(draft)
    return found


def _digest(model: LocalModel) -> str:
    """Return what names a model as a target; nothing where its file is damaged."""
    try:
        return target_digest(read_header(model.files[0]))
    except ModelError:
        return ""


def _draft_row(draft: DerivedDraft, target: LocalModel | None, show_all: bool) -> tuple[str, ...]:
    """Return the row of a draft, below its target if that is here."""
    state, what = draft.path.stat(), f"{draft.provenance.kind} of {draft.provenance.target_name}"
    name = f"{draft.name} ({what})" if target is None else f"  {draft.name}"
    row = (name, size_text(state.st_size), target.licence if target and target.licence else "?", _when(state.st_atime))
    return (*row, "?", f"a draft: {what}") if show_all else row


def _draft_as_dict(draft: DerivedDraft) -> dict[str, Any]:
    state = draft.path.stat()
    return {
        "name": draft.name,
        "here": True,
        "complete": True,
        "files": [str(draft.path)],
        "size": state.st_size,
        "licence": None,
        "last_used": datetime.fromtimestamp(state.st_atime, timezone.utc).isoformat(timespec="seconds"),
        "draft_of": draft.provenance.target_name,
        "kind": draft.provenance.kind,
    }


def _row(model: LocalModel, entry: Entry | None, show_all: bool) -> tuple[str, ...]:
    last_used = _when(model.last_used) if model.is_complete else "incomplete"
    row = (model.name, size_text(model.size), model.licence or "?", last_used)
    return (*row, *_described(entry)) if show_all else row


def _absent_row(entry: Entry) -> tuple[str, ...]:
    size = size_text(entry.size) if entry.size else "?"
    return (entry.name, size, entry.licence or "?", "not here", *_described(entry))


def _described(entry: Entry | None) -> tuple[str, str]:
    return ("?", "") if entry is None else (size_text(entry.memory) if entry.memory else "?", entry.use)


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _as_dict(model: LocalModel) -> dict[str, Any]:
    return {
        "name": model.name,
        "here": True,
        "complete": model.is_complete,
        "files": [str(file) for file in model.files],
        "size": model.size,
        "licence": model.licence or None,
        "last_used": datetime.fromtimestamp(model.last_used, timezone.utc).isoformat(timespec="seconds"),
    }


def _absent_as_dict(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "here": False,
        "complete": False,
        "files": [file.name for file in entry.files],
        "size": entry.size,
        "licence": entry.licence or None,
        "last_used": None,
    }
