"""From the name of a model to its file."""

import os
from pathlib import Path

from lcspec.errors import ModelError
from lcspec.hub.catalog import Entry, catalog
from lcspec.hub.fetch import cached_file, fetch


def find_model(model: str | Path, *, download: bool = False) -> Path:
    """Return the file of a model that is named by its path or as in the catalog.

    Args:
        model: a GGUF file, or a catalog name.
        download: fetch a catalog model that is not on this machine.

    Raises:
        ModelError: there is no such model, it is not here and may not be fetched, or fetching fails.
    """
    entry = missing_entry(model)
    if entry is None:
        known = catalog().get(str(model))
        return (cached_file(known) if known else None) or Path(os.path.expanduser(model))
    if not download:
        raise ModelError(
            f"{entry.name} is not on this machine: pass download=True, or run `lcspec generate -m {entry.name}`"
        )
    return fetch(entry)


def missing_entry(model: str | Path) -> Entry | None:
    """Return the catalog entry of a model that would have to be fetched, None when it is here.

    Raises:
        ModelError: the name is neither in the catalog nor a path.
    """
    name = str(model)
    entry = catalog().get(name)
    if entry is not None:
        return None if cached_file(entry) else entry
    if isinstance(model, str) and not _looks_like_path(name):
        raise ModelError(f"{name!r} is neither a file nor in the catalog ({', '.join(catalog())})")
    return None


def _looks_like_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    return any(separator in name for separator in separators) or name.endswith(".gguf") or os.path.exists(name)
