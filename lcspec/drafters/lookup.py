"""Prompt lookup: what followed the last time that the text read like this."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from lcspec.drafters.base import NO_DRAFT, Draft, Propose

_LONGEST_DEFAULT = 15
_WITNESS = 4  # tokens that an occurrence beside the longest match has to share
_WITNESSED = 64  # draft tokens for which such an occurrence is looked for
_MATCHES = (3, 4, 5, 6, 8, 16, 32, 64)  # tokens of a match, and
_DEPTHS = (0, 1, 2, 4, 8, 16)  # of the draft before a token, from which on it is of another kind
_LONGEST_KINDS = 128

LOOKUP_KINDS: dict[tuple[int, str], tuple[str, ...]] = {
    (match, witness): tuple(
        f"{match} {witness} {_DEPTHS[bisect_right(_DEPTHS, depth) - 1]}" for depth in range(_LONGEST_KINDS)
    )
    for match in _MATCHES
    for witness in ("alone", "agrees", "differs")
}
"""The kinds of tokens by match length and by whether another occurrence of the last few tokens went on alike."""


class LookupDrafter:
    """Proposes what followed an earlier occurrence of the longest suffix of the committed tokens.

    Prompt and output are both searched, and of several longest matches the latest counts. After
    Saxena 2023, "Prompt Lookup Decoding", and Yang et al. 2023, "Inference with Reference".

    Args:
        is_eog: tells tokens that end a generation; a draft stops before one.
        length: tokens of a draft. By default half as many as matched, since a short match is weak
            evidence, and 15 at the most, which with the token before them fill a pass of 16.
        min_match: shortest suffix, in tokens, that makes a draft; at least 1.
        max_match: longest suffix that is told apart; longer matches count as this long. At least `min_match`.
    """

    name = "lookup"

    def __init__(
        self,
        is_eog: Callable[[int], bool],
        length: int | None = None,
        *,
        min_match: int = 4,
        max_match: int = 32,
    ) -> None:
        self._is_eog = is_eog
        self._length = length
        self._min_match = min_match
        self._max_match = max_match
        self._text = ""  # a character for each committed token, so that strings do the search

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Search `prompt` from now on."""
        self._text = "".join(map(chr, prompt))

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        """Append `tokens` to what is searched."""
        self._text += "".join(map(chr, tokens))

    def propose(self, limit: int) -> Draft:
        """Return up to `limit` tokens that followed the longest suffix, up to the end of a generation."""
        end, matched = self._latest_longest_match()
        length = min(limit, self._length or min(matched // 2, _LONGEST_DEFAULT))
        if not matched or length <= 0:
            return NO_DRAFT
        followed = self._text[end : end + length]
        circles = length // len(followed) + 1  # a match that overlaps the suffix goes on in circles
        draft: list[int] = []
        for token in map(ord, (followed * circles)[:length]):
            if self._is_eog(token):
                break
            draft.append(token)
        return Draft(tuple(draft), self.name, kinds=self._kinds(end, matched, len(draft)))

    def _kinds(self, end: int, matched: int, length: int) -> tuple[str, ...]:
        """Say what is known of each draft token: the match is `matched` tokens long and ends at `end`."""
        match = _MATCHES[bisect_right(_MATCHES, max(matched, _MATCHES[0])) - 1]
        rows = [LOOKUP_KINDS[match, witness] for witness in ("alone", "agrees", "differs")]
        n = len(self._text)
        text = self._text + self._text[end : end + length]
        kinds = []
        for depth in range(length):
            witness = 0
            if depth < _WITNESSED and end + depth < n and n + depth >= _WITNESS:
                suffix = text[n + depth - _WITNESS : n + depth]
                start = text.rfind(suffix, 0, n + depth - 1)
                if start + _WITNESS == end + depth:  # the match itself
                    start = text.rfind(suffix, 0, start + _WITNESS - 1)
                if start >= 0:
                    witness = 1 if text[start + _WITNESS] == text[end + depth] else 2
            kinds.append(rows[witness][depth])
        return tuple(kinds)

    def _latest_longest_match(self) -> tuple[int, int]:
        """Return where the latest earlier occurrence of the longest suffix ends, and its length; else zeros."""
        text, n = self._text, len(self._text)
        end, matched = 0, 0
        length, longest = self._min_match, min(self._max_match, n - 1)
        while length <= longest:  # by bisection: where a suffix occurs, every shorter one does
            start = text.rfind(text[n - length :], 0, n - 1)
            if start >= 0:
                end, matched = start + length, length
            elif matched:
                longest = length - 1
            else:
                break
            length = (matched + longest) // 2 + 1
        return end, matched

    def close(self) -> None:
        """Nothing is held."""
