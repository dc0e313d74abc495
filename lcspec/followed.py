"""Drafts that are compared with the text as it goes on, whether they were verified or not."""

from collections.abc import Sequence
from typing import Protocol

from lcspec.drafters import Draft


class LearnsDrafts(Protocol):
    """Learns how many tokens of drafts were right."""

    def record_draft(self, drafter: str, kinds: Sequence[str], accepted: int) -> None:
        """Learn of a draft, whether it was verified or not."""


class Followed:
    """A draft that is compared with the text.

    Args:
        draft: the draft.
        told: its first tokens of which another draft tells.
    """

    def __init__(self, draft: Draft, told: int = 0) -> None:
        self._draft = draft
        self._told = told
        self._n_right = 0
        self.is_over = not draft.tokens

    def follow(self, tokens: Sequence[int], learner: LearnsDrafts) -> None:
        """Compare with the next tokens of the text, and tell the learner how many were right."""
        if self.is_over:
            return
        start = self._n_right
        expected = self._draft.tokens[start : start + len(tokens)]
        right = next((i for i, token in enumerate(expected) if token != tokens[i]), len(expected))
        kinds = self._draft.kinds[start : start + len(expected)]
        new = max(0, self._told - start)
        if right >= new:
            learner.record_draft(self._draft.drafter, kinds[new:], right - new)
        self._n_right += right
        self.is_over = right < len(expected) or self._n_right >= len(self._draft.kinds)


class FollowedDrafts:
    """What lookup proposes: a draft of each of its kinds, and when that is over, its next one."""

    def __init__(self) -> None:
        self._followed: list[Followed] = []

    def propose(self, offers: Sequence[Draft]) -> None:
        """Follow each offer, in place of an earlier one that is over."""
        new: list[Draft] = []
        for i, offer in enumerate(offers):
            if i < len(self._followed) and not self._followed[i].is_over:
                continue
            followed = Followed(offer, max((n_alike(offer, other) for other in new), default=0))
            self._followed[i : i + 1] = [followed]
            new.append(offer)

    def commit(self, tokens: Sequence[int], learner: LearnsDrafts) -> None:
        """Compare with the next tokens of the text."""
        for followed in self._followed:
            followed.follow(tokens, learner)


def n_alike(draft: Draft, other: Draft) -> int:
    """Return how many tokens two drafts begin with that are the same, and of the same kinds."""
    pairs = zip(draft.tokens, draft.kinds, other.tokens, other.kinds, strict=False)
    n = min(len(draft.kinds), len(other.kinds))
    return next((i for i, pair in enumerate(pairs) if pair[:2] != pair[2:]), n)
