"""Lines, and what ends them: models write LF, files have what they have."""

import re
from collections import Counter
from difflib import SequenceMatcher

_ENDING = re.compile(r"\r\n|\n|\r")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def lines_of(text: str) -> list[str]:
    r"""Return the lines, each with what ends it: \n, \r\n or \r; joined they are the text again."""
    return _LINE.findall(text)


def with_lf(text: str) -> str:
    r"""Return the text with \n at the end of every line."""
    return _ENDING.sub("\n", text)


def commonest_ending(text: str) -> str:
    r"""Return what ends most lines; \n where there is no more than one line."""
    endings = Counter(_ENDING.findall(text))
    return endings.most_common(1)[0][0] if endings else "\n"


def restore_endings(edited: str, original: str, usual: str) -> str:
    """Give an edited text the line endings of the original.

    Where the original has several kinds, a line that it has, too, keeps its own, and so does one that replaces
    another; a line that is new has the ending of the line before.

    Args:
        edited: a text with any line endings.
        original: what it was before.
        usual: the ending to take where the original has none.
    """
    edited = with_lf(edited)
    kinds = set(_ENDING.findall(original))
    if len(kinds) < 2:
        return edited.replace("\n", kinds.pop() if kinds else usual)
    before, after = lines_of(original), edited.split("\n")
    endings = [line[len(line.rstrip("\r\n")) :] for line in before]
    found: list[str | None] = [None] * len(after)
    for _, a, a_end, b, b_end in SequenceMatcher(
        None, [line.rstrip("\r\n") for line in before], after, autojunk=False
    ).get_opcodes():
        for i, j in zip(range(a, a_end), range(b, b_end), strict=False):
            found[j] = endings[i]
    last = commonest_ending(original)
    joined = []
    for line, ending in zip(after[:-1], found, strict=False):
        last = ending or last
        joined += [line, last]
    return "".join([*joined, after[-1]])
