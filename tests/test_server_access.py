"""Who may ask a server: keys, hosts, and pages of other origins."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serving import Running, ready

from lcspec.batching import BatchingEngine
from lcspec.server.access import host_name, is_loopback
from lcspec.server.service import Settings

TEXT = "/v1/completions"
BODY = {"prompt": "abc", "max_tokens": 2}
KEY = "sk-Zürich1"
PAGE = "https://app.example.org"


@pytest.fixture(scope="module")
def open_server(tiny_llama: Path) -> Iterator[Running]:
    with ready(lambda: BatchingEngine(tiny_llama, n_ctx=128, threads=1)) as one:
        yield one


@pytest.fixture(scope="module")
def locked_server(tiny_llama: Path) -> Iterator[Running]:
    settings = Settings(name="tiny", key=KEY, checks_host=False, origins=(PAGE,))
    with ready(lambda: BatchingEngine(tiny_llama, n_ctx=128, threads=1), settings) as one:
        yield one


def authorization(value: str) -> dict[bytes, bytes]:
    return {b"authorization": value.encode()}


def test_the_right_key_opens(locked_server: Running) -> None:
    with locked_server.client() as client:
        for scheme in "Bearer", "bearer":
            response = client.post(TEXT, json=BODY, headers=authorization(f"{scheme} {KEY}"))
            assert response.status_code == 200


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "Bearer",
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Basic {KEY}",
        KEY,
        f"Bearer {KEY.upper()}",
    ],
)
def test_no_other_key_opens(locked_server: Running, value: str | None) -> None:
    headers = {} if value is None else authorization(value)
    with locked_server.client() as client:
        for method, path in ("POST", TEXT), ("GET", "/v1/models"), ("GET", "/metrics"), ("GET", "/openapi.json"):
            response = client.request(method, path, headers=headers)
            assert response.status_code == 401
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert KEY not in response.text


def test_whether_it_is_ready_may_be_known_without_a_key(locked_server: Running) -> None:
    with locked_server.client() as client:
        assert client.get("/health").status_code == 200


def test_without_a_key_any_key_will_do(open_server: Running) -> None:
    with open_server.client() as client:
        assert client.post(TEXT, json=BODY, headers=authorization("Bearer anything")).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "127.1.2.3:80", "[::1]:8080", "a.localhost"]
)
def test_a_server_without_a_key_is_called_by_names_of_this_machine(open_server: Running, host: str) -> None:
    with open_server.client() as client:
        assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["example.org", "example.org:8080", "localhost.example.org", "127.0.0.1.example.org", "", "0.0.0.0", "[::2]"],
)
def test_a_server_without_a_key_is_not_called_by_other_names(open_server: Running, host: str) -> None:
    with open_server.client() as client:
        response = client.post(TEXT, json=BODY, headers={"host": host})
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "wrong_host"


def test_a_server_with_a_key_may_have_any_name(locked_server: Running) -> None:
    with locked_server.client() as client:
        assert client.get("/health", headers={"host": "models.example.org"}).status_code == 200


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.b:80", "a.b"), ("[::1]", "::1"), ("[::1]:80", "::1"), ("LocalHost", "localhost"), ("", ""), ("[::1", "::1")],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_loopback() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.255.0.1", "::1", "x.localhost")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.com", "127.0.0.1.nip.io", "1")))


def preflight(client: httpx.Client, origin: str) -> httpx.Response:
    wanted = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
        "access-control-request-private-network": "true",
    }
    return client.options(TEXT, headers={"origin": origin, **wanted})


def test_pages_may_not_ask_unless_it_was_said(open_server: Running) -> None:
    with open_server.client() as client:
        assert preflight(client, PAGE).status_code == 405
        response = client.post(TEXT, json=BODY, headers={"origin": PAGE})
        assert not any(name.startswith("access-control") for name in response.headers)


def test_a_page_can_not_ask_without_a_preflight_either(open_server: Running) -> None:
    """What a form may send, or a script without asking, is no JSON."""
    with open_server.client() as client:
        response = client.post(TEXT, content=b'{"prompt": "a"}', headers={"content-type": "text/plain"})
        assert response.status_code == 415


def test_pages_of_an_origin_may_ask_if_it_was_said(locked_server: Running) -> None:
    with locked_server.client() as client:
        response = preflight(client, PAGE)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == PAGE
        assert "authorization" in response.headers["access-control-allow-headers"]
        assert response.headers["access-control-allow-private-network"] == "true"
        key = authorization(f"Bearer {KEY}")
        response = client.post(TEXT, json=BODY, headers={b"origin": PAGE.encode(), **key})
        assert response.headers["access-control-allow-origin"] == PAGE
        refused = client.post(TEXT, json=BODY, headers={"origin": PAGE})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == PAGE  # so that the page can read why


def test_pages_of_other_origins_may_not(locked_server: Running) -> None:
    with locked_server.client() as client:
        response = preflight(client, "https://evil.example.org")
        assert response.status_code == 400
        assert "access-control-allow-origin" not in response.headers
