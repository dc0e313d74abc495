"""What a drafter is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next, and the name of the drafter that proposes them."""

    tokens: tuple[int, ...]
    drafter: str


NO_DRAFT = Draft((), "none")


class Drafter(Protocol):
    """Proposes the tokens that follow the committed ones.

    A generation calls `begin` once, then `propose` and `commit` in turn. A drafter owns the state
    it needs and keeps it in step with what was committed; a wrong proposal costs time, never text.
    """

    def begin(self, prompt: Sequence[int]) -> None:
        """Start a generation behind `prompt`, in place of whatever was committed before."""

    def propose(self, limit: int) -> Draft:
        """Return at most `limit` tokens to follow the committed ones, none if there is no good guess."""

    def commit(self, tokens: Sequence[int]) -> None:
        """Learn which tokens were emitted: the accepted draft tokens and one of the target's own."""

    def close(self) -> None:
        """Free what the drafter holds; closing again does nothing."""
