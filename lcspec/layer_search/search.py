"""The search for the blocks that a draft can do without.

Sets of n blocks are too many to try. Blocks are left out one after the other, each time the one that is missed least
(backward elimination, with a beam of two sets), trying those first that were missed little before. What is left of the
budget goes into exchanging blocks of the sets that matter, at random: where an exchange is better, it stays. A set of
scores that is known from an earlier run costs nothing but its place in the budget, so that a search that was ended
goes on as if it had not been.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lcspec.layer_search.scores import Score

_BEAM = 2  # sets from which blocks are left out next, where the budget allows
_CHILDREN = 4  # sets that are tried of each of these, or fewer where the budget does not allow it
_ELIMINATING = 0.7  # of the budget
_POOR = 0.1  # agreement from which on leaving out more is pointless
_LEVELS = 5  # numbers of blocks whose sets are exchanged


@dataclass
class Budget:
    """What a search may take: so many sets tried, or so many seconds.

    Attributes:
        evaluations: sets; None where the time counts.
        seconds: seconds; None where sets count.
    """

    evaluations: int | None
    seconds: float | None = None
    _started: float = field(default_factory=time.monotonic)

    def share(self, evaluations: int) -> float:
        """Return how much of it is used up when so many sets were tried."""
        if self.evaluations is not None:
            return evaluations / self.evaluations
        assert self.seconds is not None
        return (time.monotonic() - self._started) / self.seconds


@dataclass
class Found:
    """The best sets that were found.

    Attributes:
        best: by the number of blocks left out, which, and their score.
        tried: sets that were scored.
    """

    best: dict[int, tuple[frozenset[int], Score]] = field(default_factory=dict)
    tried: int = 0

    def record(self, skipped: frozenset[int], score: Score) -> None:
        """Take note of a score."""
        known = self.best.get(len(skipped))
        if known is None or score.value > known[1].value:
            self.best[len(skipped)] = skipped, score


def search(
    blocks: int,
    score: Callable[[frozenset[int]], Score],
    *,
    known: dict[frozenset[int], Score],
    budget: Budget,
    seed: int = 0,
    wanted: int | None = None,
    worth: Callable[[int, Score], float] = lambda skipped, score: score.agreement,
    tell: Callable[[float, Found], None] = lambda share, found: None,
) -> Found:
    """Search for the blocks that are missed least.

    Args:
        blocks: how many the target has.
        score: scores the target without a set of blocks.
        known: scores of an earlier run; new ones are added.
        budget: what it may take.
        seed: of the exchanges.
        wanted: how many blocks to leave out; None where that is open.
        worth: how much a set of so many blocks left out with this score is worth; the best numbers are refined.
        tell: told, after each set, the share of the budget that is used up, and what was found.
    """
    return _Search(blocks, score, known, budget, random.Random(seed), wanted, worth, tell).run()


class _Exhausted(Exception):
    """The budget is used up."""


class _Search:
    def __init__(
        self,
        blocks: int,
        score: Callable[[frozenset[int]], Score],
        known: dict[frozenset[int], Score],
        budget: Budget,
        chance: random.Random,
        wanted: int | None,
        worth: Callable[[int, Score], float],
        tell: Callable[[float, Found], None],
    ) -> None:
        self._blocks = blocks
        self._score = score
        self._known = known
        self._budget = budget
        self._chance = chance
        self._wanted = wanted
        self._most = blocks - 1 if wanted is None else wanted
        self._worth = worth
        self._tell = tell
        self._found = Found()
        self._tried: dict[frozenset[int], Score] = {}
        self._missed: dict[int, float] = {}

    def run(self) -> Found:
        with suppress(_Exhausted):
            self._eliminate()
            self._exchange()
        if self._wanted is not None and self._wanted not in self._found.best:
            self._fill_up(self._wanted)
        return self._found

    def _fill_up(self, wanted: int) -> None:
        """Leave out, of all that the budget did not reach, the blocks that were missed least when they were tried."""
        skipped = self._found.best[max(self._found.best)][0] if self._found.best else frozenset[int]()
        rest = sorted(set(range(self._blocks)) - skipped, key=lambda block: (self._missed.get(block, 1.0), block))
        skipped |= frozenset(rest[: wanted - len(skipped)])
        self._known.setdefault(skipped, self._score(skipped))
        self._found.record(skipped, self._known[skipped])

    def _try(self, skipped: frozenset[int]) -> Score:
        if skipped in self._tried:
            return self._tried[skipped]
        if self._budget.share(self._found.tried) >= 1:
            raise _Exhausted
        if skipped not in self._known:
            self._known[skipped] = self._score(skipped)
        score = self._tried[skipped] = self._known[skipped]
        self._found.tried += 1
        self._found.record(skipped, score)
        self._tell(min(1.0, self._budget.share(self._found.tried)), self._found)
        return score

    def _eliminate(self) -> None:
        """Leave out one more and one more, until little is right or most of the budget is used up."""
        beam = [frozenset[int]()]
        whole = self._try(beam[0])
        for block in range(self._blocks):
            self._missed[block] = whole.value - self._try(frozenset([block])).value
        beam = [frozenset([block]) for block in range(self._blocks)]
        steps = self._most - 1 if self._wanted is not None else self._blocks // 2
        for step in range(1, self._most):
            beam = sorted(beam, key=self._value)
            used = self._budget.share(self._found.tried)
            if self._wanted is None and (self._tried[beam[0]].agreement < _POOR or used > _ELIMINATING):
                return
            sets = (_ELIMINATING - used) / (used / self._found.tried) / max(steps - step + 1, 1)
            width = _BEAM if sets >= _BEAM * (_CHILDREN - 1) else 1
            number = max(1, min(_CHILDREN, int(sets / width)))
            beam = list({child for parent in beam[:width] for child in self._children(parent, number)})

    def _children(self, parent: frozenset[int], number: int) -> Iterator[frozenset[int]]:
        """Try sets with one more block left out, at least so many, those first that were missed little before."""
        before = self._tried[parent].value
        least = float("inf")
        rest = sorted(set(range(self._blocks)) - parent, key=lambda block: (self._missed[block], block))
        for tried, block in enumerate(rest):
            if tried >= number and self._missed[block] >= least:
                return
            child = parent | {block}
            missed = before - self._try(child).value
            self._missed[block] = missed
            least = min(least, missed)
            yield child

    def _value(self, skipped: frozenset[int]) -> tuple[float, list[int]]:
        return -self._tried[skipped].value, sorted(skipped)

    def _exchange(self) -> None:
        """Exchange a block for another in the sets that are worth most, and go on from those to larger ones."""
        while True:
            counts = self._most_wanted()
            if not counts:
                return
            count = self._chance.choice(counts)
            skipped, score = self._found.best[count]
            untried = [other for other in self._exchanged(skipped) if other not in self._tried]
            if not untried:
                if all(other in self._tried for one in counts for other in self._exchanged(self._found.best[one][0])):
                    return
                continue
            if self._try(self._chance.choice(untried[: 2 * _CHILDREN])).value > score.value:
                self._follow(count)

    def _follow(self, count: int) -> None:
        """Try the better set with one more block left out, as the next larger set was: it may be better there, too."""
        skipped = self._found.best[count][0]
        larger = self._found.best.get(count + 1)
        if larger is not None and len(extra := larger[0] - skipped) > 0:
            for block in sorted(extra):
                self._try(skipped | {block})

    def _exchanged(self, skipped: frozenset[int]) -> list[frozenset[int]]:
        """Return the sets with one block exchanged, the more promising first."""
        kept = set(range(self._blocks)) - skipped
        pairs = sorted(
            ((self._missed[out] - self._missed[back], out, back) for out in kept for back in skipped),
        )
        return [skipped - {back} | {out} for _, out, back in pairs]

    def _most_wanted(self) -> list[int]:
        """Return how many blocks to leave out that seems worth most."""
        best: Mapping[int, tuple[frozenset[int], Score]] = self._found.best
        counts = [count for count in best if 0 < count < self._blocks and count <= self._most]
        return sorted(counts, key=lambda count: -self._worth(count, best[count][1]))[:_LEVELS]
