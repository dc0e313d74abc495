"""A server's life: it takes a port, serves, and ends with what it has begun."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn

from lcspec.errors import LcspecError
from lcspec.server.app import make_app
from lcspec.server.limits import MAX_HEADERS, SPARE_CONNECTIONS
from lcspec.server.protocol import Protocol
from lcspec.server.service import Service

_LAST_SECONDS = 5  # for clients to get the end of what was cancelled


class ServerError(LcspecError):
    """A server can't be started: its port is taken, its address is unknown."""


def bind(host: str, port: int) -> socket.socket:
    """Take a port, any that is free for 0.

    Raises:
        ServerError: it can't be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        taken = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ServerError(f"--host {host} is no address of this machine: {error.strerror or error}") from error
    try:
        if os.name == "posix":
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
        taken.listen(128)  # a second server finds the port taken at once
    except OSError as error:
        taken.close()
        raise ServerError(_why_not(error, host, port)) from error
    return taken


def _why_not(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken by another program: choose one with --port, or 0 for any that is free"
    if error.errno == errno.EACCES:
        return f"port {port} may not be taken: choose one above 1023 with --port"
    return f"{host}, port {port}, can't be served: {error.strerror}"


def url_of(taken: socket.socket) -> str:
    """Return where clients find a server."""
    host, port = taken.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves until SIGTERM or SIGINT, then takes no more requests and ends when those it has are answered.

    Args:
        service: has the engine.
        drain_seconds: how long that may take; what is not done then is cancelled. A second signal cancels at once.
        on_ready: is called when the engine is loaded.
    """

    def __init__(self, service: Service, drain_seconds: float, on_ready: Callable[[], None] = lambda: None) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(service),
                http=partial(  # type: ignore[arg-type]
                    Protocol, most_connections=service.settings.most_texts + SPARE_CONNECTIONS
                ),
                ws="none",
                lifespan="on",
                loop="asyncio",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=30,  # longer than clients keep a connection that they don't use
                h11_max_incomplete_event_size=2 * MAX_HEADERS,
                timeout_graceful_shutdown=int(drain_seconds) + 1 + _LAST_SECONDS,
            )
        )
        self._service = service
        self._drain_seconds = drain_seconds
        self._on_ready = on_ready
        self._was_ready = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; with a second signal, end."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Look, ten times a second, whether the engine is loaded, and whether to end."""
        if self._service.failure is not None:
            self.should_exit = True
        if not self._was_ready and self._service.status == "ok":
            self._was_ready = True
            self._on_ready()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End when all is answered, or the time is over."""
        self._service.is_ending = True
        clock = asyncio.get_running_loop().call_later(self._drain_seconds, self._service.cancel)
        try:
            await super().shutdown(sockets)
        finally:
            clock.cancel()


def serve_until_signal(
    service: Service, taken: socket.socket, drain_seconds: float, on_ready: Callable[[], None]
) -> None:
    """Serve at a port that was taken, until a signal.

    Raises:
        LcspecError: the engine can't be loaded.
    """
    try:
        Server(service, drain_seconds, on_ready).run(sockets=[taken])
    finally:
        service.close()
        taken.close()
    if service.failure is not None:
        raise service.failure
