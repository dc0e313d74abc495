"""How an answer is shown while it comes."""

import sys
from typing import Protocol

from lcspec.cli.report import write
from lcspec.stream import Piece


class Display(Protocol):
    """Shows one answer at a time."""

    def begin(self) -> None:
        """Show that an answer is coming."""

    def add(self, piece: Piece) -> None:
        """Show more of it."""

    def end(self) -> None:
        """Show that no more comes; the cursor is then at the beginning of a line."""


class PlainDisplay:
    """Prints the text as it is, to a terminal without what would control it."""

    def begin(self) -> None:
        """Do nothing."""

    def add(self, piece: Piece) -> None:
        """Print its text."""
        write(piece.text)

    def end(self) -> None:
        """End the line."""
        sys.stdout.write("\n")
        sys.stdout.flush()
