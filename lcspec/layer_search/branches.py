"""Continuations of a text from many of its places, evaluated together, each behind the text's own keys and values."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lcspec.limits import MAX_WIDTH
from lcspec.llama import PREFILL_BATCH, Chunk, Model, SharedContext, State

_TEXT = 0  # the sequence of the text; the others are branches

MOST_BRANCHES = 48
"""Places from which a text can be continued in one pass."""


class BranchedText:
    """A text, and branches that leave it at different places.

    Args:
        model: evaluates it; closing it frees the text.
        longest: tokens of the longest text.
        threads: threads that evaluate.
    """

    def __init__(self, model: Model, longest: int, threads: int) -> None:
        self._context = SharedContext(model, longest + MAX_WIDTH, MOST_BRANCHES + 1, threads=threads)

    def read(self, tokens: Sequence[int]) -> State:
        """Evaluate a text in the place of the one before, and return its cells."""
        self._context.free(_TEXT)
        for start in range(0, len(tokens), PREFILL_BATCH):
            self._context.evaluate([Chunk(_TEXT, tokens[start : start + PREFILL_BATCH], 0)])
        return self._context.save(_TEXT)

    def recall(self, text: State) -> None:
        """Put a text that was read before in the place of the one that there is."""
        self._context.restore(_TEXT, text)

    def branch(self, starts: Sequence[int], runs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Evaluate tokens behind the text's beginnings of these lengths, and forget them.

        Args:
            starts: tokens of the text before each branch.
            runs: the tokens of each branch, as many in each.

        Returns:
            Logits behind each token, shape (branches, tokens, n_vocab).
        """
        branches = range(1, len(starts) + 1)
        for branch, start in zip(branches, starts, strict=True):
            self._context.copy(_TEXT, branch, start)
        chunks = [Chunk(branch, run, len(run)) for branch, run in zip(branches, runs, strict=True)]
        logits: NDArray[np.float32] = np.stack(self._context.evaluate(chunks))
        for branch in branches:
            self._context.free(branch)
        return logits

    def close(self) -> None:
        """Free it; closing again does nothing."""
        self._context.close()
