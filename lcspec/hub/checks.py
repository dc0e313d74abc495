"""What every source checks: room on the disk before, the digest after."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from lcspec.errors import ModelError
from lcspec.hub.catalog import File

_BLOCK = 1 << 20


def check_room(name: str, folder: Path, n_bytes: int) -> None:
    """Make sure that the disk of `folder` has room for `n_bytes` more.

    Raises:
        ModelError: it has not.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise ModelError(
            f"{name} can't be fetched: {n_bytes / 1e6:,.0f} MB are needed on the disk of {folder}, "
            f"and {free / 1e6:,.0f} MB are free"
        )


def check_content(path: Path, file: File, reject: Callable[[], str]) -> None:
    """Make sure that what came as `file` has its size and its digest, where they are known.

    Args:
        path: where it is.
        file: what it should be.
        reject: called when it is something else; disposes of it and returns what became of it.

    Raises:
        ModelError: it is something else.
    """
    size = path.stat().st_size
    if file.size not in (None, size):
        raise wrong_size(file, size, reject())
    if file.sha256 is not None and (found := sha256_of(path)) != file.sha256:
        raise wrong_digest(file.name, found, file.sha256, reject())


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    sha256 = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_BLOCK):
            sha256.update(block)
    return sha256.hexdigest()


def wrong_size(file: File, found: int, what_now: str) -> ModelError:
    """Return the error for a file of another size than it should have."""
    return ModelError(f"what came as {file.name} has {found:,} bytes, expected {file.size:,}; {what_now}")


def wrong_digest(name: str, found: str, expected: str, what_now: str) -> ModelError:
    """Return the error for a file with another digest than it should have."""
    return ModelError(f"what came as {name} has SHA-256 {found}, expected {expected}; {what_now}")
