"""The suffix automaton against a search through the whole text."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.drafters.suffix_automaton import NO_MATCH, Match, SuffixAutomaton


def searched(tokens: list[int], shortest: int, longest: int) -> Match:
    """Return the longest suffix that occurs earlier, by trying all."""
    n = len(tokens)
    for length in range(min(longest, n - 1), shortest - 1, -1):
        suffix = tokens[n - length :]
        ends = [end for end in range(length, n) if tokens[end - length : end] == suffix]
        if ends:
            return Match(length, ends[-1], len(ends))
    return NO_MATCH


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 4), st.integers(4, 12))
def test_it_finds_what_a_search_finds(tokens: list[int], shortest: int, longest: int) -> None:
    automaton = SuffixAutomaton(shortest, longest)
    for i, token in enumerate(tokens):
        automaton.extend([token])
        assert automaton.match == searched(tokens[: i + 1], shortest, longest)
    assert automaton.tokens == tokens


@pytest.mark.parametrize("alphabet", [1, 2, 5, 50])
def test_long_texts_with_repetitions(alphabet: int) -> None:
    rng = random.Random(alphabet)
    tokens: list[int] = []
    automaton = SuffixAutomaton(3, 64)
    while len(tokens) < 900:
        if tokens and rng.random() < 0.2:  # copy something
            start = rng.randrange(len(tokens))
            tokens += tokens[start : start + rng.randrange(1, 120)]
        else:
            tokens.append(rng.randrange(alphabet))
    for i in range(0, len(tokens), 7):
        automaton.extend(tokens[i : i + 7])
        end = min(i + 7, len(tokens))
        assert automaton.match == searched(tokens[:end], 3, 64), end


def test_states_grow_with_the_text_only() -> None:
    """At most two states and three transitions for each token, also where one token repeats."""
    for tokens in ([1] * 3000, [i % 2 for i in range(3000)], [random.Random(7).randrange(4) for _ in range(3000)]):
        automaton = SuffixAutomaton(3, 64)
        automaton.extend(tokens)
        assert len(automaton._length) <= 2 * len(tokens)
        assert sum(map(len, automaton._next)) <= 3 * len(tokens)
