"""Other places of a text that read alike."""

from collections.abc import Sequence

LENGTH = 4
"""Tokens before a position that a witness of it shares."""


class Witnesses:
    """Knows for each position of a growing text the latest other one behind the same few tokens.

    Args:
        text: the text. `extend` is called when it has grown.
    """

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text
        self._ids: dict[tuple[int, ...], int] = {}
        self._latest: list[int] = []  # by id
        self._id_at: list[int] = []  # by position
        self._before: list[int] = []  # by position: the one before with the same id, -1 where there is none

    def extend(self) -> None:
        """Take note of the positions that were added, up to the end of the text."""
        for position in range(len(self._id_at), len(self._text) + 1):
            if position < LENGTH:
                self._id_at.append(-1)
                self._before.append(-1)
                continue
            id_ = self._ids.setdefault(tuple(self._text[position - LENGTH : position]), len(self._latest))
            if id_ == len(self._latest):
                self._latest.append(-1)
            self._id_at.append(id_)
            self._before.append(self._latest[id_])
            self._latest[id_] = position

    def of(self, position: int, but: int) -> int:
        """Return the latest witness of a position that has a token behind it, `but` for one; -1 without any."""
        id_ = self._id_at[position]
        if id_ < 0:
            return -1
        witness = self._latest[id_]
        if witness == len(self._text):
            witness = self._before[witness]
        return self._before[witness] if witness == but and witness >= 0 else witness
