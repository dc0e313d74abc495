"""A suffix automaton of a growing text: where its last tokens were read before."""

from collections.abc import Iterable
from typing import NamedTuple


class Match(NamedTuple):
    """The longest suffix of a text that occurs in it earlier.

    Attributes:
        length: its tokens, 0 where there is none.
        end: the position behind its latest earlier occurrence.
        occurrences: how many there are.
    """

    length: int
    end: int
    occurrences: int


NO_MATCH = Match(0, 0, 0)


class SuffixAutomaton:
    """Finds the longest suffix that occurred before, as a text grows token by token.

    The smallest automaton of all substrings, built online (Blumer et al. 1985, "The smallest automaton recognizing
    the subwords of a text"): each state stands for the substrings that end at the same positions, its link for the
    longest of their suffixes that also ends elsewhere. A token takes amortized constant time. What is more, each state
    knows how often and where lately its substrings ended; for that the states of the last `longest` tokens are
    walked through with every token, which is constant again, and few in any text that is not one token repeated.

    Args:
        shortest: tokens of the shortest suffix that is looked for, at least 1.
        longest: of the longest that is told apart; a longer match counts as this long.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self.tokens: list[int] = []
        """The text. Read only."""
        self.match = NO_MATCH
        """The longest suffix of the text that occurs earlier."""
        self._shortest, self._longest = shortest, longest
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]  # of the longest substring of a state
        self._latest = [0]  # position behind its latest occurrence
        self._count = [0]
        self._whole = 0  # the state of the whole text
        self._suffix, self._suffix_length = 0, 0  # the state of its last `longest` tokens

    def extend(self, tokens: Iterable[int]) -> None:
        """Append tokens to the text."""
        for token in tokens:
            self._append(token)
            self.tokens.append(token)
            self._follow(token)

    def _append(self, token: int) -> None:
        following, link, length = self._next, self._link, self._length
        new = self._new_state(length[self._whole] + 1, {}, 0, 0, 0)
        state, self._whole = self._whole, new
        while state >= 0 and token not in following[state]:
            following[state][token] = new
            state = link[state]
        if state < 0:
            return
        target = following[state][token]
        if length[target] == length[state] + 1:
            link[new] = target
            return
        clone = self._new_state(  # of the substrings of `target` that end here, too
            length[state] + 1, following[target].copy(), link[target], self._latest[target], self._count[target]
        )
        while state >= 0 and following[state].get(token) == target:
            following[state][token] = clone
            state = link[state]
        link[target] = link[new] = clone
        if self._suffix == target and self._suffix_length <= length[clone]:
            self._suffix = clone

    def _new_state(self, length: int, following: dict[int, int], link: int, latest: int, count: int) -> int:
        self._length.append(length)
        self._next.append(following)
        self._link.append(link)
        self._latest.append(latest)
        self._count.append(count)
        return len(self._length) - 1

    def _follow(self, token: int) -> None:
        """Go to the state of the last tokens, see where they and their suffixes were, and note that they are here."""
        link, length, latest, count = self._link, self._length, self._latest, self._count
        state = self._next[self._suffix][token]
        wanted = min(self._suffix_length + 1, self._longest)
        while length[link[state]] >= wanted:
            state = link[state]
        self._suffix, self._suffix_length = state, wanted
        end = len(self.tokens)
        self.match = NO_MATCH
        while length[state] >= self._shortest:
            if count[state] and not self.match.length:
                self.match = Match(min(wanted, length[state]), latest[state], count[state])
            latest[state] = end
            count[state] += 1
            state = link[state]
