"""`lcspec serve`: OpenAI's API for a model, by HTTP."""

import gc
import logging
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lcspec.cli.fetching import offer_to_fetch, yes_option
from lcspec.cli.options import CTX, DRAFT_TOKENS, EXACT, LEARN, MODEL, STORE, THREADS
from lcspec.cli.report import note, quiet_option
from lcspec.errors import LcspecError

if TYPE_CHECKING:
    from lcspec.batching import BatchingEngine

_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+", re.IGNORECASE)


def _check_key(_: click.Context, __: click.Parameter, key: str | None) -> str | None:
    if key is not None and (not key.strip() or key != key.strip() or not key.isprintable()):
        raise click.BadParameter("a key is not empty, and has no blanks around it and no control characters")
    return key


def _check_origins(_: click.Context, __: click.Parameter, origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise click.BadParameter(f"{origin!r} is no origin, such as http://localhost:3000, and not '*'")
    return origins


@click.command()
@MODEL
@click.option("--alias", envvar="LCSPEC_ALIAS", metavar="NAME", help="What clients see the model called [its name].")
@click.option(
    "--host",
    envvar="LCSPEC_HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address to serve at; one that others reach needs a key.",
)
@click.option(
    "--port",
    envvar="LCSPEC_PORT",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port; 0 takes one that is free.",
)
@click.option(
    "--api-key",
    envvar="LCSPEC_API_KEY",
    callback=_check_key,
    metavar="KEY",
    help="What clients have to know. Others on this machine can see it here: better in LCSPEC_API_KEY.",
)
@click.option("--insecure/--no-insecure", envvar="LCSPEC_INSECURE", help="Let in anyone who reaches --host.")
@click.option(
    "--cors",
    multiple=True,
    envvar="LCSPEC_CORS",
    callback=_check_origins,
    metavar="ORIGIN",
    help="Let web pages of ORIGIN ask, '*' for all; can be repeated [none].",
)
@click.option(
    "--parallel",
    envvar="LCSPEC_PARALLEL",
    type=click.IntRange(1, 64),
    default=8,
    show_default=True,
    help="Texts that are written together.",
)
@click.option(
    "--queue",
    envvar="LCSPEC_QUEUE",
    type=click.IntRange(0, 10_000),
    default=64,
    show_default=True,
    help="Texts that may wait; those beyond get status 429.",
)
@click.option(
    "--drafter",
    envvar="LCSPEC_DRAFTER",
    type=click.Choice(["auto", "lookup", "none"]),
    default="auto",
    show_default=True,
    help="Who drafts: auto, or lookup, from what repeats, as far as that pays; none is plain decoding.",
)
@DRAFT_TOKENS
@CTX
@THREADS
@STORE
@LEARN
@EXACT
@click.option(
    "--drain-timeout",
    envvar="LCSPEC_DRAIN_TIMEOUT",
    type=click.FloatRange(0, 86_400),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long texts may still be written after SIGTERM or Ctrl-C.",
)
@click.option("--log-prompts/--no-log-prompts", envvar="LCSPEC_LOG_PROMPTS", help="Print what clients ask, too.")
@yes_option
@quiet_option
def serve(
    model: str,
    alias: str | None,
    host: str,
    port: int,
    api_key: str | None,
    insecure: bool,
    cors: tuple[str, ...],
    parallel: int,
    queue: int,
    drain_timeout: float,
    log_prompts: bool,
    **engine_options: Any,
) -> None:
    """Serve OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models; also /health, /metrics, /openapi.json.

    Several clients are served at once, and each text is sped up by drafts as long as they pay. The texts that are
    written together share the context (-c). SIGTERM and Ctrl-C let what was begun come to its end; a second one ends
    at once.

    \b
    Examples:
      lcspec serve
      lcspec serve -m qwen2.5-coder-1.5b --port 8000 --parallel 4 -c 16384
      LCSPEC_API_KEY=$(cat key) lcspec serve --host 0.0.0.0
      curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "Name three colors."}]}'
    """  # noqa: D301  click needs the backspace itself
    try:
        from lcspec.server.access import is_loopback
        from lcspec.server.running import bind, serve_until_signal, url_of
        from lcspec.server.service import Service, Settings
    except ImportError as error:
        raise LcspecError(f"lcspec serve needs more ({error.name}): pip install 'lcspec[server]'") from error

    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it tells of each client that left
    stays_here = is_loopback(host.lower())
    if not stays_here and api_key is None:
        if not insecure:
            raise click.UsageError(
                f"--host {host} lets others in: give LCSPEC_API_KEY, which they have to know, or --insecure"
            )
        note(f"warning: anyone who reaches {host} can use this server, and what they send is not encrypted")
    settings = Settings(
        name=alias or _name_of(model),
        key=api_key,
        checks_host=stays_here and api_key is None,
        origins=cors,
        logs_prompts=log_prompts,
        most_texts=parallel + queue,
    )
    offer_to_fetch(model)
    taken = bind(host, port)
    with ExitStack() as stack:
        stack.callback(taken.close)
        load = _loader(stack, model, max_sequences=parallel, queue_limit=queue, **engine_options)
        service = Service(load, settings)

        def say_ready() -> None:
            said = (
                f"{parallel} texts at once, {queue} may wait",
                f"{service.engine.n_ctx:,} tokens of context",
                f"drafter {engine_options['drafter']}",
                *(["exact"] if engine_options["exact"] else []),
                *(["with an API key"] if api_key is not None else []),
            )
            gc.freeze()  # no collection of garbage looks at what was loaded: that would hold up texts
            note(f"serving {settings.name} at {url_of(taken)}/v1 ({'; '.join(said)})")

        serve_until_signal(service, taken, drain_timeout, say_ready)


def _name_of(model: str) -> str:
    """Return what a model is called without an alias: a file by its name, others as they were named."""
    is_file = model.lower().endswith(".gguf") and not model.startswith("hf:")
    name = Path(model).stem if is_file else model
    return name.encode("utf-8", "replace").decode()  # names of files need not be text


def _loader(
    stack: ExitStack, model: str, *, ctx: int | None, use_store: bool, learn: bool, **options: Any
) -> Callable[[], "BatchingEngine"]:
    """Fetch the model, and return what loads it, in another thread too; the stack closes what that needs."""
    from lcspec.batching import BatchingEngine
    from lcspec.hub import find_model
    from lcspec.store import NgramStore

    path = find_model(model, download=True)
    store = stack.enter_context(NgramStore()) if use_store or learn else None
    context = click.get_current_context()

    def load() -> BatchingEngine:
        with context.scope(cleanup=False):  # for what is said while it loads
            return BatchingEngine(path, n_ctx=ctx, store=store, learn=learn, **options)

    return load
