"""Prompt lookup: what followed the last time that the text read like this."""

from collections.abc import Callable, Sequence

import numpy as np

from lcspec.drafters.base import NO_DRAFT, Draft

_LONGEST_DEFAULT = 15


class LookupDrafter:
    """Proposes what followed an earlier occurrence of the longest suffix of the committed tokens.

    Prompt and output are both searched, and of several longest matches the latest counts. After
    Saxena 2023, "Prompt Lookup Decoding", and Yang et al. 2023, "Inference with Reference".

    Args:
        is_eog: tells tokens that end a generation; a draft stops before one.
        length: tokens of a draft. By default half as many as matched, since a short match is weak
            evidence, and 15 at the most, which with the token before them fill a pass of 16.
        min_match: shortest suffix, in tokens, that makes a draft.
        max_match: longest suffix that is told apart; longer matches count as this long.
    """

    name = "lookup"

    def __init__(
        self,
        is_eog: Callable[[int], bool],
        length: int | None = None,
        *,
        min_match: int = 4,
        max_match: int = 64,
    ) -> None:
        self._is_eog = is_eog
        self._length = length
        self._min_match = min_match
        self._max_match = max_match
        self._tokens = np.empty(4096, dtype=np.int32)
        self._n = 0

    def begin(self, prompt: Sequence[int]) -> None:
        """Search `prompt` from now on."""
        self._n = 0
        self.commit(prompt)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to what is searched."""
        n = self._n + len(tokens)
        if n > self._tokens.size:
            self._tokens = np.resize(self._tokens, 2 * n)
        self._tokens[self._n : n] = tokens
        self._n = n

    def propose(self, limit: int) -> Draft:
        """Return up to `limit` tokens that followed the longest suffix, up to the end of a generation."""
        end, matched = self._latest_longest_match()
        if matched < self._min_match:
            return NO_DRAFT
        length = min(limit, self._length or min(matched // 2, _LONGEST_DEFAULT))
        followed = self._tokens[end : self._n][:length]
        draft: list[int] = []
        for token in np.resize(followed, length).tolist():  # a match that overlaps the suffix goes on in circles
            if self._is_eog(token):
                break
            draft.append(token)
        return Draft(tuple(draft), self.name)

    def _latest_longest_match(self) -> tuple[int, int]:
        """Return where the latest earlier occurrence of the longest suffix ends, and its length."""
        tokens = self._tokens[: self._n]
        ends = np.arange(1, self._n)  # an occurrence ends before its index; the suffix itself ends at n
        latest, matched = 0, 0
        for length in range(1, min(self._max_match, self._n - 1) + 1):
            # of the occurrences of the suffix one token shorter, those that go on to the left
            ends = ends[ends >= length]
            ends = ends[tokens[ends - length] == tokens[self._n - length]]
            if not ends.size:
                break
            latest, matched = int(ends[-1]), length
        return latest, matched

    def close(self) -> None:
        """Nothing is held."""
