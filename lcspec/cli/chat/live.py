"""Lines at the end of the screen that can still change."""

import re
from collections.abc import Callable, Sequence
from typing import TextIO

from rich.cells import cell_len

from lcspec.cli.chat.terminal import size

_STYLE = re.compile(r"\x1b\[[\d;]*m")
_DRAWN = re.compile(r"[\s─▌]+")  # what depends on the width of the terminal, not on the text
_NO_WRAPPING, _WRAPPING = "\x1b[?7l", "\x1b[?7h"
_ERASE_LINE, _ERASE_BELOW = "\x1b[2K", "\x1b[J"  # a whole line, so that it is not taken to be wrapped any more


class LiveLines:
    """The last lines that were printed, redrawn in place while they change.

    Only what differs is written, at once, so that nothing flickers. Lines that have left the screen can't be
    redrawn: they stay as they are, and what is shown goes on where they end. Lines that fit are printed without
    wrapping, as terminals do not agree on the width of all characters; longer ones are wrapped by the terminal, so
    that they are copied as one line. When its width changes, it is taken to wrap what is there anew.

    Args:
        file: the terminal.
        measure: returns its columns and rows.
    """

    def __init__(self, file: TextIO, measure: Callable[[TextIO], tuple[int, int]] = size) -> None:
        self._file = file
        self._measure = measure
        self._shown: list[str] = []
        self._gone = 0  # how many of these have left the screen
        self._is_behind = False  # the cursor stands behind the last line, not at the beginning of the next

    def show(self, lines: Sequence[str]) -> None:
        """Show lines in the place of those that are not finished."""
        columns, rows = self._measure(self._file)
        heights = [_height(line, columns) for line in self._shown]
        self._gone = max(self._gone, self._first_reachable(heights, rows))
        if self._shown[: self._gone] != list(lines[: self._gone]):
            self._go_on_in(lines)
        start = self._first_difference(lines)
        if start == len(self._shown) == len(lines):
            return
        text = "\n".join(_ERASE_LINE + _wrapping(line, columns) for line in lines[start:])
        if start < len(self._shown):
            up = sum(heights[start - len(self._shown) :]) - self._is_behind
            below = (_ERASE_BELOW, "") if _WRAPPING in text else ("", _ERASE_BELOW)  # first, where rows are not known
            text = "\r" + (f"\x1b[{up}A" if up else "") + text.join(below)
        elif self._is_behind:
            text = "\n" + text
        self._file.write(_NO_WRAPPING + text + _WRAPPING)
        self._file.flush()
        self._is_behind = start < len(lines)
        self._shown[start:] = lines[start:]

    def finish(self, n_lines: int) -> None:
        """Leave the first lines as they are from now on."""
        del self._shown[:n_lines]
        self._gone = max(0, self._gone - n_lines)

    def end(self) -> None:
        """Leave all lines as they are, and the cursor below them."""
        if self._is_behind:
            self._file.write("\n")
            self._file.flush()
        self._shown, self._gone, self._is_behind = [], 0, False

    def _first_reachable(self, heights: Sequence[int], rows: int) -> int:
        """Return the first line that is still on the screen."""
        left = rows if self._is_behind else rows - 1
        for i in reversed(range(len(heights))):
            left -= heights[i]
            if left < 0:
                return i + 1
        return 0

    def _go_on_in(self, lines: Sequence[str]) -> None:
        """Find out how many of these lines have left the screen, in which they were other ones."""
        left = sum(map(_amount, self._shown[: self._gone]))
        n = 0
        while left > 0 and n < len(lines) and (left := left - _amount(lines[n])) >= 0:
            n += 1
        self._shown[: self._gone] = lines[:n]
        self._gone = n

    def _first_difference(self, lines: Sequence[str]) -> int:
        both = min(len(self._shown), len(lines))
        return next((i for i in range(self._gone, both) if self._shown[i] != lines[i]), max(both, self._gone))


def _wrapping(line: str, columns: int) -> str:
    """Return a line with what makes the terminal wrap it, if it has to be wrapped."""
    return line if _height(line, columns) == 1 else _WRAPPING + line + _NO_WRAPPING


def _height(line: str, columns: int) -> int:
    """Return how many rows a line takes."""
    text = _STYLE.sub("", line)
    if cell_len(text) <= columns:
        return 1
    height, used = 1, 0
    for width in map(cell_len, text):
        if used + width > columns:
            height, used = height + 1, 0
        used += width
    return height


def _amount(line: str) -> int:
    """Return how much text a line has, however it is laid out."""
    return len(_DRAWN.sub("", _STYLE.sub("", line)))
