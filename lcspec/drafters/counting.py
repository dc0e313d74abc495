"""Numbers that go on counting where a text repeats itself."""

from collections.abc import Sequence


class Counting:
    """Knows by how much the last number differs from the one that it is written in place of.

    `server_7` follows `server_6` where `server_6` followed `server_5`. Numbers are decimal and written in one token for
    each digit, as most tokenizers do; others are left alone.

    Args:
        digits: the tokens of 0 to 9; empty where digits have no tokens of their own.
    """

    def __init__(self, digits: Sequence[int]) -> None:
        self._digits = tuple(digits)
        self._values = {token: str(value) for value, token in enumerate(digits)}
        self._step = 0
        self._behind: int | None = None  # the token before the number

    def learn(self, document: Sequence[int], position: int, old: Sequence[int], new: Sequence[int]) -> None:
        """Note that `old`, at a position of the document, was replaced by `new`."""
        if not self._values.keys() >= {*old, *new}:
            return
        start, end = self._number_around(document, position, position + len(old))
        before, after = document[start:position], document[position + len(old) : end]
        was, is_ = self._value([*before, *old, *after]), self._value([*before, *new, *after])
        if was is not None and is_ is not None:
            self._step, self._behind = is_ - was, document[start - 1] if start else None

    def forget(self) -> None:
        """Note that a number stayed that was expected to go on."""
        self._step = 0

    def expected(self, document: Sequence[int], position: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the number that begins at a position of the document, and the one that is expected instead."""
        if not self._step or document[position] not in self._values:
            return None
        start, end = self._number_around(document, position, position)
        if start < position or (document[start - 1] if start else None) != self._behind:
            return None
        old = tuple(document[start:end])
        value = self._value(old)
        if value is None or value + self._step < 0:
            return None
        return old, tuple(self._digits[int(digit)] for digit in str(value + self._step))

    def _number_around(self, document: Sequence[int], start: int, end: int) -> tuple[int, int]:
        while start > 0 and document[start - 1] in self._values:
            start -= 1
        while end < len(document) and document[end] in self._values:
            end += 1
        return start, end

    def _value(self, tokens: Sequence[int]) -> int | None:
        """Return a number; None for no digits, many, or leading zeros, which are no numbers to count with."""
        text = "".join(self._values[token] for token in tokens)
        return int(text) if 0 < len(text) < 10 and (text == "0" or text[0] != "0") else None
