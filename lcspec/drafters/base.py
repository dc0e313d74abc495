"""What a drafter is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lcspec.sampling import Distribution


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next.

    Attributes:
        tokens: the tokens.
        drafter: the name of the drafter that proposes them.
        distributions: what each was sampled from; empty where the drafter was certain of them, or the
            rule does not ask.
        kinds: what the drafter knows of each; tokens of one kind are about equally often accepted.
    """

    tokens: tuple[int, ...]
    drafter: str
    distributions: tuple[Distribution | None, ...] = ()
    kinds: tuple[str, ...] = ()

    def first(self, n: int) -> "Draft":
        """Return the draft without what is behind its first `n` tokens."""
        if len(self.tokens) <= n:
            return self
        return Draft(self.tokens[:n], self.drafter, self.distributions[:n], self.kinds[:n])


NO_DRAFT = Draft((), "none")


Propose: TypeAlias = Callable[[NDArray[np.float32], Sequence[int]], tuple[int, Distribution | None]]
"""Chooses what a draft model proposes: its logits, shape (n_vocab,), and the tokens before to a token, and what that
was sampled from where the acceptance rule needs it."""


class Drafter(Protocol):
    """Proposes the tokens that follow the committed ones.

    A generation calls `begin` once, then `propose` and `commit` in turn. A drafter owns the state
    it needs and keeps it in step with what was committed; a wrong proposal costs time, never text.
    """

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Start a generation behind `prompt`, in place of whatever was committed before.

        A drafter that has logits chooses its tokens with `propose`.
        """

    def propose(self, limit: int) -> Draft:
        """Return at most `limit` tokens to follow the committed ones, none if there is no good guess."""

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        """Learn which tokens were emitted: the accepted draft tokens and one of the target's own.

        Args:
            tokens: the tokens.
            seconds: time that evaluating and verifying the draft took.
        """

    def close(self) -> None:
        """Free what the drafter holds; closing again does nothing."""


class StepwiseDrafter(Drafter, Protocol):
    """A drafter whose every token costs, so that it asks after each whether to go on."""

    @property
    def n_behind(self) -> int | None:
        """Committed tokens that it has to evaluate before it drafts; None where it can't draft."""

    @property
    def moving_seconds(self) -> float:
        """About the seconds that it takes before that, for what it copies rather than evaluates."""

    @property
    def moved_seconds(self) -> float:
        """Seconds of the last draft that this took."""

    def propose(self, limit: int, goes_on: Callable[[Draft], bool] = ...) -> Draft:
        """Return at most `limit` tokens, none where all that it can propose is forbidden.

        Args:
            limit: most tokens.
            goes_on: given the draft so far, tells whether one more token is worth its cost.
        """
