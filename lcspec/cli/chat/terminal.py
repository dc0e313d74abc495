"""The terminal of a conversation: what it can do."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

PASTES_MARKED, _PASTES_UNMARKED = "\x1b[?2004h", "\x1b[?2004l"
"""Make the terminal tell what is pasted from what is typed, or not."""


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
    held[3] |= termios.NOFLSH  # Ctrl-C leaves what was typed before it
    if for_editor:
        held[0] &= ~termios.ICRNL  # Enter stays what an editor reads as Enter
        held[3] &= ~termios.ICANON
    try:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, held)
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


@contextmanager
def keys_kept_for_editor() -> Iterator[str]:
    """Hold keys back wherever no editor reads them, and mark what is pasted; yield what was typed before."""
    with keys_held_back(for_editor=True):
        typed = _typed()
        if typed and not typed.endswith("\r"):
            tell("\r\x1b[K")  # the editor will show it
        tell(PASTES_MARKED)
        try:
            yield typed
        finally:
            tell(_PASTES_UNMARKED)


def _typed() -> str:
    """Return what was typed when Enter still was the end of a line."""
    typed = b""
    with suppress(OSError, ValueError):
        while select.select([sys.stdin], [], [], 0)[0] and (some := os.read(sys.stdin.fileno(), 1 << 12)):
            typed += some
    return typed.decode("utf-8", "replace").replace("\n", "\r")


def tell(sequence: str) -> None:
    """Write an escape sequence to the terminal, whichever output that is, where keys can be held back."""
    if sys.platform == "win32":
        return
    file = sys.stdout if sys.stdout.isatty() else sys.stderr
    with suppress(OSError, ValueError):  # the terminal may be gone
        file.flush()
        os.write(file.fileno(), sequence.encode())


def is_light() -> bool:
    """Whether the terminal says that its background is light."""
    return os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
