"""The served OpenAPI document, and schemathesis, which asks whatever that document allows, and much that it doesn't."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Running, ready

from lcspec.batching import BatchingEngine
from lcspec.server.openapi import openapi_document

SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture(scope="module")
def server(tiny_llama: Path) -> Iterator[Running]:
    with ready(lambda: BatchingEngine(tiny_llama, n_ctx=128, threads=1)) as one:
        yield one


def test_the_document_is_served(server: Running) -> None:
    with server.client() as client:
        assert client.get("/openapi.json").json() == openapi_document()


def test_the_document_names_what_requests_may_have() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert {"messages", "max_completion_tokens", "stream", "prediction", "top_k"} <= schemas["ChatRequest"][
        "properties"
    ].keys()
    assert {"prompt", "suffix", "echo", "logprobs"} <= schemas["CompletionRequest"]["properties"].keys()
    assert {"timings", "usage", "choices"} <= schemas["ChatResponse"]["properties"].keys()


def test_what_is_served_and_what_is_documented_are_the_same(server: Running) -> None:
    app = server.server.config.app
    assert {route.path.replace(":path", "") for route in app.routes} == openapi_document()["paths"].keys()  # type: ignore[union-attr]


def test_no_request_makes_the_server_fail(server: Running, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(SCHEMATHESIS, "run", f"{server.url}/openapi.json", "--checks", CHECKS, "--max-examples", "10"),
            *("--seed", "1", "--phases", "examples,coverage,fuzzing", "--no-color"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "Tested: 6" in done.stdout
    assert server.figure("lcspec_requests_active") == 0
    assert server.figure("lcspec_crashes_total") == 0
    with server.client() as client:
        assert 'status="500"' not in client.get("/metrics").text
