"""Which tokens followed which in a sequence so far."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MOST = 64  # tokens that are told


class Followers:
    """Counts what followed each token of a sequence, and each two tokens."""

    def __init__(self) -> None:
        self._after_one: dict[int, dict[int, int]] = {}
        self._after_two: dict[tuple[int, int], dict[int, int]] = {}
        self._before = self._last = -1

    def clear(self) -> None:
        """Forget the sequence."""
        self._after_one.clear()
        self._after_two.clear()
        self._before = self._last = -1

    def append(self, tokens: Sequence[int]) -> None:
        """Go on with the sequence."""
        for token in tokens:
            if self._last >= 0:
                one = self._after_one.setdefault(self._last, {})
                one[token] = one.get(token, 0) + 1
            if self._before >= 0:
                two = self._after_two.setdefault((self._before, self._last), {})
                two[token] = two.get(token, 0) + 1
            self._before, self._last = self._last, token

    def after(self, before: int, last: int) -> tuple[list[int], NDArray[np.float32]]:
        """Return what followed `last`, and how often that and the two tokens were followed by it: shape (n, 2)."""
        one, two = self._after_one.get(last, {}), self._after_two.get((before, last), {})
        tokens = list(one)
        if len(tokens) > _MOST:
            tokens = sorted(tokens, key=lambda token: (two.get(token, 0), one[token]))[-_MOST:]
        counts = [(one[token], two.get(token, 0)) for token in tokens]
        return tokens, np.array(counts, dtype=np.float32).reshape(len(tokens), 2)
