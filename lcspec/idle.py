"""Work that is done while nobody asks for anything."""

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakSet

_PAUSE = 1.0  # seconds without a request
_lock = threading.Lock()
_works: "WeakSet[IdleWork]" = WeakSet()
_n_requests = 0  # that run now, on all engines of the process


class IdleWork:
    """Runs a piece of work in a thread of its own, a moment after the last request, until it is done once.

    Requests of all engines count, since they share the processor.

    Args:
        work: does it, and tells whether it is done; it is given a function that tells when it should give up,
            since a request has come.
    """

    def __init__(self, work: Callable[[Callable[[], bool]], bool]) -> None:
        self._work = work
        self._timer: threading.Timer | None = None
        self._is_over = False
        self._should_stop = threading.Event()
        with _lock:
            _works.add(self)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Be busy with a request: whatever runs gives up, and this work begins a moment after it."""
        global _n_requests
        with _lock:
            _n_requests += 1
            for work in _works:
                work._give_up()
        try:
            yield
        finally:
            with _lock:
                _n_requests -= 1
                self._begin_soon()

    def close(self) -> None:
        """Give up for good."""
        with _lock:
            self._is_over = True
            self._give_up()

    def join(self) -> None:
        """Wait until nothing runs."""
        if (timer := self._timer) is not None:
            timer.join()

    def _begin_soon(self) -> None:
        if self._is_over or (self._timer is not None and self._timer.is_alive() and not self._should_stop.is_set()):
            return
        self._should_stop = threading.Event()
        self._timer = threading.Timer(_PAUSE, self._run, (self._should_stop,))
        self._timer.daemon = True
        self._timer.start()

    def _give_up(self) -> None:
        self._should_stop.set()
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, should_stop: threading.Event) -> None:
        with _lock:
            if should_stop.is_set() or _n_requests:
                return
        if self._work(should_stop.is_set):
            self._is_over = True


@atexit.register
def _close_all() -> None:
    """End threads before the libraries that they are in."""
    works = list(_works)
    for work in works:
        work.close()
    for work in works:
        work.join()
