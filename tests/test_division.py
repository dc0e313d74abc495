"""How the width of a pass is divided: over numbers only."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.planner import AcceptanceTable, CostCurve, Credit, Share, Wish, best_length, divide

LINEAR = CostCurve({1: 1.0, 128: 1 + 0.3 * 127})
FLAT = CostCurve({1: 1.0, 128: 1.5})

chances = st.lists(st.floats(0.01, 0.99), max_size=6)
wishes = st.lists(
    st.builds(
        lambda offers, limit: Wish([np.array(offer) for offer in offers], limit),
        st.lists(chances, max_size=2),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=4,
)
curves = st.builds(
    lambda steps: CostCurve(dict(zip((1, 2, 3, 5, 8, 16, 128), np.cumsum([1.0, *steps]), strict=True))),
    st.lists(st.floats(0.0, 3.0), min_size=6, max_size=6),
)


def expected_rate(wanted: Sequence[Wish], shares: Sequence[Share], seconds: np.ndarray) -> float:
    """Return the tokens a second that a pass is expected to make."""
    tokens = float(len(wanted))
    for wish, share in zip(wanted, shares, strict=True):
        if share.length:
            tokens += float(np.cumprod(wish.offers[share.offer][: share.length]).sum())
    return tokens / float(seconds[len(wanted) + sum(share.length for share in shares)])


@given(wishes, curves)
def test_shares_keep_to_drafts_and_limits(wanted: list[Wish], costs: CostCurve) -> None:
    for most in (len(wanted), len(wanted) + 3, 128):
        division = divide(wanted, *costs.padded(), most)
        assert len(division.shares) == len(wanted)
        total = len(wanted) + sum(share.length for share in division.shares)
        assert total <= division.width <= max(most, len(wanted))
        for wish, share in zip(wanted, division.shares, strict=True):
            longest = len(wish.offers[share.offer]) if wish.offers else 0
            assert share.length <= min(wish.limit, longest)


@given(wishes, curves)
def test_no_other_lengths_of_the_chosen_drafts_make_more_tokens_a_second(wanted: list[Wish], costs: CostCurve) -> None:
    seconds, widths = costs.padded()
    division = divide(wanted, seconds, widths, 128)
    chosen = [share.offer for share in division.shares]
    ranges = [
        range(min(wish.limit, len(wish.offers[offer])) + 1) if wish.offers else range(1)
        for wish, offer in zip(wanted, chosen, strict=True)
    ]
    every = ([Share(*one) for one in zip(chosen, lengths, strict=True)] for lengths in product(*ranges))
    best = max(expected_rate(wanted, shares, seconds) for shares in every)
    assert expected_rate(wanted, division.shares, seconds) == pytest.approx(best)


@given(st.lists(st.floats(0.01, 0.99), max_size=40), curves)
def test_a_text_alone_gets_what_the_planner_would_choose(offer: list[float], costs: CostCurve) -> None:
    array = np.array(offer)
    seconds, widths = costs.padded()
    alone = best_length(array, seconds[1 : len(array) + 2])
    share = divide([Wish([array], 127)], seconds, widths, 128).shares[0]
    assert share.length >= alone.tokens
    assert seconds[share.length + 1] == seconds[alone.tokens + 1], "more tokens only where they cost nothing"


@given(st.integers(1, 60), st.floats(0.05, 0.95))
def test_the_likelier_token_wins(others: int, chance: float) -> None:
    unsure, sure = Wish([np.full(4, chance)], 4), Wish([np.full(4, min(0.99, chance + 0.04))], 4)
    shares = divide([unsure] * others + [sure], *LINEAR.padded(), 128).shares
    assert all(share.length <= shares[-1].length for share in shares)


def test_as_load_rises_speculation_fades_to_none() -> None:
    wish = Wish([np.full(8, 0.6)], 8)
    drafted = [
        sum(share.length for share in divide([wish] * n, *LINEAR.padded(), 128).shares) / n for n in (1, 2, 4, 8, 32)
    ]
    assert drafted[0] >= 1
    assert drafted == sorted(drafted, reverse=True)
    assert drafted[-1] == 0


def test_where_width_is_nearly_free_everybody_gets_all() -> None:
    wish = Wish([np.full(8, 0.9)], 8)
    assert all(share.length == 8 for share in divide([wish] * 4, *FLAT.padded(), 128).shares)


def test_the_better_of_two_drafts_is_taken() -> None:
    wish = Wish([np.full(3, 0.3), np.full(6, 0.95)], 8)
    assert divide([wish], *LINEAR.padded(), 128).shares == (Share(1, 6),)


def test_a_wider_pass_that_is_cheaper_is_known() -> None:
    costs = CostCurve({1: 1.0, 2: 1.3, 3: 1.6, 4: 9.0, 5: 9.0, 6: 9.0, 7: 9.0, 8: 2.0, 9: 9.0, 128: 99.0})
    division = divide([Wish([np.full(4, 0.97)], 4)], *costs.padded(), 128)
    assert division.shares[0].length == 4
    assert division.width == 8


# what drafts of a text may lose


def test_drafts_that_never_come_true_lose_a_bounded_time() -> None:
    credit, plain, lost = Credit(), 0.0, 0.0
    for _ in range(2000):
        n = credit.affordable(LINEAR, 0, 1)
        dearer = LINEAR.seconds(1 + n) - LINEAR.seconds(1)
        credit.record_pass(1.0, base=1, drafted=n, accepted=0, lost=dearer)
        plain, lost = plain + 1.0, lost + dearer
    assert lost <= 0.011 * plain + 3 * LINEAR.seconds(4)


def test_a_text_behind_a_long_prompt_may_lose_a_little_more() -> None:
    assert Credit(1_000).affordable(LINEAR, 0, 1) > Credit(50).affordable(LINEAR, 0, 1)
    assert Credit(1_000).affordable(LINEAR, 0, 1) == Credit(100_000).affordable(LINEAR, 0, 1)


def test_drafts_that_come_true_may_get_longer() -> None:
    credit = Credit()
    before = credit.affordable(LINEAR, 0, 4)
    for _ in range(20):
        credit.record_pass(LINEAR.seconds(4), base=4, drafted=3, accepted=3, lost=0.9)
    assert credit.affordable(LINEAR, 0, 4) > before


def test_a_crowd_has_no_more_to_lose_than_one() -> None:
    """What each of many may lose on top of the credit is a share of the time, not all of it."""
    one, many = Credit(), Credit()
    for _ in range(10_000):
        one.record_pass(1.0, base=1, drafted=0, accepted=0, lost=0.0)
        many.record_pass(1.0, base=8, drafted=0, accepted=0, lost=0.0)
    assert many._gained == pytest.approx(one._gained / 8)


def test_a_copied_table_learns_by_itself() -> None:
    table = AcceptanceTable({"a": 0.5})
    copy = table.copy()
    copy.record(["a"] * 5, 5)
    assert copy.chance("a") > table.chance("a") == 0.5
