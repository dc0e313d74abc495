"""llama.cpp's serialized cells: the blocks that are taken, and all that is refused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec.errors import EvaluationError
from lcspec.llama import Context, Model, State, state_format, take_blocks

N_CTX = 64
TEXT = list(b"cells are copied, not evaluated")
ROW = 2 * tiny.WIDTH  # bytes of a block's keys, or values, of a token
CELLS = 16  # bytes before the cells
ROWS = CELLS + 12 * len(TEXT) + 8  # and before the first block's keys


@dataclass
class Rig:
    """Two contexts of one model, and a state of it."""

    context: Context
    other: Context
    state: State


@pytest.fixture(scope="module", params=["f16 values", "bf16 values"])
def rig(request: pytest.FixtureRequest, tiny_llama: Path) -> Iterator[Rig]:
    with Model(tiny_llama) as model:
        batch_invariant = request.param == "bf16 values"
        context, other = (Context(model, N_CTX, threads=1, batch_invariant=batch_invariant) for _ in range(2))
        context.prefill(TEXT)
        yield Rig(context, other, context.save())


def changed(state: State, offset: int, value: int) -> State:
    """Return the state with another 32-bit number somewhere."""
    cells = state.cells.copy()
    cells[offset : offset + 4] = np.frombuffer(np.uint32(value).tobytes(), dtype=np.uint8)
    return replace(state, cells=cells)


def test_a_state_of_all_blocks_stays_what_it_is(rig: Rig) -> None:
    taken = take_blocks(rig.state, tiny.LAYERS, range(tiny.LAYERS))
    assert taken.tokens == rig.state.tokens
    assert np.array_equal(taken.cells, rig.state.cells)


def test_the_blocks_that_are_named_are_taken_in_their_order(rig: Rig) -> None:
    size = 12 + ROW * len(TEXT)
    rows = [rig.state.cells[ROWS + i * size : ROWS + (i + 1) * size] for i in range(2 * tiny.LAYERS)]
    for blocks in ([0], [1], [1, 0]):
        taken = take_blocks(rig.state, tiny.LAYERS, blocks)
        expected = [rows[block] for block in blocks] + [rows[tiny.LAYERS + block] for block in blocks]
        assert np.array_equal(taken.cells[ROWS:], np.concatenate(expected))
        assert taken.cells[ROWS - 4] == len(blocks)


def test_cells_out_of_order_are_taken(rig: Rig) -> None:
    """Where a cache was truncated and filled again, later positions can lie in earlier cells."""
    swapped = changed(changed(rig.state, CELLS, 1), CELLS + 12, 0)
    assert np.array_equal(take_blocks(swapped, tiny.LAYERS, [0, 1]).cells, swapped.cells)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, 1, "another format"),  # magic
        (8, 2, "another format"),  # streams
        (12, len(TEXT) + 1, "another format"),  # cells
        (4, 5, "other positions or sequences"),
        (CELLS, 7, "other positions"),
        (CELLS + 4, 2, "other positions or sequences"),  # number of sequences
        (CELLS + 8, 3, "other positions or sequences"),
        (ROWS - 8, 1, "transposed"),
        (ROWS - 4, tiny.LAYERS + 1, "number of blocks"),
        (ROWS, 2, "of type 2"),
        (ROWS + 4, ROW + 2, "a state has"),  # the size of a row
        (ROWS + 4, 0, "rows of 0 bytes"),
        (ROWS + 8, 1 << 31, "cut short"),
    ],
)
def test_what_is_not_as_expected_is_refused(rig: Rig, offset: int, value: int, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        take_blocks(changed(rig.state, offset, value), tiny.LAYERS, [0])


def test_another_library_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "__version__", "0.4.0")
    with pytest.raises(EvaluationError, match=r"format of llama-cpp-python 0\.4\.0 is not known"):
        take_blocks(rig.state, tiny.LAYERS, [0])


def test_another_version_of_the_format_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "LLAMA_STATE_SEQ_VERSION", 4)
    assert not state_format.knows_library()
    with pytest.raises(EvaluationError, match="is not known"):
        take_blocks(rig.state, tiny.LAYERS, [0])


def test_blocks_that_are_not_there_are_refused(rig: Rig) -> None:
    for blocks in ([], [tiny.LAYERS], [-1]):
        with pytest.raises(EvaluationError, match="has no blocks"):
            take_blocks(rig.state, tiny.LAYERS, blocks)
    for n_blocks in (tiny.LAYERS - 1, tiny.LAYERS + 1):
        with pytest.raises(EvaluationError, match="number of blocks"):
            take_blocks(rig.state, n_blocks, [0])


def test_other_tokens_are_refused(rig: Rig) -> None:
    for tokens in ((), rig.state.tokens[1:]):
        with pytest.raises(EvaluationError, match="other cells"):
            take_blocks(replace(rig.state, tokens=tokens), tiny.LAYERS, [0])


def test_two_caches_in_one_state_are_refused(tiny_sliding: Path) -> None:
    with Model(tiny_sliding) as model, Context(model, N_CTX, threads=1) as context:
        context.prefill(TEXT)
        with pytest.raises(EvaluationError, match="number of blocks"):
            take_blocks(context.save(), tiny.LAYERS, [0])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_cut_state_is_refused(rig: Rig, data: st.DataObject) -> None:
    n = data.draw(st.integers(0, rig.state.cells.size - 1))
    with pytest.raises(EvaluationError):
        take_blocks(replace(rig.state, cells=rig.state.cells[:n]), tiny.LAYERS, [0])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 400))
def test_random_bytes_are_refused(rig: Rig, content: bytes, kept: int) -> None:
    cells = np.concatenate([rig.state.cells[:kept], np.frombuffer(content, dtype=np.uint8)])
    with pytest.raises(EvaluationError):
        take_blocks(replace(rig.state, cells=cells), tiny.LAYERS, [0])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_state_is_refused_or_harmless(rig: Rig, data: st.DataObject) -> None:
    """What is not refused here is either refused by llama.cpp or has other numbers in its rows."""
    rig.other.clear()
    cells = rig.state.cells.copy()
    for offset in data.draw(st.lists(st.integers(0, ROWS + 40), min_size=1, max_size=3)):
        cells[offset] = data.draw(st.integers(0, 255))
    try:
        taken = take_blocks(replace(rig.state, cells=cells), tiny.LAYERS, range(tiny.LAYERS))
        rig.other.restore(taken)
    except EvaluationError:
        assert rig.other.tokens == []
        return
    assert rig.other.tokens == TEXT
    rig.other.evaluate([1])
