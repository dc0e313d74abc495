"""A draft model whose output matrix has only some of the tokens' rows.

On small models the output matrix is a large part of a step, and most tokens hardly ever come next (Zhao et al. 2025,
"FR-Spec"). llama.cpp knows one vocabulary of a file, so a file with fewer output rows has as many tokens, under numbers
of their own. What is put in stays whole: the rows of the input matrix are at the file's end, behind the tensors, where
llama.cpp does not look, and are fed to it as embeddings. `lcspec.gguf_edit` writes such files.
"""

import ctypes
import hashlib
import struct
from collections.abc import Sequence

import llama_cpp
import numpy as np
from llama_cpp._ggml import libggml
from numpy.typing import NDArray

from lcspec.errors import ModelError
from lcspec.llama.gguf_header import Header

CUT = "lcspec.draft.cut."
"""Begins the metadata keys: 'tokens', a list of the ids that the file's own tokens have in the whole vocabulary, and
of the input matrix 'type' (ggml_type), 'rows' and 'sha256'."""

CUTTABLE = ("gemma2", "llama", "qwen2", "qwen3")
"""The architectures of which it is known that they treat embeddings that are put in as they treat those of tokens."""

_LIST = struct.Struct("<IIQ")  # type, type of the elements, their number
_LIST_TYPE, _INT32_TYPE = 9, 5


class CutVocabulary:
    """What connects a file's own tokens with those of the whole vocabulary.

    Args:
        header: of a file that has a cut vocabulary.

    Raises:
        ModelError: the file is damaged or can't be read.
    """

    def __init__(self, header: Header) -> None:
        path = header.files[0]
        self.n_tokens = _number(header, f"{CUT}rows")
        """Tokens of the whole vocabulary."""
        self._width = _number(header, f"{header.architecture}.embedding_length")
        self._type = _number(header, f"{CUT}type", least=0)
        if self._type >= llama_cpp.GGML_TYPE_COUNT or not (traits := type_traits(self._type).contents).type_size:
            raise ModelError(f"{path} is damaged: its input matrix is of type {self._type}, which llama.cpp lacks")
        self._to_float = traits.to_float
        size = self.n_tokens * (self._width // traits.block_size * traits.type_size)
        offset = header.file_size - size
        end = max(place.start + header.tensors[name] for name, place in header.places.items())
        if len(header.files) > 1 or offset < end:
            raise ModelError(f"{path} is incomplete: it lacks the input matrix of its cut vocabulary; make it again")
        try:
            self.ids = _ids(header)
            """Shape (n,), int32, ascending: what the file's own tokens are in the whole vocabulary."""
            self._rows = np.asarray(np.memmap(path, np.uint8, "r", offset, (self.n_tokens, size // self.n_tokens)))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} can't be read: {error}") from error
        self._header = header

    @classmethod
    def of(cls, header: Header) -> "CutVocabulary | None":
        """Return it for a file that has a cut vocabulary; None for all others."""
        return cls(header) if f"{CUT}rows" in header.metadata else None

    def check(self) -> None:
        """Make sure that the input matrix is whole; 100 MB take a tenth of a second.

        Raises:
            ModelError: it is another one than when the file was made.
        """
        if hashlib.sha256(self._rows.data).hexdigest() != self._header.metadata.get(f"{CUT}sha256"):
            path = self._header.files[0]
            raise ModelError(f"{path} is damaged: its input matrix is not the one that it was made with; make it again")

    def own(self, token: int) -> int | None:
        """Return what a token of the whole vocabulary is in the file's own; None where it is not in there."""
        place = int(np.searchsorted(self.ids, token))
        return place if place < self.ids.size and self.ids[place] == token else None

    def embeddings(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Return the rows of the input matrix for tokens of the whole vocabulary: shape (len(tokens), width)."""
        rows: NDArray[np.uint8] = self._rows[np.asarray(tokens)]
        values = np.empty((len(tokens), self._width), dtype=np.float32)
        if self._type == llama_cpp.GGML_TYPE_F32:
            values.view(np.uint8)[:] = rows
            return values
        self._to_float(rows.ctypes.data, values.ctypes.data, values.size)
        return values


def check_whole(header: Header) -> None:
    """Make sure that a target's vocabulary is not cut.

    Raises:
        ModelError: it is.
    """
    if f"{CUT}rows" in header.metadata:
        raise ModelError(f"{header.files[0].name} has a cut vocabulary: it can only draft for another model")


class WholeRows:
    """Spreads logits over the whole vocabulary: tokens that are not in the file's own never come next."""

    def __init__(self, cut: CutVocabulary) -> None:
        self._ids = cut.ids.astype(np.intp)
        self._rows = np.empty((0, cut.n_tokens), dtype=np.float32)

    def of(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return rows for all tokens, read-only, and valid until the next call.

        Args:
            logits: shape (n, the file's own tokens).
        """
        n = len(logits)
        if len(self._rows) < n:
            self._rows = np.full((n, self._rows.shape[1]), -np.inf, dtype=np.float32)
        for row, some in zip(self._rows, logits, strict=False):
            row[self._ids] = some
        rows = self._rows[:n]
        rows.flags.writeable = False
        return rows


def _number(header: Header, key: str, least: int = 1) -> int:
    value = header.metadata.get(key)
    if type(value) is not int or value < least:
        raise ModelError(f"{header.files[0]} is damaged: its {key} is {value!r}")
    return value


def _ids(header: Header) -> NDArray[np.int32]:
    path = header.files[0]
    start, end = header.values.get(f"{CUT}tokens".encode(), (0, 0))
    with path.open("rb") as file:
        file.seek(start)
        value = file.read(end - start)
    if value[: _LIST.size] != _LIST.pack(_LIST_TYPE, _INT32_TYPE, header.n_vocab):
        raise ModelError(f"{path} is damaged: it does not say what its {header.n_vocab:,} tokens are")
    ids = np.frombuffer(value, dtype="<i4", offset=_LIST.size).astype(np.int32)
    if (np.diff(ids) <= 0).any() or ids[0] < 0 or ids[-1] >= _number(header, f"{CUT}rows"):
        raise ModelError(f"{path} is damaged: its tokens are out of order")
    return ids


class _TypeTraits(ctypes.Structure):
    """What ggml.h calls ggml_type_traits."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_size", ctypes.c_int64),
        ("block_size_interleave", ctypes.c_int64),
        ("type_size", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    )


type_traits = libggml.ggml_get_type_traits
type_traits.argtypes, type_traits.restype = [ctypes.c_int], ctypes.POINTER(_TypeTraits)
