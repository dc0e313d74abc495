"""Servers for tests: in this process on a free port, or as the command `lcspec serve`."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from lcspec.batching import BatchingEngine
from lcspec.server.running import Server, bind, url_of
from lcspec.server.service import Service, Settings

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
PATIENCE = 60.0  # seconds until a test gives up, not what anything should take
MESSAGES = [{"role": "user", "content": "Name three colors."}]
LONG = 100_000  # tokens: more than there is room for


@dataclass
class Running:
    """A server in this process."""

    url: str
    service: Service
    server: Server

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False, **options)

    def figure(self, name: str) -> float:
        with self.client() as client:
            return figure(client.get("/metrics").text, name)


def figure(metrics: str, name: str) -> float:
    """Return the sum of a metric over its labels; 0 where there is none."""
    found = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return sum(map(float, found))


@contextmanager
def running(
    load: Callable[[], BatchingEngine],
    settings: Settings | None = None,
    *,
    drain_seconds: float = 10.0,
    send_buffer: int | None = None,
) -> Iterator[Running]:
    """Run a server until the end of the block; it may still be loading.

    `send_buffer` is how many bytes the system takes for a client that does not read.
    """
    service = Service(load, settings or Settings(name="tiny"))
    server = Server(service, drain_seconds)
    taken = bind("127.0.0.1", 0)
    if send_buffer is not None:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield Running(url_of(taken), service, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextmanager
def ready(
    load: Callable[[], BatchingEngine], settings: Settings | None = None, *, send_buffer: int | None = None
) -> Iterator[Running]:
    """Run a server until the end of the block, whose engine is loaded."""
    with running(load, settings, send_buffer=send_buffer) as one:
        wait_until(lambda: one.service.status in ("ok", "failed"))
        assert one.service.failure is None
        yield one


def wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


@dataclass
class Process:
    """The command `lcspec serve` while it runs."""

    url: str
    popen: "subprocess.Popen[str]"
    lines: list[str]

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False, **options)

    def end(self, number: int) -> int:
        """Send a signal, and return the exit status."""
        self.popen.send_signal(number)
        return self.popen.wait(PATIENCE)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return an environment in which nothing of this machine's user is changed."""
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "XDG_DATA_HOME": str(folder / "data"), **more}


@contextmanager
def process(folder: Path, *arguments: str | Path, **more: str) -> Iterator[Process]:
    """Run the command on a free port until the end of the block, and wait until it is ready."""
    popen = subprocess.Popen(
        [LCSPEC, "serve", "--port", "0", "-t", "1", *map(str, arguments)],
        env=environment(folder, **more),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert popen.stderr is not None
    lines: list[str] = []
    urls: list[str] = []

    def read() -> None:
        assert popen.stderr is not None
        for line in popen.stderr:
            lines.append(line)
            urls.extend(re.findall(r"serving .* at (http\S+)/v1", line))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wait_until(lambda: bool(urls) or popen.poll() is not None)
        assert urls, lines
        yield Process(urls[0], popen, lines)
    finally:
        popen.kill()
        popen.wait()
        reader.join()
        popen.stderr.close()


def events(text: str) -> list[Any]:
    """Return the values of a stream's events; the last one says that it is done."""
    *values, last, nothing = text.split("\n\n")
    assert last == "data: [DONE]"
    assert nothing == ""
    return [json.loads(value.removeprefix("data: ")) for value in values]


def raw(url: str, data: bytes, buffer: int | None = None) -> socket.socket:
    """Send bytes to a server, and return the connection; `buffer` is how much of the answer waits to be read."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    if buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(PATIENCE)
    connection.connect((host, int(port)))
    connection.sendall(data)
    return connection


def post(path: str, body: Any) -> bytes:
    """Return the bytes of a request."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
