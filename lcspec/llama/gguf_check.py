"""Whether a file is a whole and plausible GGUF, told before llama.cpp reads it.

llama.cpp trusts much of what a file says, and files come from anywhere. Only the header is read: a
file of a gigabyte takes a fraction of a second. (Format: ggml's docs/gguf.md, versions 2 and 3.)
"""

import ctypes
import math
import mmap
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp._ggml import libggml

from lcspec.errors import ModelError

_VERSIONS = (2, 3)
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_UINT32, _STRING, _ARRAY = 4, 8, 9
_SMALLEST_KEY = 8 + 4 + 1  # bytes: an empty name, a type, a value
_SMALLEST_TENSOR = 8 + 4 + 8 + 4 + 8  # an empty name, the number of dimensions, one of them, a type, an offset
_LONGEST_KEY = 65_535
_LONGEST_NAME = 63  # GGML_MAX_NAME without its end
_LONGEST_TEMPLATE = 1 << 20
_MOST_DIMENSIONS = 4
_LARGEST_ALIGNMENT = 1 << 20
_MOST_LAYERS = 512  # LLAMA_MAX_LAYERS, beyond which llama.cpp ends the process


class _Damaged(Exception):
    """What is wrong with a file, in words that go on from its name."""


def check_gguf(path: Path) -> None:
    """Make sure that llama.cpp can safely read `path`.

    Raises:
        ModelError: the file can't be read, is no GGUF, is cut short, or contradicts itself.
    """
    try:
        if path.is_dir():
            raise ModelError(f"{path} is a folder; name the GGUF file in it")
        if not path.is_file() and path.exists():
            raise ModelError(f"{path} is not an ordinary file")
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise _Damaged("is not a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _Reader(content).check()
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from error
    except _Damaged as error:
        raise ModelError(f"{path} {error}") from error


class _Reader:
    """Walks through the header."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self._position = 4  # behind the magic

    def check(self) -> None:
        version = self._unpack("<I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big")
            kind = "for big-endian machines" if swapped in _VERSIONS else f"of version {version}"
            raise _Damaged(f"is a GGUF {kind}, which is not supported")
        n_tensors = self._count("tensors", _SMALLEST_TENSOR)
        n_keys = self._count("metadata keys", _SMALLEST_KEY)
        alignment = self._check_metadata(n_keys)
        self._check_tensors(n_tensors, alignment)

    def _check_metadata(self, n_keys: int) -> int:
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
            self._skip_value(kind, _shown(key))
            self._check_value(key, kind, start)
            if key == b"general.alignment":
                alignment = struct.unpack_from("<I", self._content, start)[0]
        return alignment

    def _check_value(self, key: bytes, kind: int, start: int) -> None:
        """Check the values that llama.cpp relies on; this one stands from `start` to here."""
        size = self._position - start
        number = struct.unpack_from("<I", self._content, start)[0] if kind == _UINT32 else None
        if key == b"general.alignment":
            if number is None:
                raise _Damaged("is damaged: general.alignment is no 32-bit number")
            if number & (number - 1) or not 1 <= number <= _LARGEST_ALIGNMENT:
                raise _Damaged(f"is damaged: an alignment of {number} bytes")
        if key.endswith(b".block_count") and number is not None and not 1 <= number <= _MOST_LAYERS:
            raise _Damaged(f"is damaged: a model of {number:,} layers")
        if key.startswith(b"tokenizer.chat_template") and size > _LONGEST_TEMPLATE:
            raise _Damaged(f"has a chat template of {size:,} bytes, too long to be one")

    def _skip_value(self, kind: int, key: str) -> None:
        if kind == _STRING:
            self._skip(self._unpack("<Q"), f"the text of {key}")
        elif kind == _ARRAY:
            element = self._unpack("<I")
            if element == _STRING:
                n = self._count(f"strings in {key}", 8)
                if key == "tokenizer.ggml.tokens":
                    self._skip_vocabulary(n, key)
                else:
                    self._skip_strings(n, key)
            elif element in _SCALARS:
                size = struct.calcsize(_SCALARS[element])
                self._skip(size * self._count(f"values in {key}", size), key)
            else:
                raise _Damaged(f"is damaged: {key} is a list of unknown type {element}")
        elif kind in _SCALARS:
            self._skip(struct.calcsize(_SCALARS[kind]), key)
        else:
            raise _Damaged(f"is damaged: {key} has the unknown type {kind}")

    def _skip_strings(self, n: int, key: str) -> None:
        """Skip `n` strings; merges can be 300,000, so this is the loop that counts."""
        content, position, size = self._content, self._position, len(self._content)
        read_length = struct.Struct("<Q").unpack_from
        for _ in range(n):
            if position + 8 > size:
                break
            position += 8 + read_length(content, position)[0]
        if position > size:
            raise _Damaged(f"is cut short or damaged: {key} goes on behind its end")
        self._position = position

    def _skip_vocabulary(self, n: int, key: str) -> None:
        """Skip `n` tokens, no two of which may be the same: llama.cpp would end the process."""
        start = self._position
        self._skip_strings(n, key)
        content, read_length = self._content[start : self._position], struct.Struct("<Q").unpack_from
        tokens: set[bytes] = set()
        position = 0
        while position < len(content):
            end = position + 8 + read_length(content, position)[0]
            tokens.add(content[position + 8 : end])
            position = end
        if len(tokens) < n:
            raise _Damaged(f"is damaged: {n - len(tokens):,} of its {n:,} tokens are there twice")

    def _check_tensors(self, n_tensors: int, alignment: int) -> None:
        names: set[bytes] = set()
        extents: list[tuple[int, int, bytes]] = []
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
            extents.append((offset, _bytes_of(kind, shape, _shown(name)), name))
        data = -(-self._position // alignment) * alignment
        end = 0
        for offset, size, name in sorted(extents):
            if offset < end:
                raise _Damaged(f"is damaged: the tensor {_shown(name)} overlaps another")
            end = offset + size
            if data + end > len(self._content):
                raise _Damaged(
                    f"is incomplete: it has {len(self._content):,} bytes, and {_shown(name)} ends at {data + end:,}; "
                    "fetch it again"
                )

    def _unpack(self, form: str) -> Any:
        start = self._position
        self._skip(struct.calcsize(form), "the header")
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
