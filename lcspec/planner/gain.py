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


def expected_gain(target: CostCurve, cost: float, acceptance: Sequence[float]) -> Gain:
    """Return what drafts bring that have one token or more.

    Args:
        target: what the target's passes cost.
        cost: of a draft token, in the target's passes over one token.
        acceptance: how likely the first, second, ... token of a draft is to be accepted, where those before it were;
            the last counts for all behind it, too.
    """
    chances = np.array([acceptance[min(i, len(acceptance) - 1)] for i in range(LONGEST)])
    single = target.seconds(1)
    seconds = target.padded()[0][1 : LONGEST + 2] + cost * single * np.arange(LONGEST + 1)
    best = best_length(chances, seconds, shortest=1)
    return Gain(best.rate * single, best.tokens)
