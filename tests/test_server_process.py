"""`lcspec serve` as a process: how it starts, what it says, how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import tiny
from click.testing import CliRunner, Result
from serving import LCSPEC, MESSAGES, PATIENCE, Process, environment, events, figure, post, process, raw, wait_until

import lcspec.server
from lcspec.cli import main

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SHORT = {"prompt": "abc", "max_tokens": 8, "temperature": 0}
FORBIDDEN = {"logit_bias": {str(tiny.EOS): -100, str(tiny.END_OF_TURN): -100}}


def run(*arguments: str | Path, **more: str) -> Result:
    """Run the command where it can't serve."""
    return CliRunner().invoke(main, ["serve", *map(str, arguments)], env=more)


def the_error(done: Result, status: int = 1) -> str:
    assert done.exit_code == status, done.stderr
    assert done.stdout == ""
    *_, line = done.stderr.splitlines()
    assert line.startswith("Error: ")
    if status == 1:
        assert len(done.stderr.splitlines()) == 1
    return line


@pytest.fixture(scope="module")
def server(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with process(tmp_path_factory.mktemp("served"), "-m", tiny_llama, "-c", "512") as one:
        yield one


def test_it_says_where_it_is_and_with_what(server: Process) -> None:
    (line,) = [line for line in server.lines if "serving" in line]
    assert re.fullmatch(
        r"lcspec: serving llama at http://127\.0\.0\.1:\d+/v1 "
        r"\(8 texts at once, 64 may wait; 512 tokens of context; drafter auto\)\n",
        line,
    )


def test_the_log_has_no_text(server: Process) -> None:
    with server.client() as client:
        assert client.post(TEXT, json={**SHORT, "prompt": "a secret"}).status_code == 200
        assert client.post(CHAT, json={"messages": "a secret"}).status_code == 400
        assert client.get("/health").status_code == 200
    wait_until(lambda: any(f"POST {CHAT}: 400 after" in line for line in server.lines))
    assert any(f"POST {TEXT}: 200 after" in line for line in server.lines)
    assert not any("secret" in line or "health" in line for line in server.lines)


def test_a_second_server_finds_the_port_taken(server: Process, tiny_llama: Path) -> None:
    port = server.url.rpartition(":")[2]
    assert f"port {port} is taken by another program" in the_error(run("-m", tiny_llama, "--port", port))


def test_prompts_are_logged_if_that_is_wanted(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "--log-prompts", "--alias", "mine") as server, server.client() as client:
        assert client.post(TEXT, json={**SHORT, "prompt": "no\nsecret\x1b[2J"}).json()["model"] == "mine"
        assert client.post(CHAT, json={"messages": MESSAGES, "max_tokens": 2}).status_code == 200
        wait_until(lambda: any("three colors" in line for line in server.lines))
        (line,) = [line for line in server.lines if "secret" in line]
        assert "\x1b" not in line
        assert line.startswith(f"lcspec: {TEXT}: ")


def test_a_path_is_logged_in_one_line(server: Process) -> None:
    with server.client() as client:
        client.post("/no%0Alcspec:%20POST%20/fake%1B[31m")
    wait_until(lambda: any("fake" in line for line in server.lines))
    (line,) = [line for line in server.lines if "fake" in line]
    assert line.startswith("lcspec: POST /no%0Alcspec:%20POST%20/fake%1B[31m: 404 after ")


def test_a_quiet_server_says_nothing(tiny_llama: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    popen = subprocess.Popen(
        [LCSPEC, "serve", "-q", "-m", tiny_llama, "-c", "9000", "-t", "1", "--port", str(port)],
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:

            def is_ready() -> bool:
                try:
                    return client.get("/health").status_code == 200
                except httpx.TransportError:
                    return False

            wait_until(is_ready)
            assert client.post(TEXT, json=SHORT).status_code == 200
        popen.send_signal(signal.SIGTERM)
        assert popen.communicate(timeout=PATIENCE) == (b"", b"")
        assert popen.returncode == 0
    finally:
        popen.kill()
        popen.wait()


# how it ends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_come_to_their_end(tiny_llama: Path, tmp_path: Path, number: int) -> None:
    with process(tmp_path, "-m", tiny_llama, "-c", "2000") as server:
        body = {**SHORT, **FORBIDDEN, "max_tokens": 1500, "stream": True}
        with raw(server.url, post(TEXT, body)) as connection:
            stream = connection.makefile("rb")
            for _ in range(20):
                stream.readline()
            status = server.end(number)
            rest = stream.read().decode()
        assert status == 0
        assert rest.endswith("0\r\n\r\n")
        assert '"finish_reason":"length"' in rest
        assert "data: [DONE]" in rest
        with pytest.raises(httpx.ConnectError):
            server.client().get("/health")


def test_what_is_not_done_in_time_is_cut_off(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "-c", "30000", "--drain-timeout", "0.2") as server:
        body = {**SHORT, **FORBIDDEN, "max_tokens": -1, "stream": True}
        with raw(server.url, post(TEXT, body)) as connection:
            stream = connection.makefile("rb")
            for _ in range(20):
                stream.readline()
            assert server.end(signal.SIGTERM) == 0
            rest = stream.read().decode()
        assert '"code":"unavailable"' in rest
        assert "[DONE]" not in rest


def test_a_second_signal_does_not_wait(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "-c", "30000", "--drain-timeout", "1000") as server:
        body = {**SHORT, **FORBIDDEN, "max_tokens": -1, "stream": True}
        with raw(server.url, post(TEXT, body)) as connection:
            assert connection.recv(1000)
            server.popen.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                server.popen.wait(0.7)
            assert server.end(signal.SIGINT) == 0


def test_a_server_that_was_killed_starts_again_at_the_same_port(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "-c", "30000") as server:
        port = server.url.rpartition(":")[2]
        body = {**SHORT, **FORBIDDEN, "max_tokens": -1, "stream": True}
        with raw(server.url, post(TEXT, body)) as connection:
            assert connection.recv(1000)
            assert server.end(signal.SIGKILL) == -signal.SIGKILL
            while connection.recv(1 << 16):
                pass
    with process(tmp_path, "-m", tiny_llama, "--port", port) as server, server.client() as client:
        assert server.url.endswith(port)
        assert client.post(TEXT, json=SHORT).status_code == 200


def test_clients_that_leave_leave_nothing(server: Process) -> None:
    with server.client() as client:
        for _ in range(10):
            raw(server.url, post(TEXT, {**SHORT, **FORBIDDEN, "max_tokens": -1, "stream": True})).close()

        def is_idle() -> bool:
            text = client.get("/metrics").text
            return figure(text, "lcspec_requests_active") + figure(text, "lcspec_requests_queued") == 0

        wait_until(is_idle)
        assert len(events(client.post(TEXT, json={**SHORT, "stream": True}).text)) > 1
    assert not any("Traceback" in line or "raised" in line for line in server.lines)


# what can't be served


def test_others_are_not_let_in_without_a_key(tiny_llama: Path) -> None:
    for host in "0.0.0.0", "example.org":
        line = the_error(run("-m", tiny_llama, "--host", host), 2)
        assert "--insecure" in line
        assert "LCSPEC_API_KEY" in line


def test_others_are_let_in_with_a_key(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "--host", "0.0.0.0", LCSPEC_API_KEY="secret") as server:
        assert any("with an API key" in line for line in server.lines)
        assert not any("warning: anyone" in line or "secret" in line for line in server.lines)
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        ask = {"url": url + TEXT, "json": SHORT, "trust_env": False}
        assert httpx.post(**ask).status_code == 401
        assert httpx.post(**ask, headers={"authorization": "Bearer secret", "host": "a.example"}).status_code == 200


def test_anyone_is_let_in_if_that_is_said_with_a_warning(tiny_llama: Path, tmp_path: Path) -> None:
    with process(tmp_path, "-m", tiny_llama, "--host", "0.0.0.0", "--insecure") as server:
        assert any("warning: anyone who reaches 0.0.0.0 can use this server" in line for line in server.lines)
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"host": "a.example"}
        assert httpx.post(url + TEXT, json=SHORT, headers=headers, trust_env=False).status_code == 200


def test_a_port_that_may_not_be_taken(tiny_llama: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may take any port")
    assert "choose one above 1023" in the_error(run("-m", tiny_llama, "--port", "80"))


def test_an_address_that_is_none(tiny_llama: Path) -> None:
    line = the_error(run("-m", tiny_llama, "--host", "no.such.host.invalid", "--api-key", "a"))
    assert "is no address of this machine" in line
    line = the_error(run("-m", tiny_llama, "--host", "192.0.2.1", "--api-key", "a", "--port", "0"))
    assert "192.0.2.1" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api-key", ""],
        ["--api-key", " a"],
        ["--api-key", "a\nb"],
        ["--cors", "example.org"],
        ["--port", "70000"],
        ["--parallel", "0"],
        ["--queue", "-1"],
        ["--drafter", "model"],
    ],
)
def test_wrong_options(arguments: list[str]) -> None:
    the_error(run("-m", "x.gguf", *arguments), 2)


def test_models_that_can_not_be_served(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF and nothing more")
    for model in tmp_path / "missing.gguf", damaged:
        the_error(run("-m", model, "--port", "0"))
    assert "is neither a file nor in the catalog" in the_error(run("-m", "neither-this", "--port", "0"))


@pytest.mark.parametrize("missing", ["uvicorn", "starlette", "pydantic", "prometheus_client"])
def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(lcspec, "server", lcspec.server)  # to be put back, as its modules are
    for name in [name for name in sys.modules if name.startswith("lcspec.server")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [missing, *(name for name in sys.modules if name.startswith(f"{missing}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert the_error(run("-m", "x.gguf")).endswith("pip install 'lcspec[server]'")


def test_the_help_has_examples() -> None:
    done = run("--help")
    assert done.exit_code == 0
    assert "curl localhost:8080/v1/chat/completions" in done.stdout
    body = re.search(r"-d '(.*)'", done.stdout)
    assert body is not None
    json.loads(body[1])
