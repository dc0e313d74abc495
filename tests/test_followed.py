"""Drafts that are compared with the text as it goes on."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lcspec.drafters import Draft
from lcspec.followed import FollowedDrafts


class Learner:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bool]] = []

    def record_draft(self, drafter: str, kinds: Sequence[str], accepted: int) -> None:
        self.told += [(kind, i < accepted) for i, kind in enumerate(kinds[: accepted + 1])]


def draft(tokens: Sequence[int], kinds: str) -> Draft:
    return Draft(tuple(tokens), "lookup", kinds=tuple(kinds))


def test_what_two_drafts_share_is_learned_once() -> None:
    followed, learner = FollowedDrafts(), Learner()
    followed.propose([draft([1, 2, 3, 4], "abcd"), draft([1, 2, 5, 6], "abef")])
    followed.commit([1, 2, 5, 7], learner)
    assert sorted(learner.told) == [("a", True), ("b", True), ("c", False), ("e", True), ("f", False)]


def test_the_same_token_of_another_kind_is_learned_of_each() -> None:
    followed, learner = FollowedDrafts(), Learner()
    followed.propose([draft([1, 2], "ab"), draft([1, 3], "cd")])
    followed.commit([1], learner)
    assert sorted(learner.told) == [("a", True), ("c", True)]


def test_a_draft_is_followed_until_it_is_wrong() -> None:
    followed, learner = FollowedDrafts(), Learner()
    followed.propose([draft([1, 2, 3], "abc")])
    followed.commit([1], learner)
    followed.propose([draft([2, 4], "xy")])
    followed.commit([2, 9], learner)
    followed.propose([draft([5], "z")])
    followed.commit([5], learner)
    assert learner.told == [("a", True), ("b", True), ("c", False), ("z", True)]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.lists(st.integers(0, 2), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_each_token_up_to_the_first_wrong_one_is_learned_of(
    one: list[int], other: list[int], text: list[int], step: int
) -> None:
    """Kinds say draft and place, but for what both begin with."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    drafts = [
        Draft(tuple(tokens), "lookup", kinds=tuple(f"{name if i >= same else ''}{i}" for i in range(len(tokens))))
        for name, tokens in (("one", one), ("other", other))
    ]
    followed, learner = FollowedDrafts(), Learner()
    followed.propose(drafts)
    for start in range(0, len(text), step):
        followed.commit(text[start : start + step], learner)
    expected = set()
    for found in drafts:
        for kind, token, written in zip(found.kinds, found.tokens, text, strict=False):
            expected.add((kind, token == written))
            if token != written:
                break
    assert sorted(learner.told) == sorted(expected)
