"""Counts requests, and logs a line of each, which says nothing of what was written."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lcspec.server.service import LOG, Service

_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics", "/openapi.json")


class Observer:
    """Watches what is answered.

    Args:
        app: answers.
        service: has the metrics.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            path = scope["path"]
            self._service.metrics.answered(path if path in _PATHS else "other", status)
            level = logging.INFO if scope["method"] == "POST" else logging.DEBUG  # whoever watches asks often
            asked = scope["raw_path"].decode("ascii", "replace")  # as it was sent: in one line
            LOG.log(level, "%s %s: %d after %.2f s", scope["method"], asked, status, time.perf_counter() - started)
