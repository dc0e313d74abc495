"""What sets of blocks cost, and which of them would bring most."""

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lcspec.costs import time_pass
from lcspec.errors import FileError
from lcspec.gguf_edit import keep_layers, n_layers, read_gguf, write_gguf
from lcspec.layer_search.scores import Score
from lcspec.layer_search.search import Found
from lcspec.llama import Context, Header, Model, read_header
from lcspec.planner import CostCurve, Gain, expected_gain

_DEPTH = 64  # tokens of context
_ROUNDS = 9


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


def frontier_of(found: Found, blocks: int, costs: CutCosts, target: CostCurve) -> Frontier:
    """Return what a search found, by what it would bring under a cost curve of the target."""
    points = []
    for count, (skipped, score) in sorted(found.best.items()):
        kept = tuple(block for block in range(blocks) if block not in skipped)
        if count > 0 and kept:
            cost = costs.of(len(kept))
            points.append(Point(kept, score, cost, expected_gain(target, cost, [score.agreement])))
    return Frontier(points, max(points, key=lambda point: point.gain.speed))


def cut_costs(target: Header, threads: int, repack: bool, folder: Path) -> CutCosts:
    """Measure what blocks cost: the target and a copy with half of its blocks are timed in turn.

    Raises:
        FileError: there is no room for the copy.
    """
    gguf = read_gguf(target)
    blocks = n_layers(gguf)
    half = list(range(0, blocks, 2))
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            copies = stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=".search-"))
            path = Path(copies) / "half.gguf"
            with path.open("wb") as file:
                write_gguf(file, keep_layers(gguf, half))
        except OSError as error:
            raise FileError(f"a copy of half of the model can't be written to {folder}: {error.strerror}") from error
        models = [
            stack.enter_context(Model(target, repack=repack)),
            stack.enter_context(Model(read_header(path), repack=repack)),
        ]
        contexts = [stack.enter_context(Context(model, 2 * _DEPTH, threads=threads)) for model in models]
        for context in contexts:
            context.prefill([0] * _DEPTH)
            time_pass(context, 1)
        shares = []
        for _ in range(_ROUNDS):
            whole, cut = (time_pass(context, 1) for context in contexts)
            shares.append(cut / whole)
    share = min(statistics.median(shares), 1.0)
    block = (1 - share) / (blocks - len(half)) if blocks > len(half) else 0.0
    return CutCosts(1 - block * blocks, block)
