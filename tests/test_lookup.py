from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lcspec.drafters import LookupDrafter
from lcspec.rules import GreedyRule

ANY_TIME = settings(deadline=None)
EOG = 9
FAR = 1000  # a limit that limits nothing


def is_eog(token: int) -> bool:
    return token == EOG


def reference(
    tokens: Sequence[int],
    limit: int,
    *,
    length: int | None = None,
    min_match: int = 4,
    max_match: int = 64,
) -> list[int]:
    """Return the draft that the contract asks for, found the long way."""
    text = list(tokens)
    for matched in range(min(max_match, len(text) - 1), min_match - 1, -1):
        suffix = text[-matched:]
        starts = [i for i in range(len(text) - matched) if text[i : i + matched] == suffix]
        if starts:
            source = starts[-1] + matched
            break
    else:
        return []
    draft: list[int] = []
    for _ in range(min(limit, length or min(matched // 2, 15))):
        token = text[source]
        if is_eog(token):
            break
        draft.append(token)
        text.append(token)  # what was copied is there to be copied
        source += 1
    return draft


def steps_of(tokens: Sequence[int], places: Sequence[int]) -> list[list[int]]:
    """Cut tokens in steps, some of them empty."""
    edges = [0, *sorted(place % (len(tokens) + 1) for place in places), len(tokens)]
    return [list(tokens[start:end]) for start, end in pairwise(edges)]


few_tokens = st.lists(st.integers(0, 2), max_size=60)
with_ends = st.lists(st.sampled_from([0, 1, 2, 3, EOG]), max_size=60)
copies = st.builds(  # repetitions that are long, with a change here and there
    lambda block, times, change: [*block * times, *change, *block],
    st.lists(st.integers(0, 50), min_size=1, max_size=40),
    st.integers(1, 4),
    st.lists(st.integers(0, 50), max_size=2),
)
texts = few_tokens | with_ends | copies
limits = st.integers(0, 40)


@ANY_TIME
@given(tokens=texts, limit=limits)
@example(tokens=[7] * 200, limit=FAR)
def test_the_default_drafts_what_the_contract_says(tokens: list[int], limit: int) -> None:
    drafter = LookupDrafter(is_eog)
    drafter.begin(tokens, GreedyRule().propose)
    assert list(drafter.propose(limit).tokens) == reference(tokens, limit)


@ANY_TIME
@given(
    tokens=texts,
    places=st.lists(st.integers(0, 200), max_size=8),
    limit=limits,
    length=st.none() | st.integers(1, 20),
    min_match=st.integers(1, 6),
    max_match=st.integers(1, 20),
)
def test_every_step_of_a_generation_drafts_what_the_contract_says(
    tokens: list[int], places: list[int], limit: int, length: int | None, min_match: int, max_match: int
) -> None:
    max_match = max(min_match, max_match)
    drafter = LookupDrafter(is_eog, length, min_match=min_match, max_match=max_match)
    prompt, *steps = steps_of(tokens, places)
    drafter.begin(prompt, GreedyRule().propose)
    committed = list(prompt)
    for step in [[], *steps]:
        drafter.commit(step)
        committed += step
        draft = drafter.propose(limit)
        options = {"length": length, "min_match": min_match, "max_match": max_match}
        assert list(draft.tokens) == reference(committed, limit, **options)
        assert len(draft.tokens) <= limit


@ANY_TIME
@given(before=texts, prompt=texts, limit=limits)
def test_a_new_generation_knows_nothing_of_the_last(before: list[int], prompt: list[int], limit: int) -> None:
    drafter = LookupDrafter(is_eog, min_match=1)
    drafter.begin(before, GreedyRule().propose)
    drafter.commit(before)
    drafter.begin(prompt, GreedyRule().propose)
    assert list(drafter.propose(limit).tokens) == reference(prompt, limit, min_match=1)


@ANY_TIME
@given(first=texts, text=texts, more=texts, limit=limits)
def test_a_prompt_that_goes_on_is_searched_like_a_new_one(
    first: list[int], text: list[int], more: list[int], limit: int
) -> None:
    goes_on, new = LookupDrafter(is_eog, 20), LookupDrafter(is_eog, 20)
    goes_on.begin(first, GreedyRule().propose)
    goes_on.commit(text)
    for drafter in (goes_on, new):
        drafter.begin([*first, *text, *more], GreedyRule().propose)
    assert goes_on.offers(limit) == new.offers(limit)


@ANY_TIME
@given(tokens=texts, limit=limits)
def test_proposing_changes_nothing(tokens: list[int], limit: int) -> None:
    drafter = LookupDrafter(is_eog, min_match=1)
    drafter.begin(tokens, GreedyRule().propose)
    first = drafter.propose(limit)
    assert drafter.propose(limit) == first


def propose(
    tokens: Sequence[int], limit: int = FAR, length: int | None = None, min_match: int = 4, max_match: int = 64
) -> tuple[int, ...]:
    drafter = LookupDrafter(is_eog, length, min_match=min_match, max_match=max_match)
    drafter.begin(tokens, GreedyRule().propose)
    return drafter.propose(limit).tokens


def test_the_draft_is_half_as_long_as_the_match_and_at_most_15() -> None:
    for matched in (4, 5, 10, 29, 30, 31, 60):
        block = list(range(100, 100 + matched))
        tokens = [*block, *range(200, 250), *block]
        assert propose(tokens) == tuple(range(200, 200 + min(matched // 2, 15)))


def test_a_given_length_does_not_depend_on_the_match() -> None:
    tokens = [1, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 1, 2, 3, 4]
    assert propose(tokens, length=6) == (11, 12, 13, 14, 15, 16)
    assert propose(tokens, length=6, limit=2) == (11, 12)
    assert propose(tokens, length=6, limit=0) == ()


def test_a_match_that_is_too_short_drafts_nothing() -> None:
    tokens = [1, 2, 3, 11, 12, 13, 1, 2, 3]
    assert propose(tokens) == ()
    assert propose(tokens, min_match=3) == (11,)


def test_a_longer_match_counts_more_than_a_later_one() -> None:
    tokens = [1, 2, 3, 4, 5, 21, 22, 23, 2, 3, 4, 5, 31, 32, 33, 1, 2, 3, 4, 5]
    assert propose(tokens) == (21, 22)


def test_of_equal_matches_the_latest_counts() -> None:
    tokens = [1, 2, 3, 4, 21, 22, 1, 2, 3, 4, 31, 32, 1, 2, 3, 4]
    assert propose(tokens) == (31, 32)


def test_matches_longer_than_max_match_are_equal() -> None:
    tokens = [0, 1, 2, 3, 4, 21, 22, 9, 1, 2, 3, 4, 31, 32, 0, 1, 2, 3, 4]
    assert propose(tokens) == (21, 22)
    assert propose(tokens, max_match=4) == (31, 32)


def test_a_repetition_goes_on_in_circles() -> None:
    assert propose([1, 2, 3, 1, 2, 3, 1, 2, 3], length=8) == (1, 2, 3, 1, 2, 3, 1, 2)
    assert propose([5] * 6, length=7) == (5,) * 7


@pytest.mark.parametrize(("followed", "draft"), [([11, EOG, 12], (11,)), ([EOG, 11, 12], ())])
def test_a_draft_stops_before_the_end_of_a_generation(followed: list[int], draft: tuple[int, ...]) -> None:
    assert propose([1, 2, 3, 4, *followed, 1, 2, 3, 4], length=5) == draft


def test_an_end_of_generation_may_be_matched() -> None:
    assert propose([1, 2, EOG, 3, 11, 12, 13, 1, 2, EOG, 3]) == (11, 12)


def test_a_draft_names_its_drafter() -> None:
    drafter = LookupDrafter(is_eog)
    drafter.begin([1, 2, 3, 4, 5, 1, 2, 3, 4], GreedyRule().propose)
    assert drafter.propose(FAR).drafter == drafter.name == "lookup"


def test_a_prompt_of_no_or_one_token_drafts_nothing() -> None:
    for prompt in ([], [1]):
        assert propose(prompt, min_match=1, length=3) == ()


@pytest.mark.parametrize("step", [1, 7, 1000, 4095, 4096, 4097, 20_000])
def test_texts_of_any_length_are_searched_to_their_beginning(step: int) -> None:
    tokens = [*range(100, 120), *range(1000, 21_000)]
    drafter = LookupDrafter(is_eog)
    drafter.begin(tokens[:step], GreedyRule().propose)
    for start in range(step, len(tokens), step):
        drafter.commit(tokens[start : start + step])
    assert drafter.propose(FAR).tokens == ()
    drafter.commit(tokens[:10])
    assert drafter.propose(FAR).tokens == (110, 111, 112, 113, 114)
    drafter.commit(tokens[15_000:15_010])
    assert drafter.propose(FAR).tokens == tuple(tokens[15_010:15_015])


@pytest.mark.parametrize("size", [4096, 8192])
def test_growth_keeps_what_was_committed(size: int) -> None:
    tokens = Random(size).choices(range(4), k=size + 10)
    drafter = LookupDrafter(is_eog, 6, max_match=12)
    drafter.begin(tokens[: size - 10], GreedyRule().propose)
    for n in range(size - 10, size + 10):
        drafter.commit(tokens[n : n + 1])
        draft = list(drafter.propose(FAR).tokens)
        assert len(draft) == 6
        assert draft == reference(tokens[: n + 1], FAR, length=6, max_match=12)
