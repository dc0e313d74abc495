"""What wrong requests get: a status and one line in OpenAI's shape, and the next request is answered as ever."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import tiny
from serving import MESSAGES, Running, raw, ready, running, wait_until

from lcspec import ModelError
from lcspec.batching import BatchingEngine
from lcspec.server.limits import MAX_BODY, MAX_HEADERS
from lcspec.server.responses import ErrorResponse

CTX = 128
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture(scope="module")
def server(tiny_llama: Path) -> Iterator[Running]:
    with ready(lambda: BatchingEngine(tiny_llama, n_ctx=CTX, threads=1)) as one:
        yield one


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as one:
        yield one


def the_error(response: httpx.Response, status: int) -> dict[str, Any]:
    """Check that a response is an error of one line in OpenAI's shape."""
    assert response.status_code == status, response.text
    ErrorResponse.model_validate_json(response.content)
    error: dict[str, Any] = response.json()["error"]
    assert "\n" not in error["message"]
    return error


WRONG_CHATS: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "messages that are no list": ({"messages": "hello"}, "messages"),
    "too many messages": ({"messages": MESSAGES * 3000}, "messages"),
    "a message that is a text": ({"messages": ["hello"]}, "messages.0"),
    "no content": ({"messages": [{"role": "user"}]}, "messages.0.content"),
    "null as content": ({"messages": [{"role": "user", "content": None}]}, "messages.0.content"),
    "an unknown role": ({"messages": [{"role": "king", "content": "a"}]}, "messages.0.role"),
    "a tool's answer": ({"messages": [{"role": "tool", "content": "a", "tool_call_id": "1"}]}, "messages.0.role"),
    "an image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.0.content"),
    "tools": ({"tools": [TOOL]}, "tools"),
    "a choice of tools": ({"tool_choice": "required"}, "tool_choice"),
    "functions": ({"functions": [{"name": "f"}]}, "functions"),
    "JSON mode": ({"response_format": {"type": "json_object"}}, "response_format"),
    "a JSON schema": ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    "a grammar": ({"grammar": "root ::= 'a'"}, "grammar"),
    "audio": ({"modalities": ["text", "audio"]}, "modalities"),
    "scores without scores": ({"top_logprobs": 2}, "top_logprobs"),
    "too many scores": ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    "a number for a switch": ({"logprobs": 1}, "logprobs"),
    "a text for a number": ({"temperature": "1"}, "temperature"),
    "a negative temperature": ({"temperature": -1}, "temperature"),
    "a huge number": ({"temperature": 1e300}, "temperature"),
    "a switch for a number": ({"n": True}, "n"),
    "a fraction of a text": ({"n": 1.5}, "n"),
    "no texts": ({"n": 0}, "n"),
    "too many texts": ({"n": 100}, "n"),
    "far too many texts": ({"n": 10**30}, "n"),
    "a length below none": ({"max_tokens": -2}, "max_tokens"),
    "top_p beyond 1": ({"top_p": 1.1}, "top_p"),
    "an empty stop string": ({"stop": ""}, "stop"),
    "an empty stop string among others": ({"stop": ["a", ""]}, "stop"),
    "too many stop strings": ({"stop": ["a"] * 17}, "stop"),
    "a number as a stop string": ({"stop": [1]}, "stop"),
    "a bias beyond 100": ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    "a bias of no number": ({"logit_bias": {"5": "a"}}, "logit_bias.5"),
    "a bias of no token": ({"logit_bias": {"a": 1}}, "logit_bias.a.[key]"),
    "biases in a list": ({"logit_bias": [[5, 1]]}, "logit_bias"),
    "a prediction of another type": ({"prediction": {"type": "image", "content": "a"}}, "prediction.type"),
    "a prediction without content": ({"prediction": {"type": "content"}}, "prediction.content"),
    "options of a stream that are a text": ({"stream": True, "stream_options": "usage"}, "stream_options"),
    "a seed of more than 64 bits": ({"seed": 1 << 64}, "seed"),
}

WRONG_TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "no prompt": ({"prompt": None}, "prompt"),
    "an empty list": ({"prompt": []}, "prompt"),
    "a list of everything": ({"prompt": [1, "a"]}, "prompt"),
    "an object": ({"prompt": {"a": 1}}, "prompt"),
    "too many prompts": ({"prompt": ["a"] * 129}, "prompt"),
    "more texts than there is ever room for": ({"prompt": ["a"] * 73}, "n"),
    "an echo that is scored": ({"echo": True, "logprobs": 1}, "echo"),
    "the best of more": ({"best_of": 3}, "best_of"),
    "scores as a switch": ({"logprobs": True}, "logprobs"),
    "JSON mode": ({"response_format": {"type": "json_object"}}, "response_format"),
}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", WRONG_CHATS)
def test_a_wrong_chat(client: httpx.Client, name: str, is_stream: bool) -> None:
    body, param = WRONG_CHATS[name]
    error = the_error(client.post(CHAT, json={"messages": MESSAGES, "stream": is_stream, **body}), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param.partition(".")[0] in error["message"] or "texts" in error["message"]


@pytest.mark.parametrize("name", WRONG_TEXTS)
def test_a_wrong_completion(client: httpx.Client, name: str) -> None:
    body, param = WRONG_TEXTS[name]
    assert the_error(client.post(TEXT, json={"prompt": "abc", **body}), 400)["param"] == param


def test_an_error_does_not_repeat_all_that_it_is_about(client: httpx.Client) -> None:
    error = the_error(client.post(TEXT, json={"prompt": "a", "logit_bias": {"a" * 100_000: 1}}), 400)
    assert error["param"].startswith("logit_bias.aaa")
    assert len(error["param"] + error["message"]) < 1000


def test_a_suffix_needs_a_model_that_fills_in(client: httpx.Client) -> None:
    error = the_error(client.post(TEXT, json={"prompt": "abc", "suffix": "def"}), 400)
    assert "no tokens for filling in" in error["message"]


def test_tokens_that_there_are_not(client: httpx.Client) -> None:
    for prompt in [tiny.N_VOCAB], [-1], [1 << 40], [[97], [1 << 31]]:
        assert "is not a token" in the_error(client.post(TEXT, json={"prompt": prompt}), 400)["message"]
    for bias in tiny.N_VOCAB, 1 << 40, -1:
        the_error(client.post(TEXT, json={"prompt": "a", "logit_bias": {str(bias): 1}}), 400)
    the_error(client.post(TEXT, json={"prompt": [[97], []]}), 400)


def test_an_empty_prompt(client: httpx.Client) -> None:
    response = client.post(TEXT, json={"prompt": ""})
    assert response.status_code in (200, 400)  # a model that begins texts with a token of its own can continue it


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_prompt_beyond_the_context_is_answered_with_the_numbers(client: httpx.Client, is_stream: bool) -> None:
    error = the_error(client.post(TEXT, json={"prompt": "a" * 200, "stream": is_stream}), 400)
    assert error["code"] == "context_length_exceeded"
    assert "200 tokens" in error["message"]
    assert "128" in error["message"]
    long = [{"role": "user", "content": "a" * 200}]
    assert the_error(client.post(CHAT, json={"messages": long}), 400)["code"] == "context_length_exceeded"


def test_a_text_far_beyond_the_context_is_refused_before_its_tokens_are_made(client: httpx.Client) -> None:
    huge = "\n" * (MAX_BODY // 3)
    for path, body in (
        (TEXT, {"prompt": huge}),
        (TEXT, {"prompt": "a", "suffix": huge}),
        (CHAT, {"messages": [{"role": "user", "content": huge}]}),
        (CHAT, {"messages": MESSAGES, "prediction": {"type": "content", "content": huge}}),
    ):
        error = the_error(client.post(path, json=body), 400)
        assert error["code"] == "context_length_exceeded"
        assert "bytes is too long" in error["message"]


JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"hello",
        b'{"messages": [{"role": "user", "content": "a"}]} and more',
        b"[" * 100_000,
        b'{"messages": ' + b'{"a":' * 5000,
        b'{"a": 1e999999, "messages": NaN',
        '{"prompt": "ü"}'.encode("latin-1"),
        '{"prompt": "a"}'.encode("utf-16"),
        b'\xef\xbb\xbf{"prompt": "a"}',
    ],
)
def test_what_is_no_json(client: httpx.Client, body: bytes) -> None:
    error = the_error(client.post(TEXT, content=body, headers=JSON), 400)
    assert error["code"] == "invalid_json"
    assert error["message"].startswith("the body is no JSON: ")


@pytest.mark.parametrize("body", [b"[]", b"null", b"1", b'"a"'])
def test_json_that_is_no_object(client: httpx.Client, body: bytes) -> None:
    the_error(client.post(TEXT, content=body, headers=JSON), 400)


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "a\\ud800b"}',
        b'{"prompt": "a\\udc00"}',
        b'{"prompt": "a", "user": "\\ud83d"}',
        b'{"prompt": "a", "\\ud83d": 1}',
        b'{"prompt": "\xed\xa0\x80"}',
    ],
)
def test_a_lone_surrogate(client: httpx.Client, body: bytes) -> None:
    assert the_error(client.post(TEXT, content=body, headers=JSON), 400)["code"] == "invalid_json"


def test_characters_of_all_planes_are_text(client: httpx.Client) -> None:
    for body in b'{"prompt": "\\ud83d\\ude00\\u0000"}', '{"prompt": "😀\U0010ffff"}'.encode():
        assert client.post(TEXT, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", None])
def test_a_body_that_is_not_called_json(client: httpx.Client, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    the_error(client.post(TEXT, content=b'{"prompt": "a"}', headers=headers), 415)


def test_json_in_any_spelling(client: httpx.Client) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post(TEXT, content=b'{"prompt": "a"}', headers=headers).status_code == 200


def test_a_body_of_50_megabytes(client: httpx.Client) -> None:
    body = b'{"prompt": "' + b"a" * 50_000_000 + b'"}'
    error = the_error(client.post(TEXT, content=body, headers=JSON), 413)
    assert error["message"] == "the body is larger than 8 MiB"


def test_a_body_of_50_megabytes_in_chunks(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"prompt": "'
        for _ in range(50):
            yield b"a" * 1_000_000

    the_error(client.post(TEXT, content=chunks(), headers=JSON), 413)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"prompt": [' + b'"",' * 1_000_000 + b'""]}', "prompt"),
        (b'{"prompt": [' + b"[]," * 1_000_000 + b"[]]}", "prompt"),
        (b'{"prompt": [' + b"97," * 1_000_000 + b"97]}", None),
        (b'{"prompt": "a", "logit_bias": {' + b",".join(b'"%d": 1' % i for i in range(20_000)) + b"}}", "logit_bias"),
    ],
)
def test_lists_of_millions(client: httpx.Client, body: bytes, param: str | None) -> None:
    assert the_error(client.post(TEXT, content=body, headers=JSON), 400)["param"] == param


def test_a_body_that_is_as_large_as_allowed(client: httpx.Client) -> None:
    body = b'{"prompt": "a", "user": "' + b"a" * (MAX_BODY - 100) + b'"}'
    assert client.post(TEXT, content=body, headers=JSON).status_code == 200


@pytest.mark.parametrize("size", [MAX_HEADERS, 3 * MAX_HEADERS, 1_000_000])
def test_headers_that_are_too_large(server: Running, size: int) -> None:
    with server.client() as client:
        response = client.get("/health", headers={"x-long": "a" * size})
    assert the_error(response, 431)["code"] == "headers_too_large"


def test_what_is_no_http(server: Running) -> None:
    with raw(server.url, b"\x16\x03\x01 hello\r\n\r\n") as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_is_no_http_behind_the_beginning_of_an_answer(
    server: Running, caplog: pytest.LogCaptureFixture, is_stream: bool
) -> None:
    kind = "application/json" if is_stream else "text/plain"
    head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with raw(server.url, head.encode()) as connection:
        answer = b"" if is_stream else connection.recv(12)
        connection.sendall(b"no chunk\r\n")
        answer += connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 " if is_stream else b"HTTP/1.1 415 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/chat", "/v1/embeddings", "/v1/models/", "/health/", "/../etc/passwd", "/%00"]
)
def test_paths_that_there_are_not(client: httpx.Client, path: str) -> None:
    the_error(client.get(path), 404)


def test_a_request_of_two_lengths(server: Running) -> None:
    head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
    body = b'10\r\n{"prompt": "abc"}\r\n0\r\n\r\n'
    with raw(server.url, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + body) as connection:
        answer = connection.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


def test_a_path_without_v1_is_told_what_it_lacks(client: httpx.Client) -> None:
    assert "/v1" in the_error(client.post("/chat/completions", json={"messages": MESSAGES}), 404)["message"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CHAT), ("PUT", TEXT), ("POST", "/v1/models"), ("DELETE", "/health")]
)
def test_methods_that_there_are_not(client: httpx.Client, method: str, path: str) -> None:
    response = client.request(method, path)
    the_error(response, 405)
    assert response.headers["allow"]


def test_after_all_that_it_still_answers(client: httpx.Client, server: Running) -> None:
    assert client.get("/health").status_code == 200
    assert client.post(TEXT, json={"prompt": "abc"}).status_code == 200
    assert server.figure("lcspec_requests_active") == 0
    text = client.get("/metrics").text
    assert 'status="500"' not in text


# templates


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "has no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for a in range(10**9) %}{% for b in range(10**9) %}{% endfor %}{% endfor %}", "chat template"),
        ("{{ nothing.at.all }}", "chat template"),
    ],
)
def test_a_bad_template_is_the_problem_of_its_request_only(tmp_path: Path, template: str | None, said: str) -> None:
    path = tiny.write_model(tmp_path / "tiny.gguf", template=template)
    with ready(lambda: BatchingEngine(path, n_ctx=CTX, threads=1)) as server, server.client() as client:
        for is_stream in False, True:
            error = the_error(client.post(CHAT, json={"messages": MESSAGES, "stream": is_stream}), 400)
            assert said in error["message"]
        assert client.post(TEXT, json={"prompt": "abc"}).status_code == 200


# before and after there is an engine


def test_while_the_model_is_loading_it_says_so(tiny_llama: Path) -> None:
    import threading

    go = threading.Event()

    def load() -> BatchingEngine:
        assert go.wait(60)
        return BatchingEngine(tiny_llama, n_ctx=CTX, threads=1)

    with running(load) as server, server.client() as client:
        try:
            response = client.get("/health")
            assert (response.status_code, response.json()) == (503, {"status": "loading model"})
            response = client.post(TEXT, json={"prompt": "abc"})
            assert "loading model" in the_error(response, 503)["message"]
            assert response.headers["retry-after"]
            the_error(client.get("/v1/models"), 503)
            assert server.figure("lcspec_up") == 0
        finally:
            go.set()
        wait_until(lambda: client.get("/health").status_code == 200)
        assert client.post(TEXT, json={"prompt": "abc"}).status_code == 200


def test_a_model_that_can_not_be_loaded_ends_the_server() -> None:
    def load() -> BatchingEngine:
        raise ModelError("no such model")

    with running(load) as server:
        wait_until(lambda: server.server.should_exit)
    assert isinstance(server.service.failure, ModelError)


def test_a_crash_fails_what_was_written_and_a_second_one_all_that_comes(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lcspec.batching.batch import Batch

    def crash(_: Batch) -> None:
        raise MemoryError

    with ready(lambda: BatchingEngine(tiny_llama, n_ctx=CTX, threads=1)) as server, server.client() as client:
        expected = client.post(TEXT, json={"prompt": "abc", "temperature": 0}).json()["choices"]
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "step", crash)
            error = the_error(client.post(TEXT, json={"prompt": "abc"}), 503)
            assert error["type"] == "server_error"
        assert client.get("/health").status_code == 200
        assert client.post(TEXT, json={"prompt": "abc", "temperature": 0}).json()["choices"] == expected
        assert server.figure("lcspec_crashes_total") == 1
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "step", crash)
            response = client.post(TEXT, json={"prompt": "abc", "stream": True})
            assert '"type":"server_error"' in response.text
            assert "[DONE]" not in response.text
        response = client.post(TEXT, json={"prompt": "abc"})
        assert "is down" in the_error(response, 503)["message"]
        response = client.get("/health")
        assert (response.status_code, response.json()) == (503, {"status": "failed"})
        assert server.figure("lcspec_up") == 0
