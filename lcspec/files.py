"""Files that are written whole or not at all."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def write_atomically(
    path: Path, *content: bytes | memoryview, mode: int | None = None, check: Callable[[], None] | None = None
) -> None:
    """Replace a file's content, so that whatever happens meanwhile the old or the new one is there, whole.

    Args:
        path: the file; where it is a symbolic link, what the link leads to is replaced.
        content: the new bytes, in as many parts as they are in.
        mode: the permissions of the file; None for those that it has, or 0o600 for a new one.
        check: is called at the last moment before the file is replaced; what it raises prevents that.

    Raises:
        OSError: it can't be written; the old file is as it was, and nothing is left behind.
    """
    path = path.resolve()
    old = None
    with suppress(FileNotFoundError):
        old = path.stat()
    if mode is None and old is not None:
        mode = old.st_mode & 0o7777
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", suffix=".new", delete=False) as new:
        try:
            new.writelines(content)
            new.flush()
            os.fsync(new.fileno())
            if old is not None and hasattr(os, "chown"):
                with suppress(OSError):  # only an administrator can write a file of someone else's and leave it to them
                    os.chown(new.name, old.st_uid, old.st_gid)
            if mode is not None:
                os.chmod(new.name, mode)
            new.close()  # where an open file can't be moved
            if check is not None:
                check()
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
