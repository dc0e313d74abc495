"""Noise is uniform and independent, stays the same for ever, and `sample` samples.

Seeds are fixed, so no test fails by chance; with others each p-value would be below `ALARM` once in a million times.
"""

import numpy as np
import pytest
from chi_square import p_value
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lcspec import noise
from lcspec.noise import ACCEPTANCE, CORRECTION, COUPLED, PROPOSAL, gumbel, sample, uniform

ALARM = 1e-6
PURPOSES = (COUPLED, ACCEPTANCE, CORRECTION, PROPOSAL)
AXES = ("seed", "position", "purpose", "token")
BITS = 52
MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mixed(x: int) -> int:
    """Return the finalizer of SplitMix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def reference(seed: int, position: int, purpose: int, token: int) -> float:
    """Return the noise by the arithmetic of whole numbers."""
    x = mixed(seed)
    x = mixed((x + position * GOLDEN) & MASK)
    x = mixed((x + (purpose + 1) * GOLDEN) & MASK)
    x = mixed((x + (token + 1) * GOLDEN) & MASK)
    return ((x >> (64 - BITS)) + 0.5) / 2**BITS


@pytest.fixture(scope="module")
def block() -> np.ndarray:
    """Return the noise of the smallest seeds, positions, purposes and tokens: one axis each."""
    tokens = np.arange(160)
    return np.array([[[uniform(s, p, u, tokens) for u in PURPOSES] for p in range(60)] for s in range(60)])


@pytest.fixture(scope="module", params=["tokens", "positions", "seeds", "far seeds"])
def stream(request: pytest.FixtureRequest) -> np.ndarray:
    """Return noise in the order in which one of its inputs counts."""
    token = np.array([7])
    if request.param == "tokens":
        return uniform(0, 0, COUPLED, np.arange(400_000))
    if request.param == "positions":
        return np.array([uniform(0, i, COUPLED, token)[0] for i in range(50_000)])
    step = 1 if request.param == "seeds" else 1 << 40
    return np.array([uniform(i * step, 0, COUPLED, token)[0] for i in range(50_000)])


def squares(x: np.ndarray, y: np.ndarray, n: int = 16) -> float:
    """Return the p-value of pairs that fill n times n squares evenly."""
    counts = np.bincount((x * n).astype(int).ravel() * n + (y * n).astype(int).ravel(), minlength=n * n)
    return p_value(counts, np.full(n * n, x.size / n**2))


def test_noise_fills_bins_evenly(stream: np.ndarray) -> None:
    for n in (2, 1000, 4096):
        counts = np.bincount((stream * n).astype(int), minlength=n)
        assert p_value(counts, np.full(n, stream.size / n)) > ALARM


def test_noise_has_the_uniform_distribution_function(stream: np.ndarray) -> None:
    ranks = np.arange(stream.size + 1) / stream.size
    ordered = np.sort(stream)
    distance = max(np.max(ranks[1:] - ordered), np.max(ordered - ranks[:-1]))
    assert 2 * np.exp(-2 * stream.size * distance**2) > ALARM  # Kolmogorov and Smirnov


def test_what_comes_next_does_not_depend_on_what_was(stream: np.ndarray) -> None:
    for lag in (1, 2, 3, 64, 1024):
        before, after = stream[:-lag], stream[lag:]
        assert squares(before, after) > ALARM
        assert abs(np.corrcoef(before, after)[0, 1]) * np.sqrt(before.size) < 5


def test_each_bit_is_set_half_of_the_time_and_by_itself(stream: np.ndarray) -> None:
    words = (stream * 2.0**BITS).astype(np.uint64)
    bits = (words[:, None] >> np.arange(BITS, dtype=np.uint64)) & np.uint64(1)
    signs = bits.astype(np.float32) * 2 - 1
    limit = 5.5 * np.sqrt(stream.size)  # standard deviations
    assert np.abs(signs.sum(axis=0, dtype=np.float64)).max() < limit
    together = signs.T @ signs
    assert np.abs(together[~np.eye(BITS, dtype=bool)]).max() < limit
    one_after_the_other = signs[:-1].T @ signs[1:]
    assert np.abs(one_after_the_other).max() < limit


@pytest.mark.parametrize("axis", range(4), ids=AXES)
def test_neighbours_are_independent(block: np.ndarray, axis: int) -> None:
    apart = np.moveaxis(block, axis, 0)
    for lag in (1, 2, 3):
        before, after = apart[:-lag].ravel(), apart[lag:].ravel()
        assert squares(before, after) > ALARM
        assert squares(before, np.mod(after - before, 1.0)) > ALARM
        assert abs(np.corrcoef(before, after)[0, 1]) * np.sqrt(before.size) < 5


def test_inputs_that_are_exchanged_or_add_up_to_the_same_give_other_noise(block: np.ndarray) -> None:
    assert np.unique(block).size == block.size
    first = block[:, :, 0, :60]
    above = np.triu_indices(60, 1)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        exchanged = np.swapaxes(first, one, other)
        axes = [axis for axis in range(3) if axis not in (one, other)]
        x, y = (np.moveaxis(values, axes[0], 2)[above].ravel() for values in (first, exchanged))
        assert squares(x, y) > ALARM


@given(
    seed=st.integers(0, MASK),
    position=st.integers(0, 1 << 31),
    purpose=st.sampled_from(PURPOSES),
    tokens=st.lists(st.integers(0, 1 << 31), min_size=1, max_size=4),
)
@example(seed=0, position=0, purpose=COUPLED, tokens=[0])
def test_noise_is_what_whole_numbers_give(seed: int, position: int, purpose: int, tokens: list[int]) -> None:
    expected = np.array([reference(seed, position, purpose, token) for token in tokens])
    assert np.array_equal(uniform(seed, position, purpose, np.array(tokens)), expected)
    assert np.allclose(gumbel(seed, position, purpose, np.array(tokens)), -np.log(-np.log(expected)), rtol=1e-12)


GOLDEN_NOISE = [
    (0, 0, COUPLED, 0, 0.6524484863740322),
    (1, 0, COUPLED, 0, 0.7359486385972785),
    (0, 1, COUPLED, 0, 0.13870941014555427),
    (0, 0, ACCEPTANCE, 0, 0.27623358227789463),
    (0, 0, COUPLED, 1, 0.7012121095215252),
    (42, 17, CORRECTION, 151935, 0.10347634780397208),
    (MASK, 4096, PROPOSAL, 32000, 0.13177480811931852),
]


@pytest.mark.parametrize(("seed", "position", "purpose", "token", "expected"), GOLDEN_NOISE)
def test_one_seed_is_one_noise_in_every_version(
    seed: int, position: int, purpose: int, token: int, expected: float
) -> None:
    assert uniform(seed, position, purpose, np.array([token]))[0] == expected


def test_the_noise_of_a_token_does_not_depend_on_the_others_asked_for() -> None:
    alone = [uniform(3, 5, COUPLED, np.array([token]))[0] for token in range(50)]
    assert np.array_equal(uniform(3, 5, COUPLED, np.arange(50)), alone)
    assert np.array_equal(uniform(3, 5, COUPLED, np.arange(50)[::-1]), alone[::-1])


@pytest.mark.parametrize("bits", [0, 2**BITS - 1])
def test_the_interval_is_open(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    monkeypatch.setattr(noise, "_hash", lambda key, tokens: np.full(tokens.shape, bits, dtype=np.uint64))
    assert 0 < uniform(0, 0, COUPLED, np.arange(3))[0] < 1
    assert np.isfinite(gumbel(0, 0, COUPLED, np.arange(3))).all()


def normalized(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


@settings(deadline=None)
@given(
    size=st.sampled_from([1, 2, 100, 4096, 4097, 20_000]),
    scale=st.sampled_from([0.0, 0.01, 1.0, 3.0, 30.0, 1000.0]),
    forbidden=st.sampled_from([0.0, 0.5, 0.99]),
    seed=st.integers(0, MASK),
    position=st.integers(0, 1 << 31),
)
def test_sample_is_the_naive_argmax(size: int, scale: float, forbidden: float, seed: int, position: int) -> None:
    random = np.random.default_rng(seed)
    logits = scale * random.normal(size=size)
    logits[1:][random.random(size - 1) < forbidden] = -np.inf
    log_probs = normalized(logits)
    tokens = random.permutation(3 * size)[:size]
    naive = tokens[np.argmax(log_probs + gumbel(seed, position, COUPLED, tokens))]
    assert sample(seed, position, COUPLED, tokens, log_probs) == naive


def test_rare_tokens_of_a_long_vocabulary_are_sampled_like_the_naive_way() -> None:
    tokens = np.arange(5000)
    log_probs = normalized(np.where(tokens < 5, 9.0, 0.0))  # 9 % of all are not likely
    drawn = [sample(1, position, COUPLED, tokens, log_probs) for position in range(2000)]
    naive = [int(np.argmax(log_probs + gumbel(1, position, COUPLED, tokens))) for position in range(2000)]
    assert drawn == naive
    assert sum(token >= 5 for token in drawn) > 100


@pytest.mark.parametrize(
    ("probabilities", "n"),
    [
        ([0.9, 0.05, 0.03, 0.02], 40_000),
        ([0.25] * 4, 40_000),
        ([0.5, 0.0, 0.3, 0.2], 40_000),
        (np.exp(normalized(2 * np.random.default_rng(0).normal(size=5000))), 5_000),
    ],
    ids=["peaked", "flat", "one forbidden", "long"],
)
@pytest.mark.parametrize("by", ["position", "seed"])
def test_frequencies_are_the_probabilities(probabilities: list[float], n: int, by: str) -> None:
    tokens = np.arange(len(probabilities))
    with np.errstate(divide="ignore"):
        log_probs = np.log(probabilities)
    drawn = [sample(*((0, i) if by == "position" else (i, 0)), COUPLED, tokens, log_probs) for i in range(n)]
    counts = np.bincount(drawn, minlength=len(probabilities))
    assert p_value(counts, n * np.asarray(probabilities)) > ALARM
