"""Rows of a target's embedding and output matrices, as numbers."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lcspec.errors import ModelError
from lcspec.gguf_edit import Tensor, read_gguf
from lcspec.llama import Header, dequantize

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_REMEMBERED = 16_384  # rows
_Known: TypeAlias = dict[int, NDArray[np.float32]]


class TargetRows:
    """The embeddings of a target's tokens, and the rows of its output matrix, which make logits of hidden states.

    Args:
        header: of the target's file, which is mapped and not read.

    Raises:
        ModelError: the file has no such matrices, or can't be read.
    """

    def __init__(self, header: Header) -> None:
        tensors = read_gguf(header).tensors
        if _EMBEDDING not in tensors:
            raise ModelError(f"{header.files[0]} has no {_EMBEDDING}, which a draft head needs")
        self._embedding = tensors[_EMBEDDING]
        self._output = tensors.get(_OUTPUT, self._embedding)
        self._known_embedding: _Known = {}
        self._known_output: _Known = {}

    @property
    def n_embd(self) -> int:
        """Length of a row."""
        return self._embedding.shape[0]

    @property
    def n_vocab(self) -> int:
        """Number of rows."""
        return self._output.shape[1]

    def embedding(self, token: int) -> NDArray[np.float32]:
        """Return the embedding of a token: shape (n_embd,)."""
        return _remembered(self._known_embedding, self._embedding, token)

    def output_row(self, token: int) -> NDArray[np.float32]:
        """Return the row of a token in the output matrix: shape (n_embd,)."""
        return _remembered(self._known_output, self._output, token)

    def embeddings(self, tokens: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the embeddings of tokens: shape (n, n_embd)."""
        return _rows(self._embedding, tokens)

    def output(self, tokens: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return rows of the output matrix: shape (n, n_embd)."""
        return _rows(self._output, tokens)


def _remembered(known: _Known, tensor: Tensor, token: int) -> NDArray[np.float32]:
    found = known.get(token)
    if found is None:
        if len(known) >= _REMEMBERED:
            known.clear()
        found = known[token] = _rows(tensor, [token])[0]
    return found


def _rows(tensor: Tensor, numbers: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
    data = np.frombuffer(tensor.data, dtype=np.uint8).reshape(-1, tensor.row_size)
    return dequantize(data[np.asarray(numbers, dtype=np.int64)], tensor.kind, tensor.shape[0])
