"""What a draft model is expected to bring, and what it costs."""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from lcspec.planner.acceptance import AcceptanceTable, RequestChance
from lcspec.planner.choice import Length, best_length, worth
from lcspec.planner.cost import WIDEST, CostCurve

LONGEST = 16
"""Tokens of the longest draft. A model that is further behind than that has to catch up first."""

_LOOK_AHEAD = 4  # tokens: a pass over a few more may be no dearer
_LATEST = 16  # texts whose lengths are remembered
_ENOUGH = 4  # of them, to go by
_SHORT = 25  # per cent of texts are no longer than a short one
_CLEARLY = 2.0  # times what it costs
_SEEN = 6.0  # of the cost, what has to be missed before


def break_even(target: CostCurve, draft: CostCurve) -> float | None:
    """Return how likely a draft model's tokens have to be right for its drafts to pay, in steps of 0.01.

    None where they don't pay at 0.99.
    """
    costs = (target.padded()[0][1 : LONGEST + 2] + draft.seconds(1) * np.arange(LONGEST + 1)).tolist()
    paying = (percent / 100 for percent in range(1, 100) if best_length([percent / 100] * LONGEST, costs).tokens)
    return next(paying, None)


class DraftModel:
    """Plans the drafts of a draft model, whose every token costs an evaluation.

    Whether to draft at all is decided by how often its tokens were right so far; the draft then ends as soon as
    the next token, given how sure the model was of those before, is not expected to pay. A model that has not
    evaluated the prompt is only made to when the time that it would have saved so far has come to what that
    costs: as with skis that are rented until the rents come to their price, no other rule without knowledge of the
    future can lose less against the best decision (Karlin et al. 1988, "Competitive snoopy caching"). It is made to
    at once where even a text that is short among the latest would save clearly more.

    Args:
        table: how likely its tokens are to be accepted, by kind.
        usual: how likely a token is to be accepted of which nothing is known yet.
        costs: what its passes cost.
        ratio: what its passes cost in proportion to the target's, before any was seen.
    """

    def __init__(self, table: AcceptanceTable, usual: float, costs: CostCurve, ratio: float) -> None:
        self.costs = costs
        self._table = table
        self._usual = RequestChance(usual)
        self._ratio = ratio
        self._lengths: deque[int] = deque(maxlen=_LATEST)
        self._invested = 0.0  # seconds of the last draft that went into catching up
        self._missed = 0.0  # seconds that it would have saved since it fell behind
        self._rate = 0.0  # tokens a second that the draft in the making is expected to bring

    def begin(self, last: int = 0) -> None:
        """Start a request; the one before had so many tokens."""
        if last:
            self._lengths.append(last)
        self._table.begin()
        self._usual.begin()
        self._missed = self._invested = 0.0

    @property
    def chance(self) -> float:
        """How likely its next token is to be accepted, before that is known."""
        return self._usual.chance

    def seconds(self, width: int, depth: int, target: CostCurve) -> float:
        """Return the seconds of a pass of the draft model."""
        return self.costs.seconds(width, depth) if self.costs.has_scale else self._ratio * target.seconds(width, depth)

    def length(self, target: CostCurve, depth: int, limit: int, shortest: int = 0) -> Length:
        """Return how long a draft should be, of a model that has not to catch up."""
        longest = min(limit, LONGEST)
        drafting = self.seconds(1, depth, target) * np.arange(longest + 1)
        costs = (target.padded(depth)[0][1 : longest + 2] + drafting).tolist()
        return best_length([self.chance] * longest, costs, shortest)

    def catching_up(self, target: CostCurve, depth: int, behind: int, moving: float = 0.0) -> float:
        """Return the seconds of evaluating what the model has not seen, and of moving cells of the target's."""
        return moving + (self.seconds(behind, depth, target) if behind > LONGEST else 0.0)

    def is_worth(self, length: Length, other: Length, catching_up: float, emitted: int, rest: int | None) -> bool:
        """Tell whether to draft with the model rather than otherwise, once per pass.

        Args:
            length: what the model's draft is expected to bring.
            other: what is expected without the model.
            catching_up: seconds that come before.
            emitted: tokens of the text so far.
            rest: tokens that the text may still have; None where that is not known.
        """
        if length.rate <= other.rate:
            return False
        saving = 1 / other.rate - 1 / length.rate  # for one token; a pass emits at least one
        self._missed += saving
        if rest is not None and catching_up > rest * saving:
            return False
        expected = (self._short_text() - emitted) * saving / _CLEARLY if self._missed > catching_up / _SEEN else 0.0
        if catching_up > max(self._missed, expected):
            return False
        self._missed = 0.0
        self._rate = length.rate
        return True

    def _short_text(self) -> float:
        """Return the tokens that at least most texts have."""
        return float(np.percentile(self._lengths, _SHORT)) if len(self._lengths) >= _ENOUGH else 0.0

    def try_out(self, rate: float) -> None:
        """Make the next draft as if it were expected to bring `rate` tokens a second."""
        self._rate = rate

    def goes_on(self, kinds: Sequence[str], target: CostCurve, depth: int, limit: int) -> bool:
        """Tell whether a draft's next token is expected to bring more than it costs."""
        more = min(_LOOK_AHEAD, limit - len(kinds), LONGEST - len(kinds))
        if more <= 0:
            return False
        passes = target.padded(depth)[0][len(kinds) + 1 : len(kinds) + more + 2]
        costs = (passes + np.arange(more + 1) * self.seconds(1, depth, target)).tolist()
        chances = [self.chance] * more
        chances[0] *= math.prod(map(self._table.chance, kinds))
        return worth(chances, costs, self._rate) > 0

    def cut(self, kinds: Sequence[str], target: CostCurve, depth: int) -> int:
        """Return how many tokens of a finished draft are worth verifying."""
        chances = [self._table.chance(kind) for kind in kinds]
        return worth(chances, target.padded(depth)[0][1 : len(kinds) + 2].tolist(), self._rate)

    def chance_of(self, kind: str) -> float:
        """Return how likely a token of a kind is to be accepted."""
        return self._table.chance(kind)

    def rate_behind(self, chance: float, target: CostCurve, depth: int, limit: int) -> float:
        """Return the tokens a second that are expected from here on of a draft whose first token has this chance."""
        longest = min(limit, LONGEST)
        chances = [chance] + [self.chance] * (longest - 1)
        drafting = self.seconds(1, depth, target) * np.maximum(np.arange(longest + 1) - 1, 0)
        return best_length(chances, (target.padded(depth)[0][1 : longest + 2] + drafting).tolist(), shortest=1).rate

    def take_invested(self) -> float:
        """Return the seconds of the last draft that went into catching up, once."""
        invested, self._invested = self._invested, 0.0
        return invested

    def record_draft(self, kinds: Sequence[str], accepted: int) -> None:
        """Learn how many tokens of a draft were right."""
        self._table.record(kinds, accepted)
        self._usual.record(len(kinds), accepted)

    def record_drafting(
        self, behind: int, drafted: int, target: CostCurve, depth: int, seconds: float, moving: float = 0.0
    ) -> None:
        """Learn what it took to evaluate `behind` tokens, and then a token for each but the last that was drafted.

        `moving` of the seconds went into moving cells of the target's.
        """
        seconds -= moving
        later = (drafted - 1) * self.seconds(1, depth, target)
        self._invested = moving + (max(0.0, seconds - later) if behind > LONGEST else 0.0)
        if behind <= 2:
            self.costs.record(1, depth, seconds / (drafted + 0.5 * (behind - 1)))
        elif behind <= WIDEST:
            self.costs.record(behind, depth, max(seconds - later, 1e-6))
