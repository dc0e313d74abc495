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
_FEW = 16  # cells; moving fewer takes next to nothing, and says little of what a cell takes


class Source(Protocol):
    """Where the target evaluates."""

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens that the cache holds."""

    def save(self, start: int = 0) -> State:
        """Return a copy of the cache, from the token `start` on."""


class SharedPrompt:
    """Moves the cells of a target's blocks to a draft model that has some of these blocks.

    What a block's keys and values are follows from the blocks before it. So those of the target differ from what the
    draft model would compute itself, and are the better ones: its blocks were trained behind all the others. (As in
    Zhang et al. 2023, "Draft & Verify", where a model drafts without some of its blocks.) And a copy is much cheaper
    than an evaluation. What can't be moved is left to evaluate.

    Args:
        n_blocks: blocks of the target.
        blocks: those that the draft model has, in order.
    """

    def __init__(self, n_blocks: int, blocks: Sequence[int]) -> None:
        self._n_blocks, self._blocks = n_blocks, tuple(blocks)
        self.source: Source | None = None
        """Where the target evaluates; None where nothing can be moved."""
        self._n_moved = 0  # leading cells of the draft model's cache that are the target's
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

    def has(self, n_cells: int) -> bool:
        """Tell whether the target's cache has so many cells and can be moved from."""
        return self.source is not None and len(self.source.tokens) == n_cells > 0

    def seconds(self, n_cells: int, agreed: int) -> float:
        """Return about what moving takes until the draft model has `n_cells`; 0 for what is no longer than a draft.

        Args:
            n_cells: cells of the target.
            agreed: leading cells of the draft model's cache that hold the same tokens.
        """
        n = n_cells - min(self._n_moved, agreed)
        return statistics.median(self._per_cell) * n if n > _FEW else 0.0

    def move(self, draft: Context, tokens: Sequence[int], agreed: int) -> float:
        """Give the draft model the target's cells, and return the seconds that it took, as of `seconds`.

        Where that fails, nothing is moved any more, and the draft model's cache may be empty.

        Args:
            draft: where the draft model evaluates.
            tokens: those whose cells the target is known to have.
            agreed: how many of them the draft model's cache begins with.
        """
        assert self.source is not None
        started = time.perf_counter()
        try:
            draft.truncate(min(self._n_moved, agreed))
            start = len(draft.tokens)
            if start < len(tokens):
                state = self.source.save(start)
                if state.tokens != tuple(tokens[start:]):
                    raise EvaluationError("the target's cache holds another text")
                draft.append(take_blocks(state, self._n_blocks, self._blocks))
            self._n_moved = len(tokens)
        except (EvaluationError, MemoryError) as error:
            _log.warning("the draft model evaluates all texts itself: %s", error)
            self.source = None
            return 0.0
        seconds, n = time.perf_counter() - started, len(tokens) - start
        if n <= _FEW:
            return 0.0
        self._per_cell.append(seconds / n)
        return seconds

    def works(self, target: Context, draft: Context) -> bool:
        """Try it out on two empty caches, and tell whether cells can be moved."""
        self.source = target
        try:
            for n in (1, 2):
                target.prefill([0])
                if self.source is not None:
                    self.move(draft, [0] * n, n - 1)
            return self.source is not None
        finally:
            self.source = None
            target.clear()
            draft.clear()
