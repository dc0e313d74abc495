"""`lcspec models`: what is on this machine."""

import json
from datetime import datetime, timezone
from typing import Any

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.report import note, printable, quiet_option, size_text, table
from lcspec.errors import ModelError
from lcspec.hub import Entry, LocalModel, cached_path, catalog, entry_of, local_models, remove, user_catalog_path


@click.group(invoke_without_command=True)
@click.option("-a", "--all", "show_all", is_flag=True, help="Also those of the catalog that are not here.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.pass_context
def models(context: click.Context, show_all: bool, as_json: bool) -> None:
    """List the models on this machine: size, licence, and when each was last used.

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
    if as_json:
        click.echo(json.dumps([*map(_as_dict, here), *map(_absent_as_dict, absent)], indent=2))
    elif here or absent:
        known = catalog()
        rows = [_row(model, known.get(model.name), show_all) for model in here]
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
    click.echo(_found(model).files[0])


@models.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, shell_complete=complete_model)
@quiet_option
def rm(models: tuple[str, ...]) -> None:
    """Delete models from the caches; files of your own are never touched.

    \b
    Example:
      lcspec models rm qwen2.5-coder-0.5b
    """  # noqa: D301  click needs the backspace itself
    for model in dict.fromkeys(_found(name, may_lack_files=True) for name in models):
        freed = remove(model)
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
