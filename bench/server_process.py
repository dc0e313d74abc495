"""A server in a process of its own, and requests to it."""

import http.client
import json
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_START_SECONDS, ANSWER_SECONDS, _END_SECONDS = 300, 1800, 10


class PeerError(Exception):
    """A peer can't be started, or no longer answers."""


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def server_process(
    name: str, command: Sequence[str], port: int, complaint: Callable[[str], str | None] = lambda _: None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a server until the end of the context, which begins when it answers.

    Args:
        name: for errors.
        command: how it is started.
        port: where it answers `/health`.
        complaint: finds in its log what makes it useless.

    Raises:
        PeerError: it does not start, or complains.
    """
    with tempfile.NamedTemporaryFile() as log:
        try:  # in a session of its own, so that Ctrl-C ends this program first
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        except OSError as error:
            raise PeerError(f"{name} can't be started: {error}") from error
        try:
            _wait_until_ready(process, port, name, Path(log.name))
            if said := complaint(_read(Path(log.name))):
                raise PeerError(f"{name}: {said}")
            yield process
        finally:
            _terminate(process)


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, name: str, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not _is_ready(port):
        if process.poll() is not None:
            raise PeerError(f"{name} ended: {last_words(_read(log))}")
        if time.monotonic() > end:
            raise PeerError(f"{name} was not ready within {_START_SECONDS} s")
        time.sleep(0.1)


def _is_ready(port: int) -> bool:
    try:
        return request_json(port, "GET", "/health")[0] == http.client.OK
    except PeerError:
        return False


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def request_json(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Return the status and the decoded JSON of an answer.

    Raises:
        PeerError: there is no such answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PeerError(f"the server on port {port}: {error or type(error).__name__}") from error
    finally:
        connection.close()


def last_words(log: str) -> str:
    """Return the line of a server's log that says why it ended: the last one of an error, else the last one."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it said nothing"])[-1]


def end_on_signals() -> None:
    """Let SIGTERM do what Ctrl-C does, so that servers end and what was measured is reported, in the background too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
