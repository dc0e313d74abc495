"""Work that is done while nobody asks for anything."""

import atexit
import threading
from collections.abc import Callable
from weakref import WeakSet

_PAUSE = 1.0  # seconds without a request
_open: "WeakSet[IdleWork]" = WeakSet()


class IdleWork:
    """Runs a piece of work in a thread of its own, a moment after the last request, until it is done once.

    Args:
        work: does it, and tells whether it is done; it is given a function that tells when it should give up,
            since a request has come.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], bool]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._runs = False
        self._is_over = False
        self._is_wanted_back = threading.Event()
        _open.add(self)

    def begin_soon(self) -> None:
        """Begin when there was no request for a moment."""
        with self._lock:
            if self._is_over or self._timer is not None:
                return
            self._is_wanted_back.clear()
            self._timer = threading.Timer(_PAUSE, self._run)
            self._timer.daemon = True
            self._timer.start()

    def give_up(self) -> None:
        """Don't begin, or stop as soon as possible: there is a request."""
        with self._lock:
            self._is_wanted_back.set()
            if self._timer is not None:
                self._timer.cancel()
                if not self._runs:
                    self._timer = None

    def close(self) -> None:
        """Give up for good."""
        self._is_over = True
        self.give_up()

    def join(self) -> None:
        """Wait until nothing runs."""
        timer = self._timer
        if timer is not None:
            timer.join()

    def _run(self) -> None:
        with self._lock:
            if self._is_wanted_back.is_set():
                return
            self._runs = True
        done = False
        try:
            done = self._work(self._is_wanted_back.is_set)
        finally:
            with self._lock:
                self._is_over = self._is_over or done
                self._runs, self._timer = False, None


@atexit.register
def _close_all() -> None:
    """End threads before the libraries that they are in."""
    works = list(_open)
    for work in works:
        work.close()
    for work in works:
        work.join()
