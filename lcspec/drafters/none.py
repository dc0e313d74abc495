"""No drafter: plain decoding."""

from collections.abc import Sequence

from lcspec.drafters.base import NO_DRAFT, Draft, Propose


class NoDrafter:
    """Never proposes anything."""

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Nothing is kept."""

    def propose(self, limit: int) -> Draft:
        """Return no tokens."""
        return NO_DRAFT

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        """Nothing is learned."""

    def close(self) -> None:
        """Nothing is held."""
