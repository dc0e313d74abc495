"""Copies of a target that exist for a moment."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from lcspec.errors import FileError
from lcspec.gguf_edit import Gguf, keep_layers, write_gguf
from lcspec.llama import Header, read_header

_PREFIX = ".search-"


@contextmanager
def copied(gguf: Gguf, folder: Path) -> Iterator[Path]:
    """Write a model to a file that vanishes with the block.

    Raises:
        FileError: there is no room.
    """
    size = sum(tensor.data.nbytes for tensor in gguf.tensors.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(folder).free) < size:
            raise FileError(
                f"a copy of the model of {size / 1e6:,.0f} MB is needed, and {free / 1e6:,.0f} MB are free on the disk "
                f"of {folder}"
            )
        _remove_left(folder)
        copies = tempfile.TemporaryDirectory(dir=folder, prefix=f"{_PREFIX}{os.getpid()}-", ignore_cleanup_errors=True)
    except OSError as error:
        raise FileError(f"a copy of the model can't be written to {folder}: {error.strerror or error}") from error
    with copies as name:
        path = Path(name) / "copy.gguf"
        try:
            with path.open("wb") as file:
                write_gguf(file, gguf)
        except OSError as error:
            raise FileError(f"a copy of the model can't be written to {folder}: {error.strerror or error}") from error
        yield path


def _remove_left(folder: Path) -> None:
    """Remove the copies of processes that were killed."""
    for left in folder.glob(f"{_PREFIX}*"):
        number = left.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def cut_copy(gguf: Gguf, kept: Sequence[int], folder: Path) -> Iterator[Header]:
    """Write a model with only some of its blocks to a file that vanishes with the block."""
    with copied(keep_layers(gguf, kept), folder) as path:
        yield read_header(path)
