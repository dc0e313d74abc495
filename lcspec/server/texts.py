"""Texts while they are written: from the engine's thread to the server's."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from types import TracebackType

from starlette.concurrency import run_in_threadpool

from lcspec.batching import BatchingEngine, Finished, Request, Ticket
from lcspec.errors import ClosedError, EngineDownError, LcspecError, PromptError, QueueFullError, TooLongError
from lcspec.server.errors import ApiError
from lcspec.server.service import LOG, Service, unavailable
from lcspec.stream import Piece


class Texts:
    """The texts that one request asked for. Usable as a context manager, which cancels what is not written yet.

    The engine never waits for who reads them: what was written and not read is kept, which is at most what the
    context holds.

    Args:
        service: has the engine.
        n: how many there are.
    """

    def __init__(self, service: Service, n: int) -> None:
        self.finished: list[Finished | None] = [None] * n
        """How each of them ended."""
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[tuple[int, Piece | Finished] | None] = asyncio.Queue()
        self._tickets: list[Ticket] = []

    async def begin(self, requests: Sequence[Request]) -> None:
        """Give the engine the requests, in a thread, as that may wait for others who prepare theirs.

        Raises:
            ApiError: a request can't be served; then none of them is.
        """
        engine = self._service.engine
        self._service.add(self)
        try:
            await run_in_threadpool(self._submit, engine, requests)
        except BaseException as error:
            self.end()
            if isinstance(error, LcspecError):
                raise answer_of(error) from error
            raise

    def _submit(self, engine: BatchingEngine, requests: Sequence[Request]) -> None:
        for index, request in enumerate(requests):
            self._tickets.append(engine.submit(request, partial(self._listen, index)))

    def _listen(self, index: int, what: Piece | Finished) -> None:
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._hear, index, what)

    def _hear(self, index: int, what: Piece | Finished) -> None:
        if isinstance(what, Finished):
            self.finished[index] = what
            self._service.metrics.finished(what.timings)
        self._events.put_nowait((index, what))

    def nudge(self) -> None:
        """Let who waits for what comes next go on without."""
        if self._events.empty():
            self._events.put_nowait(None)

    async def next(self) -> tuple[int, Piece | Finished] | None:
        """Return what comes next, and of which text it is; None after a nudge.

        Raises:
            ApiError: a text failed, or was cancelled from elsewhere.
        """
        if not self._events.empty():
            await asyncio.sleep(0)  # others' turn, and the moment in which it is heard that the client left
        heard = await self._events.get()
        if heard is None:
            return None
        index, what = heard
        if isinstance(what, Finished):
            if what.error is not None:
                raise answer_of(what.error) from what.error
            if what.completion.finish_reason == "cancelled":
                raise unavailable("it is ending")
        return index, what

    @property
    def is_over(self) -> bool:
        """Whether all texts ended and were read."""
        return self._events.empty() and None not in self.finished

    def cancel(self) -> None:
        """Let the engine go on without these texts."""
        for ticket in self._tickets:
            ticket.cancel()

    def end(self) -> None:
        """Cancel what is not written, and forget all."""
        self.cancel()
        self._service.remove(self)

    def __enter__(self) -> "Texts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def answer_of(error: Exception) -> ApiError:
    """Return what is answered when the engine can't do what was asked."""
    if isinstance(error, TooLongError):
        return ApiError(400, str(error), "context_length_exceeded")
    if isinstance(error, PromptError):
        return ApiError(400, str(error), "invalid_value")
    if isinstance(error, QueueFullError):
        return ApiError(429, str(error), "queue_full", headers={"Retry-After": str(max(1, ceil(error.retry_after)))})
    if isinstance(error, EngineDownError):
        return ApiError(503, str(error), "unavailable", headers={"Retry-After": "5"})
    if isinstance(error, ClosedError):
        return unavailable("it is ending")
    LOG.error("a text failed: %s: %s", type(error).__name__, error)
    return ApiError(500, "the text could not be written; the server's log says why", "internal_error")
