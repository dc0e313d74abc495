"""Statistics of several texts, added up."""

from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec import DrafterStats, SpeculativeLM, Stats
from lcspec.cli.report import details, summary

STATS = st.builds(
    Stats,
    prompt_tokens=st.integers(0, 99),
    cached_tokens=st.integers(0, 99),
    tokens=st.integers(0, 99),
    target_passes=st.integers(0, 99),
    drafters=st.dictionaries(
        st.sampled_from(["lookup", "model"]),
        st.builds(DrafterStats, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99)),
    ),
    prefill_seconds=st.integers(0, 9),
    decode_seconds=st.integers(0, 9),
    exact=st.one_of(st.just(True), st.integers(0, 99)),
    texts=st.integers(0, 9),
)


@given(st.lists(STATS, min_size=1, max_size=4))
def test_a_sum_has_the_counts_and_times_of_all(several: list[Stats]) -> None:
    added = reduce(add, several)
    counts: dict[str, Callable[[Stats], float]] = {
        "prompt_tokens": lambda one: one.prompt_tokens,
        "cached_tokens": lambda one: one.cached_tokens,
        "tokens": lambda one: one.tokens,
        "target_passes": lambda one: one.target_passes,
        "prefill_seconds": lambda one: one.prefill_seconds,
        "decode_seconds": lambda one: one.decode_seconds,
        "texts": lambda one: one.texts,
        "drafted": lambda one: one.drafted,
        "accepted": lambda one: one.accepted,
    }
    for name, count in counts.items():
        assert count(added) == sum(map(count, several)), name
    assert added.drafters.keys() == {name for one in several for name in one.drafters}


def test_a_sum_is_exact_if_all_are_and_else_to_the_first_token_that_may_differ() -> None:
    exact, partly = Stats(tokens=10), Stats(tokens=20, exact=7)
    assert (exact + exact).exact is True
    assert (exact + exact + partly + exact).exact == 27
    assert (partly + exact).exact == 7
    assert (Stats(tokens=5, exact=1) + partly).exact == 1


def test_adding_changes_neither_side() -> None:
    one = Stats(tokens=1, drafters={"lookup": DrafterStats(1, 2, 3)})
    other = Stats(tokens=2, drafters={"lookup": DrafterStats(1, 2, 3)})
    assert (one + other).drafters["lookup"] == DrafterStats(2, 4, 6)
    assert one.drafters["lookup"] == other.drafters["lookup"] == DrafterStats(1, 2, 3)


def test_speed_and_tokens_per_pass_leave_out_the_first_token_of_each_text() -> None:
    one = Stats(tokens=11, target_passes=5, decode_seconds=2.0, texts=1)
    assert (one.tokens_per_pass, one.tokens_per_second) == (2.0, 5.0)
    assert ((one + one).tokens_per_pass, (one + one).tokens_per_second) == (2.0, 5.0)
    assert (one + Stats()).tokens_per_pass == 2.0  # nothing was wanted of the other


def test_plain_decoding_has_one_token_a_pass_in_a_sum_too(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=200, threads=1) as engine:
        several = [engine.generate("abcabcabcabc", max_tokens=n).stats for n in (0, 1, 5, 9)]
    assert [one.texts for one in several] == [0, 1, 1, 1]
    added = reduce(add, several)
    assert (added.tokens, added.target_passes, added.tokens_per_pass) == (15, 12, 1.0)


@pytest.mark.parametrize("texts", [1, 3])
def test_what_is_told_of_a_sum(texts: int) -> None:
    one = Stats(prompt_tokens=5, tokens=11, target_passes=5, prefill_seconds=1.0, decode_seconds=2.0, texts=1) + Stats(
        drafters={"lookup": DrafterStats(2, 8, 5)}
    )
    told = summary(reduce(add, [one] * texts))
    if texts == 1:
        assert told.startswith("11 tokens, the first after 1.00 s, then 5.0 tokens/s, 2.00 a pass: ")
    else:
        assert told.startswith("33 tokens in 3 texts, the first ones after 3.00 s, then 5.0 tokens/s, 2.00 a pass: ")
    assert told.endswith(f"lookup drafted {8 * texts} of which {5 * texts} were right; exact")
    assert f"decoding  {10 * texts} tokens in {2 * texts}.000 s" in details(reduce(add, [one] * texts))
