"""Server-sent events, by which a text is streamed (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
"""The last event of OpenAI's streams."""

PING = b": still here\n\n"
"""A comment, which clients skip."""

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store", "x-accel-buffering": "no"}

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def event(value: Any) -> bytes:
    """Return an event with a JSON value."""
    return b"data: " + _encode(value).encode() + b"\n\n"
