"""The OpenAPI document: what can be asked, and what is answered."""

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from lcspec.server import requests, responses

_MODELS: tuple[tuple[type[BaseModel], JsonSchemaMode], ...] = (
    (requests.ChatRequest, "validation"),
    (requests.CompletionRequest, "validation"),
    (responses.ChatResponse, "serialization"),
    (responses.CompletionResponse, "serialization"),
    (responses.ModelList, "serialization"),
    (responses.ServedModel, "serialization"),
    (responses.Health, "serialization"),
    (responses.ErrorResponse, "serialization"),
)

_ERRORS = {
    400: "The request is wrong: no JSON, of another shape, out of range, not supported, or longer than the context.",
    401: "The API key is missing or wrong.",
    403: "The Host header names another server.",
    404: "There is no such path or model.",
    408: "The rest of the body did not come.",
    413: "The body is too large.",
    415: "The body is not called JSON.",
    429: "The queue is full: Retry-After says when to come again.",
    431: "The headers are too large.",
    500: "The server failed.",
    503: "There is no engine yet, or not any more, or it starts again; or there are too many connections.",
}
_OF_ALL = (400, 401, 403, 431, 500, 503)
_OF_POST = (408, 413, 415, 429)


def openapi_document() -> dict[str, Any]:
    """Return the document of this server."""
    _, schemas = models_json_schema(_MODELS, ref_template="#/components/schemas/{model}")
    return {
        "openapi": "3.1.0",
        "info": {"title": "lcspec", "version": version("lcspec"), "description": "OpenAI's API for a local model."},
        "paths": {
            "/v1/chat/completions": {"post": _post("Answer a conversation.", "ChatRequest", "ChatResponse")},
            "/v1/completions": {"post": _post("Continue texts.", "CompletionRequest", "CompletionResponse")},
            "/v1/models": {"get": _operation("List the model.", _json("ModelList"))},
            "/v1/models/{name}": {
                "get": {
                    **_operation("Describe the model.", _json("ServedModel"), 404),
                    "parameters": [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
                }
            },
            "/health": {"get": _health()},
            "/metrics": {"get": _operation("Figures for Prometheus.", _content("text/plain", {"type": "string"}))},
            "/openapi.json": {"get": _operation("This document.", _content("application/json", {"type": "object"}))},
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _post(about: str, request: str, response: str) -> dict[str, Any]:
    events = _content("text/event-stream", {"description": "With stream: true. The data of each event is a chunk."})
    body = {"required": True, "content": _json(request)}
    return {**_operation(about, {**_json(response), **events}, *_OF_POST), "requestBody": body}


def _operation(about: str, content: dict[str, Any], *more_errors: int) -> dict[str, Any]:
    responses = {"200": {"description": about, "content": content}}
    for status in sorted((*_OF_ALL, *more_errors)):
        responses[str(status)] = {"description": _ERRORS[status], "content": _json("ErrorResponse")}
    return {"summary": about, "responses": responses}


def _health() -> dict[str, Any]:
    operation = _operation("Say whether the server is ready.", _json("Health"))
    operation["responses"]["503"]["content"] = _json("Health")
    return operation


def _json(schema: str) -> dict[str, Any]:
    return _content("application/json", {"$ref": f"#/components/schemas/{schema}"})


def _content(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema}}
