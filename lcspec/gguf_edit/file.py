"""A GGUF file as something to edit: metadata by key, tensors by name, none of it copied before it is written.

Metadata stays as the bytes that the file has, but for the values that an edit replaces: what is no UTF-8 or an empty
list stays what it is. (The `gguf` package gives every string of a vocabulary two arrays: 7 seconds and half a gigabyte
for 150,000 tokens, where this takes none. The tests read with it what is written here.)
"""

import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from lcspec.errors import ModelError
from lcspec.gguf_edit.values import Decoded, decode, string
from lcspec.llama import Header

_MAGIC, _VERSION = b"GGUF", 3
_DEFAULT_ALIGNMENT = 32
_ALIGNMENT = b"general.alignment"
_OF_PARTS = b"split."  # keys of a model in several files: what is written is one
_BLOCK = 1 << 24  # bytes that are written at once


@dataclass(frozen=True)
class Tensor:
    """A tensor.

    Attributes:
        shape: its dimensions as the file has them: the length of a row first.
        kind: ggml_type.
        data: its bytes.
    """

    shape: tuple[int, ...]
    kind: int
    data: memoryview

    @property
    def row_size(self) -> int:
        """Bytes of a row."""
        rows = 1
        for n in self.shape[1:]:
            rows *= n
        return self.data.nbytes // rows


@dataclass(frozen=True)
class Gguf:
    """What a model consists of.

    Attributes:
        metadata: by key, the value with its type, as `lcspec.gguf_edit.values` makes them.
        tensors: by name, in the order of the file.
        path: the file that it was read from, for messages.
        tail: bytes behind the tensors, for who knows of them.
    """

    metadata: Mapping[bytes, bytes | memoryview]
    tensors: Mapping[str, Tensor]
    path: Path
    tail: bytes | memoryview = b""

    @property
    def architecture(self) -> str:
        """For example 'llama' or 'qwen2'."""
        name = self.value("general.architecture")
        return name.decode("utf-8", "replace") if isinstance(name, bytes) else "unknown"

    def value(self, key: str) -> Decoded | None:
        """Return the value of a key, None where there is none; strings as bytes."""
        found = self.metadata.get(key.encode())
        return None if found is None else decode(found)

    def of_architecture(self, key: str) -> Decoded | None:
        """Return the value of a key that carries the architecture's name, such as 'block_count'."""
        return self.value(f"{self.architecture}.{key}")

    def with_metadata(self, changed: Mapping[str, bytes]) -> "Gguf":
        """Return it with values that are added or replaced."""
        return replace(self, metadata={**self.metadata, **{key.encode(): value for key, value in changed.items()}})


def read_gguf(header: Header) -> Gguf:
    """Return a model, of all its files where it is split.

    Raises:
        ModelError: a file can't be read.
    """
    contents = []
    for path in header.files:
        try:
            with path.open("rb") as file:
                contents.append(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} can't be read: {error}") from error
    return Gguf(
        metadata={
            key: contents[0][start:end] for key, (start, end) in header.values.items() if not key.startswith(_OF_PARTS)
        },
        tensors={
            name: Tensor(
                tuple(header.shapes[name]),
                place.kind,
                contents[place.file][place.start : place.start + header.tensors[name]],
            )
            for name, place in header.places.items()
        },
        path=header.files[0],
    )


def parts_of(gguf: Gguf) -> Iterator[bytes | memoryview]:
    """Yield what the file of a model consists of, from its beginning to its end."""
    alignment = decode(gguf.metadata[_ALIGNMENT]) if _ALIGNMENT in gguf.metadata else _DEFAULT_ALIGNMENT
    assert isinstance(alignment, int)
    head = [_MAGIC, struct.pack("<IQQ", _VERSION, len(gguf.tensors), len(gguf.metadata))]
    for key, value in gguf.metadata.items():
        head += [string(key), bytes(value)]
    offset = 0
    for name, tensor in gguf.tensors.items():
        n = len(tensor.shape)
        head += [string(name.encode()), struct.pack(f"<I{n}QIQ", n, *tensor.shape, tensor.kind, offset)]
        offset += _padded(tensor.data.nbytes, alignment)
    whole = b"".join(head)
    yield whole + bytes(_padded(len(whole), alignment) - len(whole))
    for tensor in gguf.tensors.values():
        yield tensor.data
        yield bytes(_padded(tensor.data.nbytes, alignment) - tensor.data.nbytes)
    yield gguf.tail


def write_gguf(file: BinaryIO, gguf: Gguf) -> None:
    """Write a model to a file.

    Raises:
        OSError: it can't be written.
    """
    for part in parts_of(gguf):
        for start in range(0, len(part), _BLOCK):
            file.write(part[start : start + _BLOCK])


def _padded(n: int, alignment: int) -> int:
    return -(-n // alignment) * alignment
