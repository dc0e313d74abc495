"""Answers coloured by who drafted them."""

import sys

import click
from rich.style import Style

from lcspec.cli.chat.painter import Painter
from lcspec.cli.report import is_quiet
from lcspec.stream import Piece

_DRAFTED = {"lookup": Style(color="green"), "model": Style(color="magenta"), "head": Style(color="cyan")}
_WITHOUT_COLOR = {"lookup": Style(underline=True), "model": Style(bold=True), "head": Style(italic=True)}


class DraftsDisplay:
    """Prints the text plainly, coloured by who drafted it."""

    def __init__(self) -> None:
        self._painter = Painter()
        self._is_explained = False

    def begin(self) -> None:
        """Say once what the colours mean."""
        if not (self._is_explained or is_quiet()):
            lookup, model = (self._painter.text(name, self._style(name)) for name in ("lookup", "model"))
            click.echo(f"lcspec: from {lookup}, from the draft {model}, and the model's own tokens", err=True)
        self._is_explained = True

    def add(self, piece: Piece) -> None:
        """Print its text."""
        style = None if piece.drafter is None else self._style(piece.drafter)
        sys.stdout.write("\n".join(self._painter.text(line, style) for line in piece.text.split("\n")))
        sys.stdout.flush()

    def end(self) -> None:
        """End the line."""
        sys.stdout.write("\n")
        sys.stdout.flush()

    def _style(self, drafter: str) -> Style:
        styles = _WITHOUT_COLOR if self._painter.console.no_color else _DRAFTED
        return styles.get(drafter, Style(color="blue"))
