"""Who may use an engine now."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lcspec.errors import BusyError


class Turns:
    """Lets one generation run at a time; others wait, each in its own thread.

    A thread that waited for a generation which it has to finish itself would wait forever, so that is
    an error instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the engine and hold it.

        Raises:
            BusyError: the generation that holds it was last advanced by this thread.
        """
        if self._owner == threading.get_ident():
            raise BusyError("this thread has an unfinished stream on the engine; read it to its end or close it")
        with self._lock:
            try:
                self.advance()
                yield
            finally:
                self._owner = None

    def advance(self) -> None:
        """Note that this thread is the one that goes on with the generation."""
        self._owner = threading.get_ident()
