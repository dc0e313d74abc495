"""The application: paths, and what stands before all of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcspec.server.access import Access
from lcspec.server.chat import chat_completions
from lcspec.server.completions import completions
from lcspec.server.errors import ApiError, answer_api_error, answer_bug, answer_http_error
from lcspec.server.metrics import CONTENT_TYPE
from lcspec.server.models import list_models, show_model
from lcspec.server.observer import Observer
from lcspec.server.openapi import openapi_document
from lcspec.server.service import Service


def make_app(service: Service) -> Starlette:
    """Return the application of a service, which begins to load its engine when the application starts."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        loading = asyncio.create_task(service.load())
        try:
            yield
        finally:
            await loading
            await asyncio.to_thread(service.close)

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/models", list_models),
            Route("/v1/models/{name:path}", show_model),
            Route("/health", _health),
            Route("/metrics", _metrics),
            Route("/openapi.json", _openapi),
        ],
        middleware=_middleware(service),
        exception_handlers={
            ApiError: answer_api_error,
            HTTPException: answer_http_error,
            ClientDisconnect: _answer_nobody,
            Exception: answer_bug,
        },
        lifespan=life,
    )
    app.state.service = service
    app.router.redirect_slashes = False  # a redirection names the server by its Host header, and no error
    return app


def _middleware(service: Service) -> list[Middleware]:
    settings = service.settings
    for_pages = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=("Retry-After",),
        allow_private_network=True,  # pages of the internet may ask this machine, if they may at all
    )
    return [
        Middleware(Observer, service=service),
        *([for_pages] if settings.origins else []),
        Middleware(Access, key=settings.key, checks_host=settings.checks_host),
    ]


async def _health(request: Request) -> Response:
    status = request.app.state.service.status
    return JSONResponse({"status": status}, 200 if status == "ok" else 503)


async def _metrics(request: Request) -> Response:
    return Response(request.app.state.service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def _openapi(_: Request) -> Response:
    return JSONResponse(_document())


async def _answer_nobody(_: Request, error: Exception) -> Response:
    """Answer a client that left; the status is for the metrics."""
    return Response(status_code=499)


_document = cache(openapi_document)
