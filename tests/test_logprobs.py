import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec.logprobs import TokenLogprob, no_scores, scorer


def naive(row: np.ndarray) -> list[float]:
    """Return the log-probabilities, in exact sums of double precision."""
    values = [float(value) for value in row]
    highest = max(values)
    total = math.fsum(math.exp(value - highest) for value in values)
    return [value - highest - math.log(total) for value in values]


@settings(deadline=None)
@given(
    size=st.integers(1, 3000),
    n=st.integers(0, 3),
    scale=st.sampled_from([0.0, 0.1, 3.0, 50.0]),
    n_top=st.integers(0, 20) | st.integers(0, 5000),
    seed=st.integers(0, 10_000),
)
def test_scores_are_those_of_the_naive_way(size: int, n: int, scale: float, n_top: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    logits = (scale * random.normal(size=(n, size))).astype(np.float32)
    tokens = random.integers(size, size=n).tolist()
    scores = scorer(n_top)(logits, tokens)
    assert [score.token for score in scores] == tokens
    for row, score in zip(logits, scores, strict=True):
        expected = naive(row)
        assert score.logprob == pytest.approx(expected[score.token], abs=2e-6)
        ranked = sorted(range(size), key=lambda token: (-row[token], token))
        assert [token for token, _ in score.top] == ranked[:n_top]
        assert [logprob for _, logprob in score.top] == pytest.approx(
            [expected[token] for token in ranked[:n_top]], abs=2e-6
        )


@pytest.mark.parametrize("n_top", [1, 3, 5, 1000])
def test_of_equal_logits_the_first_counts_as_in_greedy_decoding(n_top: int) -> None:
    row = np.zeros(1000, dtype=np.float32)
    row[[500, 700]] = 1
    (score,) = scorer(n_top)(row[None, :], [500])
    assert [token for token, _ in score.top] == [500, 700, *range(500), *range(501, 700), *range(701, 1000)][:n_top]
    assert score.top[0] == (500, score.logprob)


@pytest.mark.parametrize("n_top", [4, 5, 1 << 40])
def test_no_more_than_the_vocabulary_is_named(n_top: int) -> None:
    row = np.array([[0.0, 2.0, 1.0, -1.0]], dtype=np.float32)
    (score,) = scorer(n_top)(row, [2])
    assert [token for token, _ in score.top] == [1, 2, 0, 3]
    assert math.fsum(math.exp(logprob) for _, logprob in score.top) == pytest.approx(1)


def test_a_forbidden_token_is_infinitely_unlikely() -> None:
    row = np.array([[0.0, -np.inf, 0.0]], dtype=np.float32)
    (score,) = scorer(3)(row, [1])
    assert score.logprob == -math.inf
    assert score.top == ((0, pytest.approx(-math.log(2))), (2, pytest.approx(-math.log(2))), (1, -math.inf))


def test_a_long_vocabulary_of_large_logits_keeps_its_precision() -> None:
    row = (1000 + np.random.default_rng(0).normal(size=151_936)).astype(np.float32)
    (score,) = scorer(0)(row[None, :], [77])
    assert score == TokenLogprob(77, pytest.approx(naive(row)[77], abs=1e-6), ())


def test_there_is_one_token_for_each_row() -> None:
    with pytest.raises(ValueError, match="zip"):
        scorer(1)(np.zeros((2, 5), dtype=np.float32), [1])


def test_no_scores_scores_nothing() -> None:
    assert no_scores(np.zeros((2, 5), dtype=np.float32), [1, 2]) == ()
