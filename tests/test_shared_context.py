"""Sequences that share a cache and its passes are what they would be alone, to the bit where that is promised."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lcspec.llama.shared_context
from lcspec.errors import ClosedError, EvaluationError, ModelError
from lcspec.limits import MAX_WIDTH
from lcspec.llama import MAX_SEQUENCES, Chunk, Context, Model, SharedContext

N_CTX, N_SEQUENCES = 300, 4
N_TOKENS = 250
SMALL = 60  # of which a window of 16 is passed


@pytest.fixture(scope="module", params=["llama", "sliding window"])
def model(request: pytest.FixtureRequest, tiny_llama: Path, tiny_sliding: Path) -> Iterator[Model]:
    with Model(tiny_llama if request.param == "llama" else tiny_sliding) as model:
        yield model


@pytest.fixture
def shared(model: Model) -> Iterator[SharedContext]:
    with SharedContext(model, N_CTX, N_SEQUENCES, threads=1, batch_invariant=True, in_order=True) as context:
        yield context


def random_tokens(n: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, N_TOKENS, n)]


def alone(model: Model, tokens: list[int]) -> np.ndarray:
    """Return the logits behind the last token, evaluated in a cache of its own."""
    with Context(model, N_CTX, threads=1, batch_invariant=True) as context:
        return context.prefill(tokens).copy()


def positions(shared: SharedContext, sequence: int, n: int) -> list[int]:
    """Return the positions of a sequence's `n` cells, as they lie in the cache."""
    data = shared.save(sequence).cells
    _, _, n_streams, n_cells, *cells = (int(word) for word in data[: 4 * (4 + 3 * n)].view(np.int32))
    assert (n_streams, n_cells) == (1, n)
    return cells[::3]


def test_rows_come_for_each_chunk_that_wants_some(model: Model, shared: SharedContext) -> None:
    texts = [random_tokens(5, 1), random_tokens(9, 2), random_tokens(3, 3)]
    rows = shared.evaluate([Chunk(0, texts[0], 1), Chunk(2, texts[1], 0), Chunk(1, texts[2], 2)])
    assert [part.shape for part in rows] == [(1, model.n_vocab), (0, model.n_vocab), (2, model.n_vocab)]
    assert np.array_equal(rows[0][0], alone(model, texts[0]))
    assert np.array_equal(rows[2][0], alone(model, texts[2][:2]))
    assert np.array_equal(rows[2][1], alone(model, texts[2]))
    assert shared.tokens(2) == texts[1]
    assert shared.n_used == 17
    assert shared.n_free == N_CTX - 17


def test_a_shared_prefix_counts_once_and_outlives_its_owner(model: Model, shared: SharedContext) -> None:
    prefix = random_tokens(40)
    shared.evaluate([Chunk(0, [*prefix, 1, 2], 0)])
    shared.copy(0, 1, 40)
    assert shared.n_used == 42
    shared.free(0)
    assert shared.n_used == 40
    rows = shared.evaluate([Chunk(1, [7], 1)])
    assert np.array_equal(rows[0][0], alone(model, [*prefix, 7]))


def test_a_truncated_sequence_goes_on_as_if_nothing_had_been_behind(model: Model, shared: SharedContext) -> None:
    text = random_tokens(20)
    shared.evaluate([Chunk(0, [*text, 9, 9, 9], 0), Chunk(1, text, 0)])
    shared.truncate(0, 20)
    assert shared.tokens(0) == text
    assert np.array_equal(shared.evaluate([Chunk(0, [5], 1)])[0][0], alone(model, [*text, 5]))


operations = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "truncate", "free", "copy", "restore"]), st.integers(0, 10**6)
    ),
    min_size=40,
    max_size=100,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_whatever_happened_logits_are_those_of_a_sequence_alone(model: Model, steps: list[tuple[str, int]]) -> None:
    with SharedContext(model, SMALL, N_SEQUENCES, threads=1, batch_invariant=True, in_order=True) as shared:
        shared._n_cells = SMALL + 12  # so that cells are moved together often
        expected: list[list[int]] = [[] for _ in range(N_SEQUENCES)]
        for kind, seed in steps:
            random = np.random.default_rng(seed)
            one, other = (int(n) for n in random.choice(N_SEQUENCES, 2, replace=False))
            if kind == "append":
                chunks = [Chunk(i, random_tokens(int(random.integers(1, 12)), seed + i), 0) for i in {one, other}]
                if sum(len(chunk.tokens) for chunk in chunks) > shared.n_free:
                    continue
                shared.evaluate(chunks)
                for chunk in chunks:
                    expected[chunk.sequence] += chunk.tokens
            elif kind == "truncate" and len(expected[one]) > shared.least(one) + 1:
                n = int(random.integers(shared.least(one), len(expected[one])))
                shared.truncate(one, n)
                del expected[one][n:]
            elif kind == "free":
                shared.free(one)
                expected[one] = []
            elif kind == "copy" and not expected[other] and len(expected[one]) > shared.least(one):
                n = int(random.integers(shared.least(one), len(expected[one])))
                shared.copy(one, other, n)
                expected[other] = expected[one][:n]
            elif kind == "restore" and expected[one]:
                state = shared.save(one)
                shared.free(other)
                expected[other] = []
                if len(expected[one]) <= shared.n_free:
                    shared.restore(other, state)
                    expected[other] = expected[one][:]
        for sequence, text in enumerate(expected):
            assert shared.tokens(sequence) == text
            assert int(llama_cpp.llama_memory_seq_pos_max(shared._memory, sequence)) == len(text) - 1
            assert not text or positions(shared, sequence, len(text)) == list(range(len(text)))
            if shared.n_free:
                row = shared.evaluate([Chunk(sequence, [3], 1)])[0][0]
                assert np.array_equal(row, alone(model, [*text, 3]))


@pytest.mark.parametrize("in_order", [False, True])
def test_of_a_sliding_window_nothing_is_copied_that_was_written_over(tiny_sliding: Path, in_order: bool) -> None:
    with (
        Model(tiny_sliding) as model,
        SharedContext(model, 512, 4, threads=1, batch_invariant=True, in_order=in_order) as shared,
    ):
        text = random_tokens(100, 1)
        shared.prefill(0, random_tokens(40))
        shared.prefill(1, text)
        shared.free(0)
        shared.prefill(2, random_tokens(70, 2))  # takes the cells of 0, and of 1 those that are out of its window
        lengths = [n for n in (20, 30, 40, 60, 100) if n >= shared.least(1)]
        assert lengths == ([20, 30, 40, 60, 100] if in_order else [60, 100])
        for n in lengths:
            shared.copy(1, 3, n)
            assert np.array_equal(shared.evaluate([Chunk(3, [7], 1)])[0][0], alone(model, [*text[:n], 7]))
            shared.free(3)


@pytest.mark.parametrize("moving", [0, 5, 20])
def test_cells_are_moved_together_when_looking_at_waste_was_dearer(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, moving: int
) -> None:
    monkeypatch.setattr(lcspec.llama.shared_context, "_MOVING", moving)
    with (
        Model(tiny_llama) as model,
        SharedContext(model, N_CTX, 2, threads=1, batch_invariant=True, in_order=True) as shared,
    ):
        text = random_tokens(20)
        shared.prefill(0, random_tokens(100, 1))
        shared.prefill(1, text)
        shared.free(0)
        waste = []
        for _ in range(30):
            row = shared.evaluate([Chunk(1, [7], 1)])[0][0]
            text.append(7)
            assert np.array_equal(row, alone(model, text))
            waste.append(shared._n_written - shared.n_used)
        assert waste.count(100) == {0: 0, 5: 1, 20: 4}[moving]
        assert waste[-1] == 0


@pytest.mark.real
def test_out_of_order_cells_show_in_the_bits(smollm2: Path) -> None:
    """Why order is kept: without `in_order`, holes are filled with later tokens."""
    with Model(smollm2) as model:
        text = random_tokens(120)
        expected = alone(model, text)
        for in_order in (False, True):
            with SharedContext(model, N_CTX, 2, threads=1, batch_invariant=True, in_order=in_order) as shared:
                shared.evaluate([Chunk(1, random_tokens(90, 1), 0)])
                shared.evaluate([Chunk(0, text[:50], 0)])
                shared.free(1)
                shared.evaluate([Chunk(0, text[50:100], 0)])
                row = shared.evaluate([Chunk(0, text[100:], 1)])[0][0]
                assert (positions(shared, 0, 120) == sorted(range(120))) == in_order
                assert np.array_equal(row, expected) == in_order
                assert np.corrcoef(row, expected)[0, 1] > 0.99


def test_a_cache_can_be_filled_to_the_last_cell_and_no_further(shared: SharedContext) -> None:
    shared.evaluate([Chunk(0, random_tokens(200), 0)])
    shared.evaluate([Chunk(1, random_tokens(100), 1)])
    assert shared.n_free == 0
    with pytest.raises(EvaluationError, match=r"300 \+ 1 tokens do not fit a context of 300"):
        shared.evaluate([Chunk(2, [1], 1)])
    shared.free(0)
    shared.evaluate([Chunk(2, [1], 1)])


def test_a_pass_has_limits(shared: SharedContext) -> None:
    with pytest.raises(EvaluationError, match="no pass"):
        shared.evaluate([])
    with pytest.raises(EvaluationError, match="no pass"):
        shared.evaluate([Chunk(0, random_tokens(MAX_WIDTH + 1), MAX_WIDTH + 1)])
    with pytest.raises(EvaluationError, match="no pass"):
        shared.evaluate([Chunk(0, random_tokens(513), 0)])


def test_a_recurrent_model_has_sequences_that_only_move_forward(tiny_recurrent: Path) -> None:
    with Model(tiny_recurrent) as model, SharedContext(model, N_CTX, 3, threads=1) as shared:
        assert not shared.can_truncate
        text, other = random_tokens(20), random_tokens(7, 1)
        shared.evaluate([Chunk(0, text[:11], 0), Chunk(1, other, 0)])
        row = shared.evaluate([Chunk(0, text[11:], 1), Chunk(1, [4], 0)])[0][0]
        assert np.allclose(row, alone(model, text), atol=1e-3)
        assert shared.least(0) == 20
        with pytest.raises(EvaluationError, match="can't be truncated to 5 tokens"):
            shared.truncate(0, 5)
        shared.free(0)
        row = shared.evaluate([Chunk(0, text, 1)])[0][0]
        assert np.allclose(row, alone(model, text), atol=1e-3)
        with SharedContext(model, N_CTX, 3, threads=1, in_order=True) as other:
            assert not other.in_order


def test_a_context_that_is_of_too_few_cells_or_too_many_sequences_is_an_error(model: Model) -> None:
    with pytest.raises(ModelError, match="too small"):
        SharedContext(model, 1, 2, threads=1)
    with pytest.raises(ModelError, match="sequences can't share a context"):
        SharedContext(model, N_CTX, MAX_SEQUENCES + 1, threads=1)
    with SharedContext(model, N_CTX, MAX_SEQUENCES, threads=1, in_order=True) as largest:
        largest.evaluate([Chunk(i, [40], 1) for i in range(MAX_SEQUENCES)])


def test_a_closed_context_says_so(model: Model) -> None:
    shared = SharedContext(model, N_CTX, 2, threads=1)
    shared.close()
    shared.close()
    with pytest.raises(ClosedError, match="is closed"):
        shared.evaluate([Chunk(0, [1], 1)])


def test_a_saved_sequence_comes_back_in_another_place(model: Model) -> None:
    text, more = random_tokens(40, 1), random_tokens(3, 2)
    with SharedContext(model, 96, 3, threads=1, batch_invariant=True) as shared:
        shared.evaluate([Chunk(0, text, 0)])
        state = shared.save(0)
        shared.evaluate([Chunk(1, random_tokens(20, 3), 0)])
        shared.restore(1, state)
        assert shared.tokens(1) == text
        assert shared.n_used == 2 * len(text)
        at = shared.least(1) or 17  # of a window no more is saved than what the next token sees
        shared.copy(1, 2, at)
        rows = shared.evaluate([Chunk(1, more, 1), Chunk(2, more, 1)])
        assert np.array_equal(rows[0][0], alone(model, text + more))
        assert np.array_equal(rows[1][0], alone(model, text[:at] + more))


def test_what_does_not_fit_is_not_restored(model: Model, shared: SharedContext) -> None:
    text = random_tokens(40, 1)
    with SharedContext(model, 48, 2, threads=1) as small:
        small.evaluate([Chunk(0, text, 0)])
        state = small.save(0)
        with pytest.raises(EvaluationError, match="a saved state of 40 tokens does not fit"):
            small.restore(1, state)
        assert (small.n_used, small.tokens(1)) == (40, [])
        small.restore(0, state)
        assert small.tokens(0) == text
        with pytest.raises(EvaluationError, match="does not fit"):
            small.restore(0, replace(state, cells=state.cells[: state.cells.size // 2]))
        assert (small.n_used, small.tokens(0)) == (0, [])
    with pytest.raises(EvaluationError, match="does not fit"):  # its cells are of another type
        shared.restore(0, state)


def test_hidden_states_come_with_the_logits_of_every_token(model: Model) -> None:
    text = random_tokens(6, 1)
    with (
        SharedContext(model, 96, 2, threads=1, batch_invariant=True, hidden=True) as shared,
        Context(model, 96, threads=1, batch_invariant=True, hidden=True) as context,
    ):
        shared.evaluate([Chunk(0, text[:4], 0), Chunk(1, text[:4], 1)])
        assert shared.hidden is None
        shared.evaluate([Chunk(0, text[4:], 2), Chunk(1, text[4:5], 1)])
        context.prefill(text[:4])
        context.evaluate(text[4:])
        assert shared.hidden is not None
        assert context.hidden is not None
        assert np.array_equal(shared.hidden, np.vstack((context.hidden, context.hidden[:1])))


def test_sequences_that_are_apart_are_copied_whole_and_have_their_share_of_the_cells(tiny_llama: Path) -> None:
    text = random_tokens(200, 1)
    with (
        Model(tiny_llama) as model,
        SharedContext(model, 2 * 256, 2, threads=1, batch_invariant=True, apart=True) as shared,
    ):
        shared.evaluate([Chunk(0, text, 0)])
        with pytest.raises(EvaluationError, match="199 tokens of sequence 0 can't be shared"):
            shared.copy(0, 1, 199)
        shared.copy(0, 1, 200)
        rows = shared.evaluate([Chunk(0, [1], 1), Chunk(1, [2], 1)])
        assert np.array_equal(rows[0][0], alone(model, [*text, 1]))
        assert np.array_equal(rows[1][0], alone(model, [*text, 2]))
        shared.truncate(0, 100)
        shared.evaluate([Chunk(0, text[100:], 0)])
        with pytest.raises(EvaluationError, match=r"llama\.cpp can't evaluate 60 tokens"):
            shared.evaluate([Chunk(0, random_tokens(60, 2), 0)])
