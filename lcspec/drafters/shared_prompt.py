"""The keys and values of a target's blocks, for a draft model that is made of these blocks."""

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from lcspec.errors import EvaluationError
from lcspec.llama import Context, State, take_blocks

_log = logging.getLogger(__name__)

_RECENT = 5
_PER_CELL = 2e-5  # seconds, before any was moved
_FEW = 64  # cells; moving fewer says little of what a cell takes
_FAR_BEHIND = 16  # tokens that are surely dearer to evaluate, where it is not known what that takes


class Source(Protocol):
    """Where the target evaluates."""

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens that the cache holds."""

    def save(self) -> State:
        """Return a copy of the cache."""


class SharedPrompt:
    """Moves the cells of a target's blocks to a draft model that has some of these blocks.

    What a block's keys and values are follows from the blocks before it. So those of the target differ from what the
    draft model would compute itself, and are the better ones: its blocks were trained behind all the others. And a
    copy is much cheaper than an evaluation. What can't be moved is left to evaluate.

    Args:
        n_blocks: blocks of the target.
        blocks: those that the draft model has, in order.
        evaluating: gives the seconds that the draft model needs for so many tokens behind so many; None where that is
            not known.
    """

    def __init__(
        self, n_blocks: int, blocks: Sequence[int], evaluating: Callable[[int, int], float | None] = lambda *_: None
    ) -> None:
        self.source: Source | None = None
        """The target's cache; None while there is none to move from."""
        self._n_blocks, self._blocks = n_blocks, tuple(blocks)
        self._evaluating = evaluating
        self._per_cell = deque([_PER_CELL], maxlen=_RECENT)

    def seconds(self, n_cells: int) -> float:
        """Return about what moving so many cells takes."""
        return statistics.median(self._per_cell) * max(n_cells, _FEW)

    def pays(self, n_cells: int, behind: int) -> bool:
        """Tell whether to move the target's cells rather than evaluate the last `behind` tokens but one.

        Args:
            n_cells: committed tokens but the last, whose cells the target has.
            behind: tokens that the draft model has not evaluated, with the last.
        """
        if self.source is None or behind < 2 or len(self.source.tokens) != n_cells:
            return False
        depth = n_cells + 1 - behind
        evaluating, alone = self._evaluating(behind, depth), self._evaluating(1, n_cells)
        if evaluating is None or alone is None:
            return behind > _FAR_BEHIND
        return self.seconds(n_cells) + alone < evaluating

    def move(self, draft: Context, tokens: Sequence[int]) -> float:
        """Replace the draft model's cells by the target's, and return the seconds that it took.

        Where that fails, nothing is moved any more, and the draft model's cache may be empty.

        Args:
            draft: where the draft model evaluates.
            tokens: those whose cells the target is known to have.
        """
        assert self.source is not None
        started = time.perf_counter()
        try:
            state = self.source.save()
            if state.tokens != tuple(tokens):
                raise EvaluationError("the target's cache holds another text")
            draft.restore(take_blocks(state, self._n_blocks, self._blocks))
        except (EvaluationError, MemoryError) as error:
            _log.warning("the draft model evaluates prompts itself: %s", error)
            self.source = None
            return time.perf_counter() - started
        seconds = time.perf_counter() - started
        if len(tokens) >= _FEW:
            self._per_cell.append(seconds / len(tokens))
        return seconds

    def works(self, target: Context, draft: Context) -> bool:
        """Try it out on two empty caches, and tell whether cells can be moved."""
        tokens = [0] * 2
        self.source = target
        try:
            target.prefill(tokens)
            self.move(draft, tokens)
            return self.source is not None
        finally:
            self.source = None
            target.clear()
            draft.clear()
