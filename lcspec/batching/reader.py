"""Reads prompts beside the texts that are written."""

import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from lcspec.batching.served import Served
from lcspec.llama import Context, State, release_threads

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """A part of a prompt that is to be read.

    Attributes:
        served: whose it is.
        tokens: the prompt up to the end of the part.
        start: how many of these were read before.
        width: tokens of a pass, at most.
    """

    served: Served
    tokens: Sequence[int]
    start: int
    width: int

    @property
    def n_tokens(self) -> int:
        """Tokens of the part."""
        return len(self.tokens) - self.start

    @property
    def n_passes(self) -> int:
        """Passes that it takes."""
        return -(-self.n_tokens // self.width)


@dataclass(frozen=True)
class Read:
    """What came of it.

    Attributes:
        reading: the part.
        state: its cells, valid until the next part is begun; with those before where a cache only moves forward.
        logits: those behind its last token, shape (1, n_vocab).
    """

    reading: Reading
    state: State
    logits: NDArray[np.float32]


class PromptReader:
    """Reads prompts, a part at a time, in a cache and a thread of its own, while others go on with texts.

    In one pass with a prompt, or in turns with it, texts would stand still for as long as that takes, or it would have
    to be read in small parts. So prompts and texts have a share of the threads each: prefill apart from decoding
    (DistServe, Zhong et al. 2024) within one processor. A share alone evaluates more in proportion than all threads, as
    they don't wait for each other. The cells of a prompt are then moved into the cache of the texts, which takes a few
    microseconds a token.

    The cache of the reader keeps what it read last, for a prompt that goes on or begins like the last one.

    Args:
        context: the cache, for one prompt.
        any_cut: whether cells may be used of another prompt that begins alike.
    """

    def __init__(self, context: Context, *, any_cut: bool) -> None:
        self._context = context
        self._any_cut = any_cut
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="lcspec-reading", daemon=True)
        self._thread.start()
        self._future: Future[Read] | None = None
        self._wanted: Reading | None = None
        self._room: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._last: Callable[[], Served | None] = lambda: None  # whose prompt it read
        self.n_read = 0
        """Tokens that it read, or has begun to read, ever."""

    @property
    def is_busy(self) -> bool:
        """Whether it reads, or has read what was not taken."""
        return self._future is not None

    @property
    def n_tokens(self) -> int:
        """Tokens that it will have read."""
        return self._wanted.n_tokens if self._wanted is not None else 0

    def reads(self, served: Served) -> bool:
        """Tell whether it reads a prompt just now."""
        return self._wanted is not None and self._wanted.served is served

    def has(self, reading: Reading) -> bool:
        """Tell whether its cache has what comes before a part. If not, that has to be given to it."""
        if not self._any_cut and reading.served is not self._last():
            self._context.clear()
        return self._context.keep_prefix(reading.tokens[: reading.start + 1]) == reading.start

    def begin(self, reading: Reading, before: State | None, threads: int, *, beside: bool) -> None:
        """Begin to read a part; nothing else may be read just now.

        Args:
            reading: the part.
            before: the cells before it, where they are not there (see `has`).
            threads: threads to evaluate with.
            beside: read in the thread of its own. Otherwise this returns when all is read.
        """
        self.n_read += reading.n_tokens
        self._last = weakref.ref(reading.served)
        self._wanted = reading
        self._context.use_threads(threads)
        future: Future[Read] = Future()
        self._future = future

        def read() -> None:
            try:
                future.set_result(self._read(reading, before))
            except BaseException as error:
                future.set_exception(error)

        if beside:
            self._jobs.put(read)
        else:
            read()

    def take(self, *, wait: bool) -> Read | None:
        """Return what was read, once; None where nothing is, as yet, or is not wanted any more.

        Args:
            wait: wait for what is being read.

        Raises:
            EvaluationError: llama.cpp failed.
        """
        if self._future is None or not (wait or self._future.done()):
            return None
        future, self._future = self._future, None
        wanted, self._wanted = self._wanted, None
        try:
            read = future.result()
        except Exception:
            if wanted is not None:
                raise
            _log.warning("a prompt that is not wanted any more could not be read", exc_info=True)
            return None
        return read if wanted is not None else None

    def forget(self, served: Served) -> None:
        """Take note that a prompt is not wanted any more."""
        if self.reads(served):
            self._wanted = None

    def close(self) -> None:
        """Wait for what is being read, and free the cache."""
        self._jobs.put(None)
        self._thread.join()
        self._future = None
        self._context.close()

    def _work(self) -> None:
        for job in iter(self._jobs.get, None):
            job()
            del job  # and with it what it holds
            release_threads()

    def _read(self, reading: Reading, before: State | None) -> Read:
        context = self._context
        if before is not None:
            context.restore(before)
        ends = [*range(reading.start, len(reading.tokens), reading.width), len(reading.tokens)]
        for start, end in pairwise(ends):
            logits = context.prefill(reading.tokens[start:end])
        state = context.save(reading.start if context.can_truncate else 0, self._room)
        if state.cells.size > self._room.size:
            self._room = state.cells
        return Read(reading, state, logits[None].copy())
