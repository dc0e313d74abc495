"""How likely the target found the tokens that it emitted, and which others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenLogprob:
    """A token's log-probability by the target's own logits, before any sampling parameter.

    Attributes:
        token: its id.
        logprob: natural logarithm of its probability.
        top: the likeliest tokens and their log-probabilities, the likeliest first.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


Scorer: TypeAlias = Callable[[NDArray[np.float32], Sequence[int]], tuple[TokenLogprob, ...]]
"""Logits of shape (n, n_vocab) and the n tokens that were emitted for them to their log-probabilities."""


def scorer(n_top: int) -> Scorer:
    """Return what scores emitted tokens and names the `n_top` likeliest at each position."""

    def score(logits: NDArray[np.float32], tokens: Sequence[int]) -> tuple[TokenLogprob, ...]:
        return tuple(_score(row, token, n_top) for row, token in zip(logits, tokens, strict=True))

    return score


def no_scores(logits: NDArray[np.float32], tokens: Sequence[int]) -> tuple[TokenLogprob, ...]:
    """Score nothing."""
    return ()


def _score(row: NDArray[np.float32], token: int, n_top: int) -> TokenLogprob:
    highest = float(row.max())
    log_sum = highest + math.log(float(np.exp(row - np.float32(highest)).sum(dtype=np.float64)))
    top = tuple((int(one), float(row[one]) - log_sum) for one in _largest(row, min(n_top, row.size)))
    return TokenLogprob(token, float(row[token]) - log_sum, top)


def _largest(row: NDArray[np.float32], n: int) -> NDArray[np.int64]:
    """Return the places of the `n` largest values, the largest first; of equal ones the first counts."""
    if n == 0:
        return np.empty(0, dtype=np.int64)
    candidates = np.flatnonzero(row >= np.partition(row, row.size - n)[row.size - n])
    return candidates[np.argsort(-row[candidates], kind="stable")[:n]]
