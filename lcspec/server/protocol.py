"""HTTP/1.1 as uvicorn speaks it, with answers in one shape to what is no request."""

import asyncio
import json
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lcspec.server.errors import ApiError, headers_too_large
from lcspec.server.limits import HEADER_SECONDS, MAX_HEADERS, SEND_SECONDS, TOLD_CONNECTIONS


class Protocol(H11Protocol):
    """A connection.

    Args:
        most_connections: from how many on a further one is answered that it is one too many.
        options: those of uvicorn.
    """

    def __init__(self, most_connections: int, **options: Any) -> None:
        super().__init__(**options)
        self._most_connections = most_connections
        self._deadline: asyncio.TimerHandle | None = None  # for a request, while none is answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and let the application end the connection of a client that does not read."""
        super().connection_made(transport)
        n_too_many = len(self.connections) - self._most_connections
        self.app_state = {**self.app_state, "abort": transport.abort, "is_too_many": n_too_many > 0}
        if n_too_many > TOLD_CONNECTIONS:
            transport.abort()
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Go on; a request has to come in time, and the rest of one that was answered before its end."""
        super().data_received(data)
        if self._is_answering:
            self._drop_deadline()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._set_deadline()

    def on_response_complete(self) -> None:
        """Go on, and end the connection of a client that does not read the rest of its answer."""
        super().on_response_complete()
        self._watch_rest()

    def _watch_rest(self, before: int | None = None) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left == before:
            self.transport.abort()
        elif left:
            self.loop.call_later(SEND_SECONDS, self._watch_rest, left)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._drop_deadline()
        super().connection_lost(exc)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._end_without_request)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_without_request(self) -> None:
        self._deadline = None
        if not self._is_answering:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, or has too many headers; behind the beginning of an answer, just end."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if len(self.conn.trailing_data[0]) > MAX_HEADERS:
            error = headers_too_large()
        else:
            error = ApiError(400, "this is no HTTP request", "invalid_http")
        body = json.dumps(error.as_dict()).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        answer = h11.Response(status_code=error.status, headers=headers, reason=HTTPStatus(error.status).phrase)
        for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
