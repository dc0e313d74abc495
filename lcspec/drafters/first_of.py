"""Several drafters in order of preference."""

from collections.abc import Sequence

from lcspec.drafters.base import NO_DRAFT, Draft, Drafter, Propose


class FirstOf:
    """Proposes the draft of the first drafter that has one."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Start a generation with each drafter."""
        for drafter in self._drafters:
            drafter.begin(prompt, propose)

    def propose(self, limit: int) -> Draft:
        """Return the first draft that has tokens."""
        for drafter in self._drafters:
            draft = drafter.propose(limit)
            if draft.tokens:
                return draft
        return NO_DRAFT

    def commit(self, tokens: Sequence[int]) -> None:
        """Tell each drafter."""
        for drafter in self._drafters:
            drafter.commit(tokens)

    def close(self) -> None:
        """Close each drafter."""
        for drafter in self._drafters:
            drafter.close()
