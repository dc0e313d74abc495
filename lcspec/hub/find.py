"""From the name of a model to its file."""

import os
from pathlib import Path

from lcspec.errors import ModelError
from lcspec.hub.cache import cached_path, mark_used
from lcspec.hub.drafts import derived_file
from lcspec.hub.fetch import fetch
from lcspec.hub.names import entry_of


def find_model(model: str | Path, *, download: bool = False) -> Path:
    """Return the file of a model, the first where it is split, and note that it is used.

    Args:
        model: a catalog name, 'hf:owner/repository/file.gguf[@revision]',
            'hf:owner/repository[:quantization][@revision]', the name of a derived draft, or the path of a GGUF file.
        download: fetch a model that is not on this machine.

    Raises:
        ModelError: there is no such model, it is not here and may not be fetched, or fetching fails.
    """
    entry = entry_of(model, ask_hub=download)
    if entry is None:
        derived = derived_file(model) if isinstance(model, str) else None
        if derived is not None:
            mark_used(derived)
        return derived or Path(os.path.expanduser(model))
    path = cached_path(entry)
    if path is None:
        if not download:
            raise ModelError(f"{entry.name} is not on this machine: `lcspec pull {entry.name}`, or pass download=True")
        path = fetch(entry)
    mark_used(path)
    return path
