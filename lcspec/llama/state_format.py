"""llama.cpp's serialization of a sequence's cells, taken apart to move some of its blocks to another model.

The format is llama.cpp's own business (its src/llama-kv-cache.cpp, state_write; src/llama-context.cpp,
state_seq_write_data), and llama.cpp trusts what it is given. So nothing is taken for granted: the library has to be one
whose format was read, and every number and every length has to be as expected. What is refused can still be evaluated.

A state is a magic number and the sequence's id; then for its cache: the number of streams, here 1, and of cells; of
each cell its position, the number of its sequences, here 1, and their ids; whether values are transposed, here not, and
the number of blocks; the keys of each block: type, bytes of a row, a row for each cell; the same of the values.
"""

from collections.abc import Sequence
from dataclasses import replace

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError
from lcspec.llama.context import State

_LIBRARIES = ("0.3.36",)  # of which the format was read
_VERSION = 3  # LLAMA_STATE_SEQ_VERSION of these
_MAGIC = 0xAF143CD8
_CELL = np.dtype([("position", "<i4"), ("n_sequences", "<u4"), ("sequence", "<i4")])
_ROWS = np.dtype([("type", "<i4"), ("size", "<u8")])
_ELEMENT = {llama_cpp.GGML_TYPE_F16: 2, 30: 2}  # bytes, by type of keys or values; 30 is bf16
_HEAD, _COUNTS = 4, 2  # 32-bit numbers before the cells, and behind them


def knows_library() -> bool:
    """Tell whether the installed library serializes cells in the format that is known here."""
    return llama_cpp.__version__ in _LIBRARIES and llama_cpp.LLAMA_STATE_SEQ_VERSION == _VERSION


def take_blocks(state: State, n_blocks: int, blocks: Sequence[int]) -> State:
    """Return the state that a model would have that is made of some of a model's blocks, had these seen its text.

    Args:
        state: of a model with `n_blocks` blocks.
        n_blocks: blocks of that model; each has to have keys and values.
        blocks: those of the other, in its order.

    Raises:
        EvaluationError: the state is not in the one format that is known.
    """
    if not knows_library():
        raise EvaluationError(f"the state format of llama-cpp-python {llama_cpp.__version__} is not known")
    if not blocks or not all(0 <= block < n_blocks for block in blocks):
        raise EvaluationError(f"a model of {n_blocks} blocks has no blocks {list(blocks)}")
    reader = _Reader(state.cells)
    _read_cells(reader, state.start, len(state.tokens))
    if reader.numbers(_COUNTS) != [0, n_blocks]:
        raise EvaluationError("a state has transposed values, or another number of blocks")
    head = state.cells[: reader.position].copy()
    head[-4:] = np.frombuffer(np.uint32(len(blocks)).tobytes(), dtype=np.uint8)
    keys = [_read_rows(reader, len(state.tokens)) for _ in range(n_blocks)]
    values = [_read_rows(reader, len(state.tokens)) for _ in range(n_blocks)]
    if reader.n_left:
        raise EvaluationError(f"a state has {reader.n_left:,} bytes too many")
    kept = [rows[block] for rows in (keys, values) for block in blocks]
    return replace(state, cells=np.concatenate([head, *kept]))


class _Reader:
    def __init__(self, content: NDArray[np.uint8]) -> None:
        self._content = content
        self.position = 0

    @property
    def n_left(self) -> int:
        return self._content.size - self.position

    def take(self, n: int) -> NDArray[np.uint8]:
        if n > self.n_left:
            raise EvaluationError("a state is cut short")
        self.position += n
        return self._content[self.position - n : self.position]

    def since(self, start: int) -> NDArray[np.uint8]:
        return self._content[start : self.position]

    def numbers(self, n: int) -> list[int]:
        return [int(number) for number in np.frombuffer(self.take(4 * n).tobytes(), dtype="<u4")]


def _read_cells(reader: _Reader, start: int, n_cells: int) -> None:
    magic, sequence, n_streams, n = reader.numbers(_HEAD)
    if (magic, n_streams, n) != (_MAGIC, 1, n_cells) or not n_cells:
        raise EvaluationError(f"a state of {n_cells} tokens has another format, or other cells")
    cells = np.frombuffer(reader.take(n_cells * _CELL.itemsize).tobytes(), dtype=_CELL)
    whole = np.array_equal(np.sort(cells["position"]), np.arange(start, start + n_cells))
    if not whole or (cells["n_sequences"] != 1).any() or (cells["sequence"] != sequence).any():
        raise EvaluationError("a state has cells of other positions or sequences")


def _read_rows(reader: _Reader, n_cells: int) -> NDArray[np.uint8]:
    """Return the keys or the values of one block, with what is said of them."""
    start = reader.position
    rows = np.frombuffer(reader.take(_ROWS.itemsize).tobytes(), dtype=_ROWS)[0]
    kind, size = int(rows["type"]), int(rows["size"])
    if kind not in _ELEMENT or size == 0 or size % _ELEMENT[kind]:
        raise EvaluationError(f"a state has rows of {size} bytes of type {kind}")
    reader.take(n_cells * size)
    return reader.since(start)
