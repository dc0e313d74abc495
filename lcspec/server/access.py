"""Who may ask: limits of headers, the name the server is called by, and the key."""

import hmac
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lcspec.server.errors import ApiError, headers_too_large
from lcspec.server.limits import MAX_HEADERS

_PUBLIC = ("/health",)
"""What needs no key: that a server is ready may be known to whoever starts it."""


class Access:
    """Lets a request through, or answers why not.

    Args:
        app: gets what is let through.
        key: what a client has to know; None where there is no key.
        checks_host: whether requests must call the server by a name of this machine's loopback. Where a browser was
            told that another name is this machine (DNS rebinding), a page of that name could ask otherwise.
    """

    def __init__(self, app: ASGIApp, key: str | None = None, checks_host: bool = True) -> None:
        self._app = app
        self._key = None if key is None else key.encode()
        self._checks_host = checks_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and (error := self._refusal(scope)) is not None:
            await error.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        if scope.get("state", {}).get("is_too_many"):
            told = {"Connection": "close", "Retry-After": "1"}
            return ApiError(503, "there are too many connections: close some", "too_many_connections", headers=told)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADERS:
            return headers_too_large()
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy could see another end of the body
            message = "the request has two lengths, Content-Length and Transfer-Encoding"
            return ApiError(400, message, "invalid_http", headers={"Connection": "close"})
        if self._checks_host and not is_loopback(host_name(headers.get("host", ""))):
            message = "the host of the request is not this server: call it by localhost, or give it an API key"
            return ApiError(403, message, "wrong_host")
        if self._key is not None and scope["path"] not in _PUBLIC and not self._knows_key(headers):
            message = "the API key is missing or wrong: send it as 'Authorization: Bearer KEY'"
            return ApiError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        return None

    def _knows_key(self, headers: Headers) -> bool:
        assert self._key is not None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(given.strip().encode("latin-1"), self._key)
        return is_right and scheme.lower() == "bearer"


def host_name(host: str) -> str:
    """Return the name in a Host header: without a port, and without the brackets of IPv6."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of this machine, and of nobody else's."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
