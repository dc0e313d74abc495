"""Options that commands share, and the engine they ask for."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from lcspec.engine import DRAFTERS, SpeculativeLM
from lcspec.llama import MAX_CONTEXT, MAX_THREADS, MAX_WIDTH

DEFAULT_MODEL = "smollm2-135m"

_Command = TypeVar("_Command", bound=Callable[..., Any])

_ENGINE_OPTIONS = (
    click.option(
        "-m",
        "--model",
        default=DEFAULT_MODEL,
        show_default=True,
        help="GGUF file, catalog name, or hf:owner/repository/file.gguf.",
    ),
    click.option("-d", "--draft", metavar="MODEL", help="A smaller model with the same vocabulary, to draft."),
    click.option(
        "--drafter",
        type=click.Choice(DRAFTERS),
        default="auto",
        show_default=True,
        help="Who drafts: none is plain decoding, lookup finds repetitions, model is the one of -d, "
        "auto is lookup and then the draft model if there is one.",
    ),
    click.option(
        "--draft-tokens",
        type=click.IntRange(1, MAX_WIDTH - 1),
        help="Tokens of a draft [half of the match, up to 15, for lookup; 4 for a draft model].",
    ),
    click.option(
        "-c", "--ctx", type=click.IntRange(2, MAX_CONTEXT), help="Tokens of context [4096, or what the model has]."
    ),
    click.option("-t", "--threads", type=click.IntRange(1, MAX_THREADS), help="Threads [the usable physical cores]."),
)


def engine_options(command: _Command) -> _Command:
    """Give `command` the options that choose models and drafter; `load_engine` takes their values."""
    for option in reversed(_ENGINE_OPTIONS):
        command = option(command)
    return command


def load_engine(
    model: str,
    draft: str | None,
    drafter: Any,
    draft_tokens: int | None,
    ctx: int | None,
    threads: int | None,
) -> SpeculativeLM:
    """Load the engine that the options ask for; what has to be fetched is fetched, and the log says so."""
    if drafter == "model" and draft is None:
        raise click.UsageError("--drafter model needs a draft model: name it with -d")
    return SpeculativeLM(model, draft, drafter, n_ctx=ctx, threads=threads, draft_tokens=draft_tokens, download=True)
