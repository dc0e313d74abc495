"""Drafts that were derived from a target on this machine: their folder, which has them whole or not at all."""

import json
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from lcspec.errors import FileError, LcspecError, ModelError
from lcspec.files import settle
from lcspec.gguf_edit import Provenance
from lcspec.hub.catalog import catalog
from lcspec.llama import read_header

MODEL, HEAD = ".gguf", ".safetensors"
"""The endings of derived drafts: models, and heads on a target's hidden states."""

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,150}")
_STAGING = ".making"
_LONGEST_HEADER = 1 << 24  # of a safetensors file


@dataclass(frozen=True)
class DerivedDraft:
    """A draft that was made from a target.

    Attributes:
        name: what it is called, the file's name without its ending.
        path: the file.
        provenance: what it was made of.
    """

    name: str
    path: Path
    provenance: Provenance

    @property
    def is_head(self) -> bool:
        """Whether it is a head on the target's hidden states, and no model of its own."""
        return self.path.suffix == HEAD


def drafts_folder() -> Path:
    """Return where derived drafts are kept."""
    return user_cache_path("lcspec") / "drafts"


def derived_drafts(target: str | None = None) -> list[DerivedDraft]:
    """Return the derived drafts by name, all of them or those of a target.

    Args:
        target: the target's digest, as `target_digest` gives it.
    """
    paths = [path for ending in (MODEL, HEAD) for path in drafts_folder().glob(f"*{ending}")]
    found = filter(None, map(_read, paths))
    mine = (draft for draft in found if target is None or draft.provenance.target == target)
    return sorted(mine, key=lambda draft: draft.name)


def derived_file(name: str) -> Path | None:
    """Return the file of a derived draft by its name, None where there is none."""
    if _NAME.fullmatch(name) is None:
        return None
    paths = (drafts_folder() / f"{name}{ending}" for ending in (MODEL, HEAD))
    with suppress(OSError):
        return next((path for path in paths if path.is_file()), None)
    return None


def derived_draft(path: Path) -> DerivedDraft | None:
    """Return what a file in the folder says of itself; None for other files."""
    return _read(path) if path.parent == drafts_folder() else None


def check_draft_name(name: str) -> None:
    """Make sure that a derived draft can be called so.

    Raises:
        FileError: it can't.
    """
    if _NAME.fullmatch(name) is None:
        raise FileError(f"a draft can't be called {name[:80]!r}: use letters, digits, and .+-_ behind the first")
    if name in catalog() or name == "auto":
        raise FileError(f"a draft can't be called {name!r}: that is the name of something else")


def check_draft_is_new(name: str) -> None:
    """Make sure that a derived draft can be called so, and that none is.

    Raises:
        FileError: it can't, or one is.
    """
    check_draft_name(name)
    if (existing := derived_file(name)) is not None:
        raise _taken(existing)


def _taken(path: Path) -> FileError:
    return FileError(f"{path} is there already, and something else: --force replaces it")


def publish(
    name: str, ending: str, provenance: Provenance, write: Callable[[Path], Path], *, force: bool = False
) -> DerivedDraft:
    """Make a derived draft and put it into the folder, where it is seen when it is whole.

    One process writes at a time; what one left that was killed is removed by the next.

    Args:
        name: what it will be called.
        ending: `MODEL` or `HEAD`.
        provenance: what it is made of.
        write: called with an empty folder, makes the file there and returns it.
        force: replace another draft of that name.

    Raises:
        FileError: there is another draft of that name, or the file can't be written.
    """
    check_draft_name(name)
    path = drafts_folder() / f"{name}{ending}"
    try:
        with _writing(path.parent) as staging:
            existing = derived_file(name)
            if existing is not None:
                same = _read(existing)
                if same is not None and same.path == path and same.provenance.recipe == provenance.recipe:
                    return same
                if not force:
                    raise _taken(existing)
            made = write(staging)
            with made.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(made, path)
            if existing is not None and existing != path:
                existing.unlink()
            settle(path.parent)
    except OSError as error:
        raise FileError(f"{path} can't be written: {error.strerror or error}") from error
    return DerivedDraft(name, path, provenance)


def remove_draft(draft: DerivedDraft) -> int:
    """Delete a derived draft and return the bytes that this frees.

    Raises:
        FileError: it can't be deleted.
    """
    try:
        size = draft.path.stat().st_size
        draft.path.unlink()
    except OSError as error:
        raise FileError(f"{draft.path} can't be deleted: {error.strerror}") from error
    return size


@contextmanager
def _writing(folder: Path) -> Iterator[Path]:
    """Wait until no other process writes, and give a folder that is empty and vanishes."""
    folder.mkdir(parents=True, exist_ok=True)
    locks = folder.with_name("locks")
    locks.mkdir(parents=True, exist_ok=True)
    with FileLock(locks / "drafts.lock"):
        staging = folder / _STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _read(path: Path) -> DerivedDraft | None:
    with suppress(LcspecError, OSError, ValueError, TypeError, KeyError, RecursionError):
        provenance = Provenance.of_texts(_texts_of(path)) if path.suffix == HEAD else Provenance.of(read_header(path))
        return None if provenance is None else DerivedDraft(path.stem, path, provenance)
    return None


def _texts_of(path: Path) -> dict[str, str]:
    """Return the metadata of a safetensors file (a length of eight bytes, then JSON)."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\xff"))
        if length > _LONGEST_HEADER:
            raise ModelError(f"{path} is damaged")
        texts = json.loads(file.read(length))["__metadata__"]
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ModelError(f"{path} is damaged")
    return texts
