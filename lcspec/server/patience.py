"""How long a stream waits for its client, and its client for it."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Message, Send

from lcspec.server.limits import PING_SECONDS, SEND_SECONDS


class Patience:
    """Sends, ends the connection of a client that reads nothing for long, and says when nothing was sent for long.

    One clock looks after that now and then, as a timer for each piece would take more than to send it. Usable as a
    context manager.

    Args:
        send: sends a message; waits as long as the client does not read.
        abort: ends the connection.
        nudge: is called when nothing was sent for long.
    """

    def __init__(self, send: Send, abort: Callable[[], None], nudge: Callable[[], None]) -> None:
        self._send = send
        self._abort = abort
        self._nudge = nudge
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()  # the last message, or the one that waits
        self._is_sending = False
        self._clock: asyncio.TimerHandle | None = None

    async def send(self, message: Message) -> None:
        """Send a message."""
        self._since, self._is_sending = self._loop.time(), True
        await self._send(message)
        self._since, self._is_sending = self._loop.time(), False

    def _look(self) -> None:
        passed = self._loop.time() - self._since
        limit = SEND_SECONDS if self._is_sending else PING_SECONDS
        if passed >= limit:
            if self._is_sending:
                self._abort()
                return
            self._nudge()
            passed = 0.0
        self._clock = self._loop.call_later(min(limit - passed, PING_SECONDS, SEND_SECONDS), self._look)

    def __enter__(self) -> "Patience":
        self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clock is not None:
            self._clock.cancel()
