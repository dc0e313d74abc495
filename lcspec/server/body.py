"""Reading a request's body, with limits."""

from typing import TypeVar

from anyio import CapacityLimiter, fail_after, to_thread
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from lcspec.server.errors import ApiError, wrong_request
from lcspec.server.limits import BODY_SECONDS, MAX_BODY

_Wanted = TypeVar("_Wanted", bound=BaseModel)


async def read_body(request: Request, wanted: type[_Wanted], limiter: CapacityLimiter) -> _Wanted:
    """Return the body as what is wanted.

    Args:
        request: what comes.
        wanted: what it must be.
        limiter: bounds how many bodies are looked at together, as each takes many times its memory for a moment.

    Raises:
        ApiError: it is no JSON (a lone surrogate or 200 levels are none, either), too large, or of another shape.
        ClientDisconnect: the client left.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = "the body must be JSON, and a header say so: 'Content-Type: application/json'"
        raise ApiError(415, message, "wrong_content_type")
    body = await _read(request)
    try:
        return await to_thread.run_sync(wanted.model_validate_json, body, limiter=limiter)
    except ValidationError as error:
        raise wrong_request(error) from error


async def _read(request: Request) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > MAX_BODY:
        raise _too_large()
    try:
        with fail_after(BODY_SECONDS):
            return await _read_all(request)
    except TimeoutError:
        raise ApiError(408, f"the body did not come within {BODY_SECONDS:g} s", "timeout") from None


async def _read_all(request: Request) -> bytes:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > MAX_BODY:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _too_large() -> ApiError:
    return ApiError(413, f"the body is larger than {MAX_BODY >> 20} MiB", "body_too_large")
