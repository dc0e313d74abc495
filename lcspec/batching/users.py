"""Who uses a model now, so that it is not freed meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lcspec.errors import ClosedError


class Users:
    """Counts threads that use something, any number at once; whoever wants to free it waits until none does."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n = 0
        self._is_closed = False

    @contextmanager
    def use(self) -> Iterator[None]:
        """Use it.

        Raises:
            ClosedError: it is about to be freed, or was.
        """
        with self._changed:
            if self._is_closed:
                raise ClosedError("the engine is closed")
            self._n += 1
        try:
            yield
        finally:
            with self._changed:
                self._n -= 1
                self._changed.notify_all()

    def let_no_more(self) -> None:
        """Let nobody begin to use it."""
        with self._changed:
            self._is_closed = True

    def wait(self) -> None:
        """Wait until nobody uses it."""
        with self._changed:
            self._changed.wait_for(lambda: self._n == 0)
