"""The terminal of a conversation: what it can do."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


def size(file: TextIO) -> tuple[int, int]:
    """Return how many columns and rows the terminal has that `file` is."""
    columns = rows = 0
    with suppress(OSError, ValueError):
        columns, rows = os.get_terminal_size(file.fileno())
    return columns or 80, rows or 24


@contextmanager
def keys_held_back(*, for_editor: bool) -> Iterator[None]:
    """Keep what is typed off the screen until the block ends; then it can be read. Ctrl-C still interrupts.

    Args:
        for_editor: each key is read by itself, not a line.
    """
    try:
        import termios
    except ImportError:  # not a Unix
        yield
        return
    try:
        before = termios.tcgetattr(sys.stdin)
    except (termios.error, OSError, ValueError):  # not a terminal
        yield
        return
    held = [*before]
    held[3] &= ~termios.ECHO
    if for_editor:
        held[0] &= ~termios.ICRNL  # Enter stays what an editor reads as Enter
        held[3] &= ~termios.ICANON
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, held)
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


def is_light() -> bool:
    """Whether the terminal says that its background is light."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
