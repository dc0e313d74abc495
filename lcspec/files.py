"""Files that are written whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_atomically(path: Path, *content: bytes | memoryview, mode: int | None = None) -> None:
    """Replace a file's content, so that whatever happens meanwhile the old or the new one is there, whole.

    Args:
        path: the file; where it is a symbolic link, what the link leads to is replaced.
        content: the new bytes, in as many parts as they are in.
        mode: the permissions of the file; None for those that it has, or 0o600 for a new one.

    Raises:
        OSError: it can't be written; the old file is as it was, and nothing is left behind.
    """
    path = path.resolve()
    if mode is None:
        with suppress(FileNotFoundError):
            mode = path.stat().st_mode & 0o7777
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", suffix=".new", delete=False) as new:
        try:
            new.writelines(content)
            new.flush()
            os.fsync(new.fileno())
            if mode is not None:
                os.chmod(new.name, mode)
            new.close()  # where an open file can't be moved
            os.replace(new.name, path)
        except BaseException:
            with suppress(OSError):  # what is still buffered has no space either
                new.close()
            os.unlink(new.name)
            raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Make sure that the names in a folder survive a loss of power, where the system lets one."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
