"""Answers laid out as Markdown."""

import sys
import time

from rich.style import Style

from lcspec.cli.chat.live import LiveLines
from lcspec.cli.chat.markdown import Layout, Markdown
from lcspec.cli.chat.painter import Painter
from lcspec.cli.chat.terminal import is_light, size
from lcspec.cli.report import harmless
from lcspec.stream import Piece

_INTERVAL = 1 / 15  # seconds between drawings, at the least
_SHARE = 0.04  # of the time that drawing may take
_WAITING = "…"


class MarkdownDisplay:
    """Lays Markdown out as it comes: blocks that are finished are printed once, the last one is redrawn."""

    def __init__(self) -> None:
        self._painter = Painter()
        self._layout = Layout(self._painter.console, "ansi_light" if is_light() else "ansi_dark")
        self._lines = LiveLines(sys.stdout)
        self._text = ""  # what is not finished
        self._is_begun = False  # something is finished
        self._next = 0.0  # when it may be drawn again

    @classmethod
    def warm_up(cls) -> None:
        """Load what the first answer needs."""
        display = cls()
        markdown = Markdown("```python\n1\n```")
        display._layout.lines(markdown, markdown.blocks[0], 80)

    def begin(self) -> None:
        """Show a mark in the place of the answer."""
        self._lines.show([self._painter.text(_WAITING, Style(dim=True))])

    def add(self, piece: Piece) -> None:
        """Show its text, now or with what comes in a moment."""
        self._text += harmless(piece.text)
        started = time.monotonic()
        if self._text.strip() and started >= self._next:
            self._draw(is_growing=True)
            ended = time.monotonic()
            self._next = max(started + _INTERVAL, ended + (ended - started) / _SHARE)

    def end(self) -> None:
        """Show the rest."""
        self._draw(is_growing=False)
        self._lines.end()
        self._text, self._is_begun, self._next = "", False, 0.0

    def _draw(self, *, is_growing: bool) -> None:
        columns, rows = size(sys.stdout)
        self._layout.longest = (columns - 1) * (rows - 1)  # a line taller than the screen could not be redrawn
        markdown = Markdown(self._text, is_growing=is_growing)
        n_finished = markdown.n_finished()
        lines: list[str] = []
        end_of_finished = 0
        for i, block in enumerate(markdown.blocks):
            if block.is_spaced and (lines or self._is_begun):
                lines.append("")
            lines += map(self._painter.line, self._layout.lines(markdown, block, columns - 1))
            if i + 1 == n_finished:
                end_of_finished = len(lines)
        self._lines.show(lines)
        if n_finished:
            self._lines.finish(end_of_finished)
            rest = markdown.blocks[n_finished]
            self._text = "\n" * rest.is_spaced + "\n".join(markdown.lines[rest.start :])
            self._is_begun = True
