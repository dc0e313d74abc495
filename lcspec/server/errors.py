"""What is answered when something is wrong: OpenAI's error object, with the status that fits."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from lcspec.server.limits import MAX_HEADERS, MAX_PARAM

_OF_STATUS = {
    404: ("not_found", "there is nothing at {path}: OpenAI's paths begin with /v1, and /openapi.json has them all"),
    405: ("method_not_allowed", "{path} is not for {method}"),
}


class ApiError(Exception):
    """An error as a client gets it.

    Args:
        status: of HTTP.
        message: one line: what is wrong, and what to do.
        code: a short name of it for programs.
        param: the field of the request that is wrong, None where it is none.
        headers: of the response.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}

    def as_dict(self) -> dict[str, Any]:
        """Return OpenAI's error object."""
        return {
            "error": {"message": self.message, "type": _kind(self.status), "param": self.param, "code": self.code},
        }

    def response(self) -> JSONResponse:
        """Return the response."""
        return JSONResponse(self.as_dict(), self.status, self.headers)


def _kind(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def headers_too_large() -> ApiError:
    """Return what is said of too many headers."""
    return ApiError(431, f"the headers are larger than {MAX_HEADERS >> 10} KiB", "headers_too_large")


def wrong_request(error: ValidationError) -> ApiError:
    """Return what is said of a body that is no JSON, or not of the shape that is wanted."""
    first = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
    message = " ".join(first["msg"].split())
    if first["type"] == "json_invalid":
        reason = message.removeprefix("Invalid JSON: ")
        if "hex escape" in reason:
            reason += ", as of half a surrogate pair, which is no character"
        return ApiError(400, f"the body is no JSON: {reason}", "invalid_json")
    place = ".".join(map(str, first["loc"]))[:MAX_PARAM] or None
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    return ApiError(400, message if place is None else f"{place}: {message}", code, place)


async def answer_http_error(request: Request, error: Exception) -> JSONResponse:
    """Answer what Starlette itself raises: there is no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    code, message = _OF_STATUS.get(error.status_code, ("http_error", error.detail))
    message = message.format(path=request.url.path, method=request.method)
    return ApiError(error.status_code, message, code, headers=error.headers).response()


async def answer_api_error(_: Request, error: Exception) -> JSONResponse:
    """Answer an error that was raised on purpose."""
    assert isinstance(error, ApiError)
    return error.response()


async def answer_bug(_: Request, error: Exception) -> JSONResponse:
    """Answer an error that nobody thought of; the log says which."""
    return ApiError(500, "the server failed; its log says why", "internal_error").response()
