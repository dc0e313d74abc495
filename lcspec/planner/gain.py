"""What a draft model is expected to bring, by what its tokens cost and how often they are right."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lcspec.planner.choice import best_length
from lcspec.planner.cost import CostCurve
from lcspec.planner.draft_model import LONGEST


@dataclass(frozen=True)
class Gain:
    """What drafts of the best length bring.

    Attributes:
        speed: tokens a second, in those of plain decoding.
        tokens: of a draft.
    """

    speed: float
    tokens: int

    @property
    def pays(self) -> bool:
        """Whether it is faster than plain decoding."""
        return self.speed > 1


_PROMPT, _TEXT = 100, 128  # tokens of a usual request
_TWICE = 2  # as a draft model is given a prompt when it has missed as much as that takes
_BATCH = 64  # tokens that are evaluated together


def expected_gain(target: CostCurve, cost: float, acceptance: Sequence[float], reading: float = 0.0) -> Gain:
    """Return what drafts bring that have one token or more.

    Args:
        target: what the target's passes cost.
        cost: of a draft token, in the target's passes over one token.
        acceptance: how likely the first, second, ... token of a draft is to be accepted, where those before it were;
            the last counts for all behind it, too.
        reading: of a prompt's token, in the same unit, where it has to be evaluated for the drafts, too. The gain is
            that of a text of 128 tokens behind a prompt of 100.
    """
    chances = [acceptance[min(i, len(acceptance) - 1)] for i in range(LONGEST)]
    single = target.seconds(1)
    seconds = target.padded()[0][1 : LONGEST + 2] + cost * single * np.arange(LONGEST + 1)
    best = best_length(chances, seconds.tolist(), shortest=1)
    speed = best.rate * single
    return Gain(_TEXT / (_TEXT / speed + _TWICE * _PROMPT * reading), best.tokens)


def reading_cost(draft: CostCurve, single: float) -> float:
    """Return what evaluating a prompt's token takes, in passes that take `single`."""
    return draft.seconds(_BATCH) / _BATCH / single
