"""Styled text as escape sequences."""

import sys

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from lcspec.cli.chat.markdown import Line
from lcspec.cli.report import harmless

_SYSTEMS = {"standard": "STANDARD", "256": "EIGHT_BIT", "truecolor": "TRUECOLOR", "windows": "WINDOWS"}


class Painter:
    """Writes styled text for the terminal that standard output is."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stdout, force_terminal=True, highlight=False)
        system = self.console.color_system
        self._system = ColorSystem.STANDARD if system is None else ColorSystem[_SYSTEMS[system]]

    def line(self, line: Line) -> str:
        """Return a line with the escape sequences that style it."""
        return "".join(self.text(segment.text, segment.style) for segment in line)

    def text(self, text: str, style: Style | None) -> str:
        """Return a text with the escape sequences that style it."""
        if style is not None and self.console.no_color:
            style = style.without_color
        text = harmless(text)
        return text if style is None else style.render(text, color_system=self._system)
