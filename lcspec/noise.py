"""Randomness as a function: of a seed, a position and a token, and of nothing that happened before.

A counter-based generator: the counter is hashed with the finalizer of SplitMix64 (Steele, Lea and Flood 2014,
"Fast Splittable Pseudorandom Number Generators"; constants of Stafford's variant 13). One seed gives one noise,
so a text sampled with it does not depend on how, or in what order, its tokens were evaluated.
"""

import math

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_MANY = 4096  # tokens from which on fewer logarithms are worth a search
_LIKELY = 6.0  # of a log-probability below the largest

COUPLED, ACCEPTANCE, CORRECTION, PROPOSAL = range(4)
"""What the noise is for; each purpose has noise of its own."""


def uniform(seed: int, position: int, purpose: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number from the open interval (0, 1) for each of `tokens`, any array of ids."""
    return _to_unit(_hash(_key(seed, position, purpose), tokens))


def gumbel(seed: int, position: int, purpose: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return noise of the standard Gumbel distribution for each of `tokens`.

    The token with the largest sum of log-probability and noise is a sample (the Gumbel-max trick).
    """
    return _to_gumbel(_hash(_key(seed, position, purpose), tokens))


def sample(seed: int, position: int, purpose: int, tokens: NDArray[np.int64], log_probs: NDArray[np.float64]) -> int:
    """Return the one of `tokens` whose log-probability and noise have the largest sum.

    Of a long vocabulary only the tokens that can still win have their logarithms taken, which changes nothing
    but the time.
    """
    if tokens.size <= _MANY:
        return int(tokens[np.argmax(log_probs + gumbel(seed, position, purpose, tokens))])
    hashes = _hash(_key(seed, position, purpose), tokens)
    floor = float(log_probs.max()) - _LIKELY
    likely = log_probs >= floor
    best = float(np.max(log_probs[likely] + _to_gumbel(hashes[likely])))
    enough = np.uint64(math.exp(-math.exp(floor - best)) * 2.0**52 * (1 - 1e-9))  # else an unlikely one can't win
    chosen = np.flatnonzero(likely | (hashes >= enough))
    scores = log_probs[chosen] + _to_gumbel(hashes[chosen])
    return int(tokens[chosen[np.argmax(scores)]])


def _key(seed: int, position: int, purpose: int) -> int:
    return _mix(_mix(_mix(seed & _MASK) + position * _GOLDEN) + (purpose + 1) * _GOLDEN)


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _hash(key: int, tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return 52 random bits for each token."""
    x = tokens.astype(np.uint64)
    x += np.uint64(1)
    x *= np.uint64(_GOLDEN)
    x += np.uint64(key)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    x >>= np.uint64(12)
    return x


def _to_unit(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    return (hashes.astype(np.float64) + 0.5) * 2.0**-52  # of 53 bits, the largest would round to 1


def _to_gumbel(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    noise: NDArray[np.float64] = -np.log(-np.log(_to_unit(hashes)))
    return noise
