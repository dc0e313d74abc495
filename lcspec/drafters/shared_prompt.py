"""The keys and values of a target's blocks, for a draft model that is made of these blocks."""

import logging
import statistics
import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from lcspec.errors import EvaluationError
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.llama import Context, Header, State, take_blocks

_log = logging.getLogger(__name__)

_RECENT = 5
_PER_CELL = 2e-5  # seconds, before any was moved
_FEW = 64  # cells; moving fewer says little of what a cell takes


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
    """

    def __init__(self, n_blocks: int, blocks: Sequence[int]) -> None:
        self._n_blocks, self._blocks = n_blocks, tuple(blocks)
        self.source: Source | None = None
        """Where the target evaluates; None where nothing can be moved."""
        self._per_cell = deque([_PER_CELL], maxlen=_RECENT)

    @classmethod
    def between(cls, target: Header, draft: Header) -> "SharedPrompt | None":
        """Return what moves cells from a target to a draft model; None where that is not made of the target's blocks.

        Raises:
            ModelError: the target can't be read.
        """
        provenance, n_blocks = Provenance.of(draft), target.of_architecture("block_count")
        if provenance is None or not isinstance(n_blocks, int) or provenance.target != target_digest(target):
            return None
        return cls(n_blocks, provenance.layers or range(n_blocks))

    def seconds(self, n_cells: int) -> float:
        """Return about what moving so many cells takes."""
        return statistics.median(self._per_cell) * max(n_cells, _FEW)

    def has(self, n_cells: int) -> bool:
        """Tell whether the target's cache has so many cells and can be moved from."""
        return self.source is not None and len(self.source.tokens) == n_cells

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
