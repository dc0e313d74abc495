"""Clients that leave, that do not read, and that are too many."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiny
from serving import LONG, MESSAGES, PATIENCE, Running, events, post, raw, ready, wait_until

from lcspec.batching import BatchingEngine
from lcspec.chat_template import ChatTemplate
from lcspec.server import patience
from lcspec.server.limits import MAX_READING
from lcspec.server.service import Settings

CTX = 30_000  # a text that fills it takes longer than any of these tests
QUEUE = 6
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SHORT = {"prompt": "abc", "max_tokens": 8, "temperature": 0}
ENDLESS = {"prompt": "abc", "max_tokens": LONG, "logit_bias": {str(tiny.EOS): -100, str(tiny.END_OF_TURN): -100}}


@pytest.fixture
def server(tiny_llama: Path) -> Iterator[Running]:
    def load() -> BatchingEngine:
        return BatchingEngine(tiny_llama, n_ctx=CTX, threads=1, max_sequences=2, queue_limit=QUEUE, exact=True)

    with ready(load, Settings(name="tiny", most_texts=64), send_buffer=4096) as one:
        yield one


def busy(server: Running) -> int:
    """Return how many texts are written or wait."""
    return int(server.figure("lcspec_requests_active") + server.figure("lcspec_requests_queued"))


def wait_for_texts(server: Running, n: int) -> None:
    wait_until(lambda: busy(server) == n)


def assert_answers(server: Running) -> None:
    """Check that another client is served, as if nothing had been."""
    wait_for_texts(server, 0)
    with server.client() as client:
        response = client.post(TEXT, json=SHORT)
        assert response.status_code == 200
        assert response.json()["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_client_that_leaves_frees_its_place(server: Running, is_stream: bool, path: str) -> None:
    body = {**ENDLESS, "messages": MESSAGES, "stream": is_stream}
    with raw(server.url, post(path, body)) as connection:
        wait_for_texts(server, 1)
        if is_stream:
            assert connection.recv(100)
    assert_answers(server)
    assert server.figure("lcspec_requests_total") >= 2


def test_a_client_that_leaves_takes_all_its_texts_along(server: Running) -> None:
    with raw(server.url, post(TEXT, {**ENDLESS, "n": 4, "stream": True})):
        wait_for_texts(server, 4)
    assert_answers(server)


def test_a_client_that_waits_may_leave_too(server: Running) -> None:
    with raw(server.url, post(TEXT, {**ENDLESS, "n": 2})):
        wait_for_texts(server, 2)
        with raw(server.url, post(TEXT, ENDLESS)), raw(server.url, post(TEXT, {**ENDLESS, "stream": True})):
            wait_for_texts(server, 4)
        wait_for_texts(server, 2)
    assert_answers(server)


def test_a_client_that_is_gone_before_it_is_answered(server: Running) -> None:
    for _ in range(20):
        raw(server.url, post(TEXT, {**ENDLESS, "stream": True})).close()
    assert_answers(server)


def test_a_client_that_leaves_in_the_midst_of_its_body(server: Running) -> None:
    for end in 60, 150, -1:
        raw(server.url, post(TEXT, ENDLESS)[:end]).close()
    assert_answers(server)


def test_a_full_queue(server: Running) -> None:
    with contextlib.ExitStack() as stack, server.client() as client:
        while server.figure("lcspec_requests_refused_total") == 0:
            stack.enter_context(raw(server.url, post(TEXT, ENDLESS)))
            time.sleep(0.02)
        for is_stream in False, True:
            response = client.post(TEXT, json={**SHORT, "stream": is_stream})
            assert response.status_code == 429
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
            assert int(response.headers["retry-after"]) >= 1
        assert client.get("/health").status_code == 200
        assert QUEUE <= busy(server) <= 2 + QUEUE
    assert_answers(server)


def test_texts_of_which_one_does_not_fit_into_the_queue_leave_nothing_behind(server: Running) -> None:
    with server.client() as client:
        assert client.post(TEXT, json={**ENDLESS, "n": 20}).status_code == 429
    assert_answers(server)


def test_a_client_that_does_not_read_does_not_stall_others(server: Running) -> None:
    with raw(server.url, post(TEXT, {**ENDLESS, "stream": True, "logprobs": 20}), 4096):
        wait_for_texts(server, 1)
        with server.client() as client:
            for _ in range(10):
                assert client.get("/health").status_code == 200
        written = server.figure("lcspec_tokens_total")
        wait_until(lambda: server.figure("lcspec_tokens_total") > written + 500 or busy(server) == 0)
    assert_answers(server)


def test_a_client_that_reads_nothing_for_long_is_let_go(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SEND_SECONDS", 0.2)
    with raw(server.url, post(TEXT, {**ENDLESS, "stream": True, "logprobs": 20}), 4096) as connection:
        wait_for_texts(server, 1)
        wait_for_texts(server, 0)
        assert b"[DONE]" not in connection.makefile("rb").read()
    assert_answers(server)


@pytest.mark.parametrize("closes", [False, True])
def test_a_client_that_does_not_read_its_answer_is_let_go(
    server: Running, monkeypatch: pytest.MonkeyPatch, closes: bool
) -> None:
    monkeypatch.setattr("lcspec.server.protocol.SEND_SECONDS", 0.2)
    asked = post(TEXT, {"prompt": "a" * 29_000, "echo": True, "max_tokens": 0, "n": QUEUE})
    if closes:
        asked = asked.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    connections = server.server.server_state.connections
    with raw(server.url, asked, buffer=4096):
        wait_until(lambda: any(one.transport.get_write_buffer_size() > 50_000 for one in list(connections)))
        wait_until(lambda: not connections)
    assert_answers(server)


def test_a_client_that_reads_its_answer_slowly_gets_all_of_it(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.server.protocol.SEND_SECONDS", 0.1)
    asked = post(TEXT, {"prompt": "a" * 29_000, "echo": True, "max_tokens": 0, "n": QUEUE})
    with raw(server.url, asked, buffer=4096) as connection:
        answer = b""
        while len(answer) < QUEUE * 29_000:
            answer += connection.recv(16_000)
            time.sleep(0.03)
    assert_answers(server)


def test_a_stream_without_text_gets_comments(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PING_SECONDS", 0.05)
    with raw(server.url, post(TEXT, {**ENDLESS, "n": 2})) as blocking:
        wait_until(lambda: server.figure("lcspec_requests_active") >= 1)
        blocked = raw(server.url, post(TEXT, {**SHORT, "stream": True}))
        with blocked:
            data = b""
            while b": still here\n\n" not in data:
                data += blocked.recv(1000)
            blocking.close()
            while b"[DONE]" not in data:
                data += blocked.recv(1000)
    assert_answers(server)


def test_a_body_that_does_not_come(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.server.body.BODY_SECONDS", 0.1)
    with raw(server.url, post(TEXT, SHORT)[:-5]) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")
    assert_answers(server)


def test_a_body_that_comes_drop_by_drop_does_not_take_for_ever(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcspec.server.body.BODY_SECONDS", 0.3)
    with raw(server.url, post(TEXT, {**SHORT, "user": "a" * 1000})[:-1000]) as connection:
        connection.settimeout(0.05)
        answer = b""
        for _ in range(100):
            connection.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(1000)
                break
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert_answers(server)


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(b"GET /health HTTP/1.1\r\nHost: local", id="the beginning of another request"),
        pytest.param(post(TEXT, SHORT)[:-5].replace(b"/json", b"/text"), id="an answer before the body's end"),
    ],
)
def test_a_client_that_does_not_go_on_after_an_answer_is_let_go(
    server: Running, monkeypatch: pytest.MonkeyPatch, later: bytes
) -> None:
    monkeypatch.setattr("lcspec.server.protocol.HEADER_SECONDS", 0.3)
    with raw(server.url, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        answer = b""
        while not answer.endswith(b'{"status":"ok"}'):
            answer += connection.recv(1000)
        connection.sendall(later)
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            connection.sendall(b"1")
            connection.settimeout(5)
            while connection.recv(1000):
                pass
            return
    pytest.fail("the connection is still open")


def test_a_client_that_is_answered_is_not_let_go(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.server.protocol.HEADER_SECONDS", 0.1)
    with server.client() as client, client.stream("POST", TEXT, json={**ENDLESS, "stream": True}) as response:
        end = time.monotonic() + 0.5
        for _ in response.iter_lines():
            if time.monotonic() > end:
                break
    assert_answers(server)


def test_too_many_connections_are_told_so(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.server.running.SPARE_CONNECTIONS", 2)
    monkeypatch.setattr("lcspec.server.protocol.TOLD_CONNECTIONS", 3)
    settings = Settings(name="tiny", most_texts=1)
    with (
        ready(lambda: BatchingEngine(tiny_llama, n_ctx=64, threads=1), settings) as server,
        contextlib.ExitStack() as stack,
    ):
        wait_until(lambda: not server.server.server_state.connections)
        for _ in range(3):
            stack.enter_context(raw(server.url, b""))
        wait_until(lambda: len(server.server.server_state.connections) == 3)
        with server.client() as client:
            response = client.get("/health")
            assert response.status_code == 503
            assert response.json()["error"]["code"] == "too_many_connections"
            assert response.headers["connection"] == "close"
        for _ in range(3):
            stack.enter_context(raw(server.url, b""))
        with raw(server.url, b"") as one, contextlib.suppress(ConnectionResetError):
            assert one.recv(100) == b""
        stack.close()
        wait_until(lambda: not server.server.server_state.connections)
        assert server.figure("lcspec_http_requests_total") > 0


def test_a_template_that_takes_long_keeps_nobody_from_being_served(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendering, go_on = threading.Semaphore(0), threading.Event()

    def render(self: ChatTemplate, messages: Any) -> str:
        rendering.release()
        assert go_on.wait(PATIENCE)
        return "abc"

    monkeypatch.setattr(ChatTemplate, "render", render)
    with contextlib.ExitStack() as stack:
        stack.callback(go_on.set)
        for _ in range(50):  # more than there are threads for all that needs one
            stack.enter_context(raw(server.url, post(CHAT, {"messages": MESSAGES, "max_tokens": 1})))
        assert rendering.acquire(timeout=PATIENCE)
        with server.client() as client:
            assert client.post(TEXT, json=SHORT).status_code == 200


def test_a_client_that_asks_nothing_is_let_go(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.server.protocol.HEADER_SECONDS", 0.1)
    for beginning in b"", b"GET /health HTTP/1.1\r\nHost: local":
        with raw(server.url, beginning) as connection, contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    assert_answers(server)


def test_bodies_that_do_not_come_are_not_too_many(server: Running) -> None:
    with contextlib.ExitStack() as stack, server.client() as client:
        for _ in range(MAX_READING):
            stack.enter_context(raw(server.url, post(TEXT, SHORT)[:-5]))
        wait_until(lambda: client.post(TEXT, json=SHORT).status_code == 429)
        assert client.get("/health").status_code == 200
    assert_answers(server)


def test_clients_at_once_get_what_they_would_get_alone(server: Running) -> None:
    def text_of(prompt: str) -> Any:
        with server.client() as client:
            for _ in range(1000):
                response = client.post(TEXT, json={"prompt": prompt, "max_tokens": 30, "temperature": 0})
                if response.status_code != 429:
                    return response.json()["choices"][0]["text"]
                time.sleep(0.05)
        raise AssertionError("the queue stayed full")

    prompts = [f"prompt {i} " * (i % 5 + 1) for i in range(16)]
    alone = [text_of(prompt) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(text_of, prompts)) == alone


def test_draining_ends_what_was_begun_and_begins_nothing(server: Running) -> None:
    with server.client() as client, ThreadPoolExecutor(1) as pool:
        client.get("/health")  # the connection is open
        answer = pool.submit(
            httpx.post,
            server.url + TEXT,
            json={**SHORT, "max_tokens": 400, "stream": True},
            timeout=60,
            trust_env=False,
        )
        wait_until(lambda: busy(server) == 1 or answer.done())
        server.server.should_exit = True
        assert "".join(one["choices"][0]["text"] for one in events(answer.result().text))


def test_what_is_not_done_in_time_is_told_so(tiny_llama: Path) -> None:
    from serving import running

    with running(lambda: BatchingEngine(tiny_llama, n_ctx=CTX, threads=1), drain_seconds=0.1) as server:
        wait_until(lambda: server.service.status == "ok")
        with (
            raw(server.url, post(TEXT, {**ENDLESS, "stream": True})) as stream,
            raw(server.url, post(TEXT, ENDLESS)) as whole,
        ):
            wait_for_texts(server, 2)
            server.server.should_exit = True
            streamed, answered = (one.makefile("rb").read().decode() for one in (stream, whole))
    assert streamed.startswith("HTTP/1.1 200 ")
    assert '"error":{"message":"the server is not ready: it is ending"' in streamed
    assert "[DONE]" not in streamed
    assert answered.startswith("HTTP/1.1 503 ")
    assert json.loads(answered.partition("\r\n\r\n")[2])["error"]["code"] == "unavailable"


def test_many_clients_of_one_loop(server: Running) -> None:
    """Streams that are read side by side, half of them left in the midst."""

    async def one(client: httpx.AsyncClient, i: int) -> str:
        text = ""
        body = {"prompt": f"prompt {i}", "max_tokens": 40, "temperature": 0, "stream": True}
        for _ in range(1000):
            async with client.stream("POST", TEXT, json=body) as response:
                if response.status_code == 429:
                    await asyncio.sleep(0.05)
                    continue
                async for line in response.aiter_lines():
                    if i % 2 and len(text) > 10:
                        return ""
                    if line.startswith("data: {"):
                        text += json.loads(line[6:])["choices"][0]["text"]
                return text
        raise AssertionError("the queue stayed full")

    async def all_of_them() -> list[str]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as client:
            return await asyncio.gather(*(one(client, i) for i in range(20)))

    first, again = asyncio.run(all_of_them()), asyncio.run(all_of_them())
    assert first == again
    assert all(first[::2])
    assert_answers(server)
