"""What a model can be called: by the catalog, by repository and file, or by its path."""

import difflib
import os
import re
from pathlib import Path

from lcspec.errors import ModelError
from lcspec.hub.cache import names_in_hub_cache
from lcspec.hub.catalog import Entry, File, HubSource, catalog
from lcspec.hub.drafts import derived_file
from lcspec.hub.hugging_face import names_on_hub
from lcspec.llama import split_files

_HUB_PREFIX = "hf:"
_HUB_NAME = re.compile(
    r"hf:(?P<repository>[\w.-]+/[\w.-]+)"
    r"(?:/(?P<file>[^:@\s]+\.gguf)|:(?P<quantization>[\w.-]+))?"
    r"(?:@(?P<revision>[^@\s]+))?"
)
_FORMS = "hf:owner/repository/file.gguf or hf:owner/repository:Q4_K_M, with @revision behind it if wanted"
_DEFAULT_QUANTIZATION = "Q4_K_M"  # as llama.cpp's -hf has it


def entry_of(model: str | Path, *, ask_hub: bool) -> Entry | None:
    """Return the entry that a model's name stands for, None where it is a path or a derived draft.

    Args:
        model: a catalog name, 'hf:owner/repository/file.gguf[@revision]',
            'hf:owner/repository[:quantization][@revision]', the name of a derived draft, or a path.
        ask_hub: ask the hub which file a quantization is, when the hub's cache does not tell.

    Raises:
        ModelError: there is no such name, or the hub does not tell.
    """
    if isinstance(model, Path):
        return None
    if not isinstance(model, str):
        raise ModelError(f"a model is named by a text or a path, not {type(model).__name__}")
    if model.startswith(_HUB_PREFIX):
        return _hub_entry(model, ask_hub)
    entries = catalog()
    if model in entries:
        return entries[model]
    if derived_file(model) is not None or _looks_like_path(model):
        return None
    near = difflib.get_close_matches(model.lower(), entries, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`lcspec models --all` lists what there is"
    raise ModelError(f"{model!r} is neither a file nor in the catalog; {hint}")


def _looks_like_path(name: str) -> bool:
    if "\0" in name:
        return False
    separators = {os.sep, os.altsep or os.sep}
    return any(separator in name for separator in separators) or name.endswith(".gguf") or _exists(name)


def _exists(name: str) -> bool:
    try:
        return name != "" and os.path.exists(name)
    except (OSError, ValueError):
        return False


def _hub_entry(name: str, ask_hub: bool) -> Entry:
    parsed = _HUB_NAME.fullmatch(name)
    if parsed is None:
        raise ModelError(f"{name[:200]!r} is not the name of a model on the hub: {_FORMS}")
    try:
        source = HubSource(parsed["repository"], parsed["revision"])
        file = parsed["file"] or _file_of(source, parsed["quantization"], ask_hub)
        return Entry(name, tuple(File(part.as_posix()) for part in split_files(Path(file))), source)
    except ValueError as error:
        raise ModelError(f"{name[:200]!r} is not the name of a model on the hub: {error}") from error


def _file_of(source: HubSource, quantization: str | None, ask_hub: bool) -> str:
    wanted = quantization or _DEFAULT_QUANTIZATION
    here = names_in_hub_cache(source)
    file = pick_file(here, wanted)
    if file is None and ask_hub:
        there = names_on_hub(source)
        file = pick_file(there, wanted) or (pick_any(there) if quantization is None else None)
        if file is None:
            raise ModelError(f"{source.repository} has no GGUF file of type {wanted}; {_offer(there)}")
    if file is None:
        raise ModelError(f"no {wanted} file of {source.repository} is on this machine: pull it first")
    return file


def pick_file(names: list[str], quantization: str) -> str | None:
    """Return the file of a quantization, by its name's end; of several the shortest, of a split one the first."""
    ending = re.compile(rf"(?:^|[-._]){re.escape(quantization)}(?:-00001-of-\d{{5}})?\.gguf$", re.IGNORECASE)
    fitting = [name for name in names if ending.search(Path(name).name) and _is_model(name)]
    return min(fitting, key=lambda name: (len(name), name), default=None)


def pick_any(names: list[str]) -> str | None:
    """Return the first file that is a model, and not a later part of one."""
    return next((name for name in names if _is_model(name) and split_files(Path(name))[0] == Path(name)), None)


def _is_model(name: str) -> bool:
    return name.endswith(".gguf") and "mmproj" not in name.lower()


def _offer(names: list[str]) -> str:
    models = [name for name in names if _is_model(name)]
    if not models:
        return "it has none at all"
    more = ", ..." if len(models) > 12 else ""
    return f"it has {', '.join(models[:12])}{more}"
