"""The header of a GGUF file, checked before llama.cpp reads the file.

llama.cpp trusts much of what a file says, and files come from anywhere. Only the header is read: a
file of a gigabyte takes a fraction of a second. (Format: ggml's docs/gguf.md, versions 2 and 3.)
"""

import ctypes
import hashlib
import math
import mmap
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp._ggml import libggml

from lcspec.errors import ModelError
from lcspec.llama.gguf_rules import Value, first_problem, heads_problem

_VERSIONS = (2, 3)
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_UINT32, _STRING, _ARRAY = 4, 8, 9
_TYPE_SIZE = 4
_SMALLEST_KEY = 8 + 4 + 1  # bytes: an empty name, a type, a value
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8  # an empty name, the number of dimensions, one of them, a type, an offset
_LONGEST_KEY = 65_535
_LONGEST_NAME = 63  # GGML_MAX_NAME without its end
_LONGEST_TEMPLATE = 1 << 20
_MOST_DIMENSIONS = 4
_LARGEST_ALIGNMENT = 1 << 20
_LONGEST_LIST = 512  # as many layers as a model can have
_MOST_PARTS = 999
_HEAD = ".safetensors"
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class Place:
    """Where a tensor's data is: the number of its file, from 0, and the first byte there; and its ggml_type."""

    file: int
    start: int
    kind: int


@dataclass
class Header:
    """What the header of a GGUF model says, of all its files where it is split."""

    files: list[Path]
    """The files, the first of which is what llama.cpp is given."""
    metadata: dict[str, Value] = field(default_factory=dict)
    """Numbers, texts, and lists of numbers with an element per layer at the most, of the first file."""
    n_vocab: int = 0
    """Tokens in the vocabulary."""
    tensors: dict[str, int] = field(default_factory=dict)
    """The size of each tensor in bytes."""
    shapes: dict[str, list[int]] = field(default_factory=dict)
    """The dimensions of each tensor, rows last."""
    places: dict[str, Place] = field(default_factory=dict)
    """Where each tensor is, in the order in which the files name them."""
    values: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """Of each metadata key of the first file, where its type and value begin, and where they end."""

    file_size: int = 0
    """Bytes of all files."""
    lengths: list[int] = field(default_factory=list)
    """Bytes of each file's header."""

    @property
    def architecture(self) -> str:
        """For example 'llama' or 'qwen2'."""
        return str(self.metadata.get("general.architecture", "unknown"))

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(self.tensors.values())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the headers and sizes: names a file as far as its evaluation depends on more than its values."""
        sha256 = hashlib.sha256(str(self.file_size).encode())
        for path, length in zip(self.files, self.lengths, strict=True):
            with path.open("rb") as file:
                sha256.update(file.read(length))
        return sha256.hexdigest()

    def of_architecture(self, key: str) -> Value | None:
        """Return the value of a key that carries the architecture's name, such as 'block_count'."""
        return self.metadata.get(f"{self.architecture}.{key}")


class _Damaged(Exception):
    """What is wrong with a file, in words that go on from its name."""


def read_header(path: Path) -> Header:
    """Read the header of a model and make sure that llama.cpp can safely read its file, or files.

    Any part of a split model stands for the whole.

    Raises:
        ModelError: a file can't be read, is no GGUF, is cut short, or contradicts itself.
    """
    header = Header(split_files(path))
    for number, file in enumerate(header.files):
        _read_file(file, number, header)
    if (problem := heads_problem(header.metadata, header.shapes)) is not None:
        raise ModelError(f"{header.files[0]} {problem}")
    return header


def split_files(path: Path) -> list[Path]:
    """Return the files of a split model ('-00001-of-00003.gguf') in order, or the one of any other."""
    part = _PART.search(path.name)
    if part is None or not 1 <= int(part[1]) <= int(part[2]) <= _MOST_PARTS:
        return [path]
    stem = path.name[: part.start()]
    return [path.with_name(f"{stem}-{number:05}-of-{part[2]}.gguf") for number in range(1, int(part[2]) + 1)]


def _read_file(path: Path, number: int, header: Header) -> None:
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a folder; name the GGUF file in it")
        if not path.is_file() and path.exists():
            raise ModelError(f"{path} is not an ordinary file")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                head = ", but maybe a draft head, which goes with -d and its model" if path.suffix == _HEAD else ""
                raise _Damaged(f"is not a GGUF file{head}")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                reader = _Reader(content, header)
                reader.read()
                header.file_size += len(content)
                header.lengths.append(reader.length)
        if number == 0:  # what llama.cpp goes by
            header.metadata, header.values, header.n_vocab = reader.metadata, reader.values, reader.n_vocab
            if (problem := first_problem(reader.metadata, reader.tokens, reader.n_vocab)) is not None:
                raise _Damaged(problem)
        part, count = reader.metadata.get("split.no", 0), reader.metadata.get("split.count", 1)
        if (part, count) != (number, len(header.files)):
            raise _Damaged(
                f"says that it is file {part} (from 0) of {count}, its name that it is {number} of {len(header.files)}"
            )
    except OSError as error:
        whole = f" (part {number + 1} of {len(header.files)})" if len(header.files) > 1 else ""
        raise ModelError(f"{path} can't be read{whole}: {error.strerror}") from error
    except _Damaged as error:
        raise ModelError(f"{path} {error}") from error


class _Reader:
    """Walks through the header of one file and adds its tensors to `header`."""

    def __init__(self, content: mmap.mmap, header: Header) -> None:
        self.metadata: dict[str, Value] = {}
        self.values: dict[bytes, tuple[int, int]] = {}
        self.tokens: set[bytes] = set()
        self.n_vocab = 0
        self._content = content
        self._header = header
        self._position = 4  # behind the magic

    def read(self) -> None:
        version = self._unpack("<I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big")
            kind = "for big-endian machines" if swapped in _VERSIONS else f"of version {version}"
            raise _Damaged(f"is a GGUF {kind}, which is not supported")
        n_tensors = self._count("tensors", _SMALLEST_TENSOR)
        n_keys = self._count("metadata keys", _SMALLEST_KEY)
        self._read_tensors(n_tensors, self._read_metadata(n_keys))

    @property
    def length(self) -> int:
        """Bytes of what was read."""
        return self._position

    def _read_metadata(self, n_keys: int) -> int:
        """Walk through the metadata and return the alignment of tensors."""
        keys: set[bytes] = set()
        alignment = 32
        for _ in range(n_keys):
            key = self._string("the name of a metadata key", _LONGEST_KEY)
            if key in keys:
                raise _Damaged(f"is damaged: the metadata key {_shown(key)} is there twice")
            keys.add(key)
            kind = self._unpack("<I")
            start = self._position
            value = self._value(kind, _shown(key))
            self._check_value(key, kind, value, self._position - start)
            self.values[key] = start - _TYPE_SIZE, self._position
            if value is not None:
                self.metadata[_shown(key)] = value
            if key == b"general.alignment":
                alignment = int(value)  # type: ignore[arg-type]
        return alignment

    def _check_value(self, key: bytes, kind: int, value: Value | None, size: int) -> None:
        """Check a value that llama.cpp relies on; it takes `size` bytes."""
        if key == b"general.alignment":
            if kind != _UINT32 or not isinstance(value, int):
                raise _Damaged("is damaged: general.alignment is no 32-bit number")
            if value & (value - 1) or not 1 <= value <= _LARGEST_ALIGNMENT:
                raise _Damaged(f"is damaged: an alignment of {value} bytes")
        if key.startswith(b"tokenizer.chat_template") and size > _LONGEST_TEMPLATE:
            raise _Damaged(f"has a chat template of {size:,} bytes, too long to be one")

    def _value(self, kind: int, key: str) -> Value | None:
        """Read a value; None stands for one that is too long to be of use here."""
        if kind == _STRING:
            n: int = self._unpack("<Q")
            start = self._position
            self._skip(n, f"the text of {key}")
            return self._content[start : self._position].decode("utf-8", "replace") if n <= _LONGEST_TEMPLATE else None
        if kind == _ARRAY:
            return self._array(self._unpack("<I"), key)
        if kind in _SCALARS:
            return self._unpack(_SCALARS[kind], key)  # type: ignore[no-any-return]
        raise _Damaged(f"is damaged: {key} has the unknown type {kind}")

    def _array(self, kind: int, key: str) -> Value | None:
        if kind == _STRING:
            n = self._count(f"strings in {key}", 8)
            if key == "tokenizer.ggml.tokens":
                self.n_vocab = n
                self._read_vocabulary(n, key)
            else:
                self._skip_strings(n, key)
            return None
        if kind not in _SCALARS:
            raise _Damaged(f"is damaged: {key} is a list of unknown type {kind}")
        size = struct.calcsize(_SCALARS[kind])
        n = self._count(f"values in {key}", size)
        start = self._position
        self._skip(n * size, key)
        if n > _LONGEST_LIST:
            return None
        return [value for (value,) in struct.iter_unpack(_SCALARS[kind], self._content[start : self._position])]

    def _skip_strings(self, n: int, key: str) -> None:
        """Skip `n` strings; merges can be 300,000, so this is one of two loops that count."""
        content, position, last = self._content, self._position, len(self._content) - 8
        read_length = struct.Struct("<Q").unpack_from
        for _ in range(n):
            if position > last:
                break
            position += 8 + read_length(content, position)[0]
        self._leave_strings(position, key)

    def _read_vocabulary(self, n: int, key: str) -> None:
        content, position, last = self._content, self._position, len(self._content) - 8
        read_length = struct.Struct("<Q").unpack_from
        add = self.tokens.add
        for number in range(n):
            if position > last:
                break
            start = position + 8
            position = start + read_length(content, position)[0]
            add(content[start:position] or b"[EMPTY_%d]" % number)  # as llama.cpp calls it
        self._leave_strings(position, key)

    def _leave_strings(self, position: int, key: str) -> None:
        if position > len(self._content):
            raise _Damaged(f"is cut short or damaged: {key} goes on behind its end")
        self._position = position

    def _read_tensors(self, n_tensors: int, alignment: int) -> None:
        names: set[bytes] = set()
        extents: list[tuple[int, int, bytes]] = []
        kinds: dict[bytes, int] = {}
        for _ in range(n_tensors):
            name = self._string("the name of a tensor", _LONGEST_NAME)
            if name in names:
                raise _Damaged(f"is damaged: the tensor {_shown(name)} is there twice")
            names.add(name)
            n_dimensions = self._unpack("<I")
            if not 1 <= n_dimensions <= _MOST_DIMENSIONS:
                raise _Damaged(f"is damaged: the tensor {_shown(name)} has {n_dimensions} dimensions")
            shape = [self._unpack("<Q") for _ in range(n_dimensions)]
            kind, offset = self._unpack("<I"), self._unpack("<Q")
            if offset % alignment:
                raise _Damaged(f"is damaged: the tensor {_shown(name)} is not aligned to {alignment} bytes")
            self._header.shapes[_shown(name)] = shape
            extents.append((offset, _bytes_of(kind, shape, _shown(name)), name))
            kinds[name] = kind
        data = -(-self._position // alignment) * alignment
        end = 0
        file = len(self._header.lengths)
        for offset, _, name in extents:
            self._header.places[_shown(name)] = Place(file, data + offset, kinds[name])
        for offset, size, name in sorted(extents):
            self._header.tensors[_shown(name)] = size
            if offset < end:
                raise _Damaged(f"is damaged: the tensor {_shown(name)} overlaps another")
            end = offset + size
            if data + end > len(self._content):
                raise _Damaged(
                    f"is incomplete: it has {len(self._content):,} bytes, and {_shown(name)} ends at {data + end:,}; "
                    "fetch it again (with `lcspec models rm` and `lcspec pull` if lcspec did)"
                )

    def _unpack(self, form: str, what: str = "the header") -> Any:
        start = self._position
        self._skip(struct.calcsize(form), what)
        return struct.unpack_from(form, self._content, start)[0]

    def _count(self, what: str, smallest: int) -> int:
        """Read a count of things of at least `smallest` bytes each, which have to fit into the rest."""
        n: int = self._unpack("<Q")
        if n * smallest > len(self._content) - self._position:
            raise _Damaged(f"is cut short or damaged: {n:,} {what} do not fit into it")
        return n

    def _string(self, what: str, longest: int) -> bytes:
        n: int = self._unpack("<Q")
        if n > longest:
            raise _Damaged(f"is damaged: {what} has {n:,} bytes")
        start = self._position
        self._skip(n, what)
        return self._content[start : self._position]

    def _skip(self, n: int, what: str) -> None:
        if n > len(self._content) - self._position:
            raise _Damaged(f"is cut short or damaged: {what} goes on behind its end")
        self._position += n


def _bytes_of(kind: int, shape: list[int], name: str) -> int:
    """Return the size of a tensor, by the block sizes of the loaded library."""
    if kind >= llama_cpp.GGML_TYPE_COUNT or (block_bytes := _type_size(kind)) == 0:
        raise _Damaged(f"can't be used: the tensor {name} has type {kind}, which this llama.cpp does not know")
    if min(shape) < 1 or math.prod(shape) >= 1 << 62:
        raise _Damaged(f"is damaged: the tensor {name} has the shape {shape}")
    if shape[0] % _block_size(kind):
        raise _Damaged(f"is damaged: rows of {shape[0]} do not divide into blocks of {_block_size(kind)} in {name}")
    return math.prod(shape) // _block_size(kind) * block_bytes


def _ggml_function(name: str, result: type) -> Callable[[int], int]:
    function = getattr(libggml, name)
    function.argtypes, function.restype = [ctypes.c_int], result
    return function  # type: ignore[no-any-return]


_type_size = _ggml_function("ggml_type_size", ctypes.c_size_t)
_block_size = _ggml_function("ggml_blck_size", ctypes.c_int64)


def _shown(name: bytes) -> str:
    return ascii(name.decode("utf-8", "replace"))[1:-1]
