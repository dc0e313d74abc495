"""What both kinds of requests have in common, from the body to the answer."""

import json
from collections.abc import Callable
from typing import TypeVar

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from lcspec.batching import BatchingEngine
from lcspec.errors import LcspecError
from lcspec.server.answers import Wanted, answer
from lcspec.server.asking import refuse
from lcspec.server.body import read_body
from lcspec.server.requests import TextRequest
from lcspec.server.service import LOG, Service
from lcspec.server.texts import answer_of

_Asked = TypeVar("_Asked", bound=TextRequest)


async def respond(
    request: Request, kind: type[_Asked], prepare: Callable[[BatchingEngine, _Asked, str], Wanted]
) -> Response:
    """Answer a request.

    Args:
        request: what came.
        kind: what it must be.
        prepare: makes of that, in a thread, what the engine is asked for; gets the name of the model.

    Raises:
        ApiError: the request is wrong, or can't be served now.
        ClientDisconnect: the client left.
    """
    service: Service = request.app.state.service
    engine = service.engine
    with service.reading():
        asked = await read_body(request, kind, service.parsing)
        refuse(asked, service.settings)
        if service.settings.logs_prompts:
            LOG.info("%s: %s", request.url.path, json.dumps(asked.shown_prompt, ensure_ascii=False))
        try:
            wanted = await to_thread.run_sync(prepare, engine, asked, service.settings.name, limiter=service.preparing)
        except LcspecError as error:
            raise answer_of(error) from error
    return await answer(service, engine.target, wanted, stream=bool(asked.stream), receive=request.receive)
