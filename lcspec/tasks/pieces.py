"""Long texts cut into pieces that a context holds, at borders that a reader would choose."""

import re
from collections.abc import Callable

_BORDERS = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^(?=(?:#{1,3}|<h[1-3]\b)\s?\S)",  # before a heading
        r"(?:^[ \t]*\r?\n)+(?=[^\s#}\])])",  # before what begins at the margin behind an empty line: a function, a key
        r"(?:^[ \t]*\r?\n)+(?=\s*\S)",  # between paragraphs
        r"\r?\n",  # between lines
        r"(?<=[.!?…。！？])\s+|(?<=[。！？])",  # between sentences
        r"\s+",  # between words
    )
)


def split(text: str, count_tokens: Callable[[str], int], limit: int) -> list[str]:
    """Cut a text into pieces of at most `limit` tokens; joined they are the text again.

    A piece is as long as may be, but gives up to half of that away for a better border: before a heading, before
    what begins at the margin (functions, keys), between paragraphs, lines, sentences, words, in this order.

    Args:
        text: any text; an empty one has no pieces.
        count_tokens: returns how many tokens a text has.
        limit: at least 1; a single character that has more is a piece of its own.
    """
    pieces = []
    start = 0
    while start < len(text):
        end = _longest(text, start, count_tokens, limit)
        if end < len(text):
            end = _border(text, start, end)
        pieces.append(text[start:end])
        start = end
    return pieces


def _longest(text: str, start: int, count_tokens: Callable[[str], int], limit: int) -> int:
    """Return where the longest piece that begins at `start` ends."""
    step = 2 * limit  # characters
    fits, breaks = start, start + step
    while breaks < len(text) and count_tokens(text[start:breaks]) <= limit:
        step *= 2
        fits, breaks = breaks, start + step
    if breaks >= len(text):
        if count_tokens(text[start:]) <= limit:
            return len(text)
        breaks = len(text)
    while breaks - fits > 1:
        middle = (fits + breaks) // 2
        if count_tokens(text[start:middle]) <= limit:
            fits = middle
        else:
            breaks = middle
    return max(fits, start + 1)


def _border(text: str, start: int, end: int) -> int:
    """Return the best border in the second half of a piece, or its end where there is none."""
    earliest = start + (end - start + 1) // 2
    for pattern in _BORDERS:
        ends = [found.end() for found in pattern.finditer(text, start, end) if earliest < found.end() <= end]
        if ends:
            return ends[-1]
    return end
