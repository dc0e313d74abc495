"""What sets of blocks cost, and which of them would bring most."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from lcspec.costs import cost_ratio
from lcspec.errors import PromptError
from lcspec.exactness import LoadOptions, measurements_of
from lcspec.gguf_edit import n_layers, read_gguf
from lcspec.layer_search.copies import cut_copy
from lcspec.layer_search.scores import Score
from lcspec.layer_search.search import Found
from lcspec.llama import Header, Model
from lcspec.planner import CostCurve, Gain, expected_gain

_KIND = "cut-costs"


@dataclass(frozen=True)
class CutCosts:
    """What a token of a target without some of its blocks costs, in passes of the whole target over one token.

    Attributes:
        fixed: all but the blocks.
        block: a block.
    """

    fixed: float
    block: float

    def of(self, kept: int) -> float:
        """Return what it costs with so many blocks."""
        return self.fixed + kept * self.block


@dataclass(frozen=True)
class Point:
    """The best blocks of a number.

    Attributes:
        kept: the blocks.
        score: how well they foretell the target.
        cost: of a token, in the target's passes over one.
        gain: what drafts of theirs would bring.
    """

    kept: tuple[int, ...]
    score: Score
    cost: float
    gain: Gain


@dataclass(frozen=True)
class Frontier:
    """The best sets by number of blocks, the largest first, and the one that brings most."""

    points: Sequence[Point]
    best: Point

    def of(self, count: int) -> Point:
        """Return the best set of so many blocks."""
        return next(point for point in self.points if len(point.kept) == count)


def frontier_of(found: Found, blocks: int, costs: CutCosts, target: CostCurve) -> Frontier:
    """Return what a search found, by what it would bring under a cost curve of the target.

    Raises:
        PromptError: it found nothing.
    """
    points = []
    for count, (skipped, score) in sorted(found.best.items()):
        kept = tuple(block for block in range(blocks) if block not in skipped)
        if count > 0 and kept:
            cost = costs.of(len(kept))
            points.append(Point(kept, score, cost, expected_gain(target, cost, [score.agreement])))
    if not points:
        raise PromptError("the budget is too small to leave out a single block: give more sets, or more time")
    return Frontier(points, max(points, key=lambda point: point.gain.speed))


def cut_costs(target: Header, options: LoadOptions, folder: Path) -> CutCosts:
    """Measure what blocks cost, once: the target and a copy with half of its blocks are timed in turn.

    Raises:
        FileError: there is no room for the copy.
    """
    measurements = measurements_of(target, options)
    with suppress(TypeError, ValueError):
        fixed, block = measurements.recall(_KIND)
        return CutCosts(float(fixed), float(block))
    costs = _measured(target, options, folder)
    measurements.keep(_KIND, [costs.fixed, costs.block])
    return costs


def _measured(target: Header, options: LoadOptions, folder: Path) -> CutCosts:
    gguf = read_gguf(target)
    blocks = n_layers(gguf)
    half = list(range(0, blocks, 2))
    with ExitStack() as stack:
        copy = stack.enter_context(cut_copy(gguf, half, folder))
        whole = stack.enter_context(Model(target, repack=options.repack))
        cut = stack.enter_context(Model(copy, repack=options.repack))
        share = min(cost_ratio(whole, cut, options.threads), 1.0)
    block = (1 - share) / (blocks - len(half)) if blocks > len(half) else 0.0
    return CutCosts(1 - block * blocks, block)
