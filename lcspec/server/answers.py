"""Answers: all at once, or as a stream of events."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from lcspec.batching import Finished, Request
from lcspec.llama import Model
from lcspec.llama_cpp_api.answers import Writer
from lcspec.llama_cpp_api.writers import ChunkTexts, shown_reason
from lcspec.server.errors import ApiError
from lcspec.server.patience import Patience
from lcspec.server.service import Service
from lcspec.server.sse import DONE, HEADERS, PING, event
from lcspec.server.texts import Texts
from lcspec.server.usage import timings_of, usage_of


@dataclass(frozen=True)
class Wanted:
    """What a client asked for.

    Attributes:
        requests: one for each text: for each prompt, one after the other, the texts that continue it.
        writers: write the dictionaries of each text.
        n: texts for each prompt.
        scored: whether tokens are scored.
        usage: whether a stream ends with what it took.
    """

    requests: Sequence[Request]
    writers: Sequence[Writer[Any, Any]]
    n: int = 1
    scored: bool = False
    usage: bool = False


async def answer(service: Service, model: Model, wanted: Wanted, *, stream: bool, receive: Receive) -> Response:
    """Answer a request: as a stream, or when all texts are written.

    Raises:
        ApiError: it can't be served, or a text failed.
        ClientDisconnect: the client left; the texts are cancelled.
    """
    texts = Texts(service, len(wanted.requests))
    await texts.begin(wanted.requests)
    if stream:
        return EventStream(wanted, texts, model)
    with texts:
        await _unless_left(receive, texts, _read_all(texts))
    finished = _all_finished(texts)
    answers = [writer.whole(one.completion) for writer, one in zip(wanted.writers, finished, strict=True)]
    choices = [choice for one in answers for choice in one["choices"]]
    return JSONResponse({**answers[0], "choices": choices, **_costs(finished, wanted.n)})


async def _unless_left(receive: Receive, texts: Texts, work: Coroutine[Any, Any, None]) -> None:
    """Read and send texts, but only as long as the client is there.

    Raises:
        ClientDisconnect: it left.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            texts.cancel()
            raise ClientDisconnect
        working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_all(texts: Texts) -> None:
    while not texts.is_over:
        await texts.next()


def _all_finished(texts: Texts) -> list[Finished]:
    return [one for one in texts.finished if one is not None]


def _costs(finished: Sequence[Finished], n: int) -> dict[str, Any]:
    return {"usage": usage_of(finished, n), "timings": timings_of(finished)}


class EventStream(Response):
    """Sends texts while they are written, and cancels them when the client leaves, or reads nothing for long.

    Args:
        wanted: what the client asked for.
        texts: what is written.
        model: the target.
    """

    def __init__(self, wanted: Wanted, texts: Texts, model: Model) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._wanted = wanted
        self._texts = texts
        self._chunks = [ChunkTexts(model, one.stop, wanted.scored) for one in wanted.requests]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all."""
        patience = Patience(send, scope.get("state", {}).get("abort", lambda: None), self._texts.nudge)
        with self._texts, patience, suppress(ClientDisconnect):
            await _unless_left(receive, self._texts, self._send_all(patience.send))

    async def _send_all(self, send: Send) -> None:
        async def put(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await self._send_texts(put)
            await put(DONE)
        except ApiError as error:
            await put(event(error.as_dict()))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_texts(self, put: Callable[[bytes], Awaitable[None]]) -> None:
        shared: dict[str, Any] = {"usage": None} if self._wanted.usage else {}
        for writer in self._wanted.writers:
            for chunk in writer.opening():
                await put(event({**chunk, **shared}))
        while not self._texts.is_over:
            heard = await self._texts.next()
            if heard is None:
                await put(PING)
                continue
            index, what = heard
            writer, chunks = self._wanted.writers[index], self._chunks[index]
            for text, scores in chunks.finish() if isinstance(what, Finished) else chunks.add(what):
                await put(event({**writer.chunk(text, scores), **shared}))
            if isinstance(what, Finished):
                last = writer.chunk("", (), shown_reason(what.completion.finish_reason))
                await put(event({**last, **shared, **self._timings_at_end()}))
        if self._wanted.usage:
            chunk = self._wanted.writers[0].chunk("")
            await put(event({**chunk, "choices": [], **_costs(_all_finished(self._texts), self._wanted.n)}))

    def _timings_at_end(self) -> dict[str, Any]:
        """Return what the last chunk says, unless one with the usage follows, which says it."""
        if self._wanted.usage or not self._texts.is_over:
            return {}
        return {"timings": timings_of(_all_finished(self._texts))}
