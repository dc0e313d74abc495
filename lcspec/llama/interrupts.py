"""Ctrl-C while llama.cpp runs or calls back into Python."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred_interrupt() -> Iterator[Sequence[object]]:
    """Hold Ctrl-C back until the block ends; what is yielded is empty until it is pressed.

    An exception that a signal raises inside a callback, such as that of llama.cpp's log, can't pass
    through the library: it would be lost.
    """
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not raises or threading.current_thread() is not threading.main_thread():
        yield ()  # another handler has its own way; and in other threads Python runs none
        return
    pending: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: pending.append(frame))
    try:
        yield pending
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if pending:
            raise KeyboardInterrupt
