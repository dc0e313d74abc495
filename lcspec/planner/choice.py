"""The length of a draft that makes most tokens a second."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Length:
    """How much of a draft to verify.

    Attributes:
        tokens: draft tokens, 0 where no draft is worth its cost.
        rate: tokens a second that are expected of the pass.
        seconds: that the pass takes, with drafting.
    """

    tokens: int
    rate: float
    seconds: float


def best_length(chances: NDArray[np.float64], seconds: NDArray[np.float64], shortest: int = 0) -> Length:
    """Return how many draft tokens to verify.

    The expected tokens of a pass with k draft tokens are E(k) = 1 + sum over j <= k of a_1 ... a_j, and it takes
    C(k); the best k maximizes E(k) / C(k). (Were the passes' drafts independent of each other, E(k) - r C(k) with
    the average rate r would be right, by the renewal-reward theorem. But the tokens that this draft leaves out have
    to be written next, with what is left of it; replayed recordings prefer the ratio, on every machine tried.)

    Args:
        chances: shape (n,): a_j, that draft token j is accepted when those before it were.
        seconds: shape (n + 1,): C(k), of drafting k tokens and a pass over them and the token before.
        shortest: fewest tokens of the draft.
    """
    rates = np.concatenate(([1.0], 1 + np.cumprod(chances).cumsum())) / seconds
    best = shortest + int(rates[shortest:].argmax())
    return Length(best, float(rates[best]), float(seconds[best]))


def worth(chances: NDArray[np.float64], seconds: NDArray[np.float64], rate: float) -> int:
    """Return how many more draft tokens bring at least `rate` tokens for each second that they take.

    Args:
        chances: shape (n,), as of `best_length`.
        seconds: shape (n + 1,): of no more token, one more, and so on.
        rate: tokens a second that the time is worth.
    """
    gains = np.concatenate(([0.0], np.cumprod(chances).cumsum())) - rate * (seconds - seconds[0])
    return int(gains.argmax())
