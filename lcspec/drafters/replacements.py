"""What an edit replaces by what, learned from the edit itself."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lcspec.drafters.counting import Counting

_CONTEXT = 4  # tokens before a place by which places are compared
_REMEMBERED = 8  # places of each kind


@dataclass
class Replacement:
    """Tokens that were replaced, and where.

    Attributes:
        old: what the document says, at least one token.
        new: what the text says instead.
        done: latest positions in the document where it was replaced.
        left: latest positions where it was not.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    done: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)


class Found(NamedTuple):
    """A replacement that is expected at a place, and by how many tokens before it the place is like an earlier one."""

    replacement: Replacement
    alike: int


class Replacements:
    """Finds the replacement that is expected at a position of a document.

    One is expected where the tokens before are more like those where it was made than like those where it was not:
    `30` by `60` behind `timeout: `, and not behind `port: ` once that was seen to stay. Numbers that count go on.

    Args:
        digits: as of `Counting`.
    """

    def __init__(self, digits: Sequence[int] = ()) -> None:
        self._by_first: dict[int, list[Replacement]] = defaultdict(list)
        self._counting = Counting(digits)
        self._digits = frozenset(digits)

    @property
    def beginnings(self) -> frozenset[int]:
        """First tokens of what may be replaced."""
        return self._digits.union(self._by_first)

    def learn(self, document: Sequence[int], position: int, old: tuple[int, ...], new: tuple[int, ...]) -> None:
        """Note that `old`, at a position of the document, was replaced by `new`."""
        known = self._by_first[old[0]]
        replacement = next((one for one in known if one.old == old and one.new == new), None)
        if replacement is None:
            replacement = Replacement(old, new)
            known.append(replacement)
        _remember(replacement.done, position)
        self._counting.learn(document, position, old, new)

    def spare(self, document: Sequence[int], position: int) -> None:
        """Note that what the document says at a position stayed."""
        if self._counting.expected(document, position):
            self._counting.forget()
        for replacement in self._by_first.get(document[position], ()):
            if is_at(replacement.old, document, position):
                _remember(replacement.left, position)

    def expected(self, document: Sequence[int], position: int) -> Found | None:
        """Return the replacement that is expected at a position of the document."""
        if (counted := self._counting.expected(document, position)) is not None:
            return Found(Replacement(*counted), 0)
        best: Found | None = None
        for replacement in self._by_first.get(document[position], ()):
            if not is_at(replacement.old, document, position):
                continue
            done = max(_alike(document, position, other) for other in replacement.done)
            left = max((_alike(document, position, other) for other in replacement.left), default=-1)
            later = not replacement.left or replacement.done[-1] > replacement.left[-1]
            if (done > left or (done == left and later)) and (best is None or done >= best.alike):
                best = Found(replacement, done)
        return best

    def begun(self, document: Sequence[int], position: int, written: tuple[int, ...]) -> Replacement | None:
        """Return the replacement of which `written` may be the beginning, at a position of the document."""
        matching = [
            (max(_alike(document, position, other) for other in one.done), one)
            for one in self._by_first.get(document[position], ())
            if one.new[: len(written)] == written and is_at(one.old, document, position)
        ]
        return max(matching, key=lambda found: found[0])[1] if matching else None


def _remember(positions: list[int], position: int) -> None:
    positions.append(position)
    del positions[:-_REMEMBERED]


def is_at(tokens: tuple[int, ...], document: Sequence[int], position: int) -> bool:
    """Tell whether a document has these tokens at a position."""
    return tuple(document[position : position + len(tokens)]) == tokens


def _alike(document: Sequence[int], position: int, other: int) -> int:
    """Return how many tokens before two positions are the same."""
    n = 0
    while n < min(_CONTEXT, position, other) and document[position - 1 - n] == document[other - 1 - n]:
        n += 1
    return n
