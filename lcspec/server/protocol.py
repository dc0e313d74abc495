"""HTTP/1.1 as uvicorn speaks it, with answers in one shape to what is no request."""

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from lcspec.server.errors import ApiError, headers_too_large
from lcspec.server.limits import HEADER_SECONDS, MAX_HEADERS


class Protocol(H11Protocol):
    """A connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and let the application end the connection of a client that does not read."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self.loop.call_later(HEADER_SECONDS, self._end_without_request)

    def _end_without_request(self) -> None:
        if self.cycle is None:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request, or has too many headers."""
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
