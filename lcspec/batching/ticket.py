"""A request that was taken, as its caller sees it."""

import threading
from collections.abc import Callable

from lcspec.batching.request import Finished, Request, Timings
from lcspec.stream import Completion


class Ticket:
    """A request on its way. Any thread may use it.

    Args:
        number: counts the engine's requests.
        request: the request.
        cancel: tells the engine that nobody wants the rest.
    """

    def __init__(self, number: int, request: Request, cancel: Callable[[], None]) -> None:
        self.number = number
        self.request = request
        self.finished: Finished | None = None
        """How it ended; None before that."""
        self._cancel = cancel
        self._done = threading.Event()

    def cancel(self) -> None:
        """End the request: its sequence is free within one step. Does nothing when it is over."""
        if not self._done.is_set():
            self._cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end, and tell whether it came within `timeout` seconds."""
        return self._done.wait(timeout)

    @property
    def completion(self) -> Completion | None:
        """The text; None before the end."""
        return None if self.finished is None else self.finished.completion

    @property
    def timings(self) -> Timings | None:
        """What it took; None before the end."""
        return None if self.finished is None else self.finished.timings

    @property
    def error(self) -> Exception | None:
        """Why it failed; None where it did not, or has not ended."""
        return None if self.finished is None else self.finished.error

    def finish(self, finished: Finished) -> None:
        """Note the end, for the engine only."""
        self.finished = finished
        self._done.set()
