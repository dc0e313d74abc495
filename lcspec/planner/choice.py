"""The length of a draft that makes most tokens a second."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple


class Length(NamedTuple):
    """How much of a draft to verify.

    Attributes:
        tokens: draft tokens, 0 where no draft is worth its cost.
        rate: tokens a second that are expected of the pass.
        seconds: that the pass takes, with drafting.
    """

    tokens: int
    rate: float
    seconds: float


def best_length(chances: Sequence[float], seconds: Sequence[float], shortest: int = 0) -> Length:
    """Return how many draft tokens to verify.

    The expected tokens of a pass with k draft tokens are E(k) = 1 + sum over j <= k of a_1 ... a_j, and it takes
    C(k); the best k maximizes E(k) / C(k). (Were the passes' drafts independent of each other, E(k) - r C(k) with
    the average rate r would be right, by the renewal-reward theorem. But the tokens that this draft leaves out have
    to be written next, with what is left of it; replayed recordings prefer the ratio, on every machine tried.)

    Args:
        chances: n of them: a_j, that draft token j is accepted when those before it were.
        seconds: n + 1 or more: C(k), of drafting k tokens and a pass over them and the token before.
        shortest: fewest tokens of the draft.
    """
    rates = [tokens / taken for tokens, taken in zip(_expected(chances, 1.0), seconds, strict=False)]
    rate = max(rates[shortest:])
    best = rates.index(rate, shortest)
    return Length(best, rate, seconds[best])


def worth(chances: Sequence[float], seconds: Sequence[float], rate: float) -> int:
    """Return how many more draft tokens bring at least `rate` tokens for each second that they take.

    Args:
        chances: n of them, as of `best_length`.
        seconds: n + 1: of no more token, one more, and so on.
        rate: tokens a second that the time is worth.
    """
    gains = [tokens - rate * taken for tokens, taken in zip(_expected(chances, 0.0), seconds, strict=True)]
    return gains.index(max(gains))


def _expected(chances: Sequence[float], tokens: float) -> Iterator[float]:
    """Yield the tokens that are expected of no draft token, which are `tokens`, of one, and so on."""
    return accumulate(accumulate(chances, mul), initial=tokens)
