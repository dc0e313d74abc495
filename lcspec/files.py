"""Files that are written whole or not at all."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

if sys.platform != "win32":
    import fcntl

_LONGEST_NAME = 200  # bytes of the file's name that its temporary file has; file systems take 255


def write_atomically(
    path: Path, *content: bytes | memoryview, mode: int | None = None, check: Callable[[], None] | None = None
) -> None:
    """Replace a file's content, so that whatever happens meanwhile the old or the new one is there, whole.

    Args:
        path: the file; where it is a symbolic link, what the link leads to is replaced.
        content: the new bytes, in as many parts as they are in.
        mode: the permissions of the file; None for those that it has, or 0o600 for a new one.
        check: is called at the last moment before the file is replaced, while no other such writer replaces one in
            its folder; what it raises prevents that.

    Raises:
        OSError: it can't be written; the old file is as it was, and nothing is left behind.
    """
    path = path.resolve()
    old = None
    with suppress(FileNotFoundError):
        old = path.stat()
    if mode is None and old is not None:
        mode = old.st_mode & 0o7777
    name = os.fsdecode(os.fsencode(path.name)[:_LONGEST_NAME])
    with NamedTemporaryFile("wb", dir=path.parent, prefix=f".{name}.", suffix=".new", delete=False) as new:
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
            if check is None:
                os.replace(new.name, path)
            else:
                with _alone_in(path.parent):
                    check()
                    os.replace(new.name, path)
        except BaseException:
            with suppress(OSError):  # what is still buffered has no space either
                new.close()
            Path(new.name).unlink(missing_ok=True)
            raise
    settle(path.parent)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder, where the system can."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def settle(folder: Path) -> None:
    """Make sure that the names in a folder survive a loss of power, where the system lets one."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
