"""What becomes of a piece of a text, once a model has answered."""

import re
from dataclasses import dataclass

from lcspec.tasks.answers import clean, problem_of
from lcspec.tasks.line_endings import restore_endings, with_lf

_EMPTY_LINES = re.compile(r"\A(?:[^\S\r\n]*(?:\r\n|\n|\r))*")


@dataclass(frozen=True)
class EditedPiece:
    """A piece of a text that went through the model at once.

    Attributes:
        before: the piece of the original.
        after: what is in its place.
        problem: why the answer does not look like an edit of the piece; None if it does.
    """

    before: str
    after: str
    problem: str | None = None


def edited_piece(part: str, answer: str, instruction: str, is_complete: bool, usual: str) -> EditedPiece:
    """Return a piece with what a model's answer puts in its place.

    Args:
        part: the piece of the original, with whatever blanks are around it.
        answer: all that the model wrote.
        instruction: what it was to do.
        is_complete: whether the model came to an end, and was not cut off.
        usual: what ends lines where the piece has only one.
    """
    head, body, tail = cut_blanks(part)
    original = with_lf(body)
    edited = _indented(clean(with_lf(answer), original), original)
    problem = problem_of(edited, original, instruction, is_complete=is_complete)
    after = part if edited == original else head + restore_endings(edited, body, usual) + tail
    return EditedPiece(part, after, problem)


def cut_blanks(part: str) -> tuple[str, str, str]:
    """Return the empty lines before what is in a piece, that, and the blanks behind it."""
    rest = _EMPTY_LINES.sub("", part)
    body = rest.rstrip()
    return part[: len(part) - len(rest)], body, rest[len(body) :]


def _indented(edited: str, original: str) -> str:
    """Give the first line back its indentation, if it lost it and the next one did not."""
    margin = _margin(original)
    if not margin or _margin(edited):
        return edited
    second, second_before = (
        next((_margin(line) for line in text.split("\n")[1:] if line.strip()), None) for text in (edited, original)
    )
    return margin + edited if second == second_before or second is None else edited


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
