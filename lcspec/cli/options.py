"""Options that commands share, and the engine they ask for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import click

from lcspec.engine import SpeculativeLM, StreamOptions
from lcspec.errors import PromptError
from lcspec.llama import MAX_CONTEXT, MAX_THREADS, MAX_WIDTH
from lcspec.loaded import DRAFTERS
from lcspec.rules import RuleName
from lcspec.sampling import SamplingParams
from lcspec.store import NgramStore

DEFAULT_MODEL = "smollm2-135m"

_Command = TypeVar("_Command", bound=Callable[..., Any])

THREADS = click.option(
    "-t", "--threads", type=click.IntRange(1, MAX_THREADS), help="Threads [the usable physical cores]."
)

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
        "auto plans for each pass who pays.",
    ),
    click.option(
        "--draft-tokens",
        type=click.IntRange(1, MAX_WIDTH - 1),
        help="Tokens of a draft; for auto the most [model: 4; lookup: half of the match, up to 15].",
    ),
    click.option(
        "-c", "--ctx", type=click.IntRange(2, MAX_CONTEXT), help="Tokens of context [4096, or what the model has]."
    ),
    THREADS,
    click.option("--store", "use_store", is_flag=True, help="Draft from earlier texts, too: see `lcspec store`."),
    click.option("--learn", is_flag=True, help="Keep what is written in the store; implies --store."),
    click.option("--exact", is_flag=True, help="Give the text of plain decoding bit for bit; the prompt takes longer."),
)


_DEFAULTS = SamplingParams()

_SAMPLING_OPTIONS = (
    click.option("-T", "--temperature", type=float, help="0 takes the likeliest token [0]; above it tokens are drawn."),
    click.option("--top-k", type=int, help=f"Draw from this many of the likeliest, 0 from all [{_DEFAULTS.top_k}]."),
    click.option("--top-p", type=float, help=f"Draw from the likeliest up to this together [{_DEFAULTS.top_p}]."),
    click.option("--min-p", type=float, help=f"Least probability, relative to the likeliest [{_DEFAULTS.min_p}]."),
    click.option("--typical-p", type=float, help="Draw from the most typical up to this together [1, off]."),
    click.option("--seed", type=int, help="Gives the same text again [drawn, and told]."),
    click.option(
        "--rule",
        type=click.Choice(["coupled", "rejection"]),
        help="How drafts are verified when tokens are drawn: coupled gives one text for one seed, rejection "
        "accepts a little more [coupled].",
    ),
    click.option("--repeat-penalty", type=float, help="Divides the logits of recent tokens [1, off]."),
    click.option("--frequency-penalty", type=float, help="Per occurrence of a recent token [0]."),
    click.option("--presence-penalty", type=float, help="Once for a recent token [0]."),
    click.option("--penalty-last-n", type=int, help=f"Tokens that are recent, -1 all [{_DEFAULTS.penalty_last_n}]."),
    click.option("--logit-bias", multiple=True, metavar="TOKEN=BIAS", help="Add to a token's logit; -inf forbids it."),
)

_SAMPLING_NAMES = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "rule",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "penalty_last_n",
    "logit_bias",
}
_DRAWING = ("top_k", "top_p", "min_p", "typical_p", "seed", "rule")


def engine_options(command: _Command) -> _Command:
    """Give `command` the options that choose models and drafter; `load_engine` takes their values."""
    return _with(command, _ENGINE_OPTIONS)


def sampling_options(command: _Command) -> _Command:
    """Give `command` the options that choose tokens; `split_sampling` takes their values."""
    return _with(command, _SAMPLING_OPTIONS)


def _with(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def load_engine(
    model: str,
    draft: str | None,
    drafter: Any,
    draft_tokens: int | None,
    ctx: int | None,
    threads: int | None,
    use_store: bool,
    learn: bool,
    exact: bool,
) -> Iterator[SpeculativeLM]:
    """Load the engine that the options ask for; what has to be fetched is fetched, and the log says so."""
    if drafter == "model" and draft is None:
        raise click.UsageError("--drafter model needs a draft model: name it with -d")
    with ExitStack() as stack:
        yield stack.enter_context(
            SpeculativeLM(
                model,
                draft,
                drafter,
                n_ctx=ctx,
                threads=threads,
                draft_tokens=draft_tokens,
                exact=exact,
                store=stack.enter_context(NgramStore()) if use_store or learn else None,
                learn=learn,
                download=True,
            )
        )


def split_sampling(values: dict[str, Any]) -> tuple[StreamOptions, dict[str, Any]]:
    """Return the stream's options that the sampling options ask for, and the values of the other options."""
    sampling = {name: value for name, value in values.items() if name in _SAMPLING_NAMES}
    return _sampling_arguments(**sampling), {name: values[name] for name in values.keys() - _SAMPLING_NAMES}


def _sampling_arguments(
    temperature: float | None,
    rule: RuleName | None,
    logit_bias: Sequence[str],
    **others: Any,
) -> StreamOptions:
    given = {name: value for name, value in others.items() if value is not None}
    useless = [name for name in _DRAWING if name in given or (name == "rule" and rule)]
    if not temperature and useless:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in useless)
        raise click.UsageError(f"{options} means nothing at temperature 0, the default: give a --temperature")
    biases = dict(map(_bias, logit_bias))
    if len(biases) < len(logit_bias):
        raise click.UsageError("--logit-bias is given twice for a token")
    try:
        sampling = SamplingParams(temperature=temperature or 0.0, logit_bias=biases, **given)
    except PromptError as error:
        raise click.UsageError(str(error)) from error
    return {"sampling": sampling, "rule": rule}


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        raise click.UsageError(f"--logit-bias takes TOKEN=BIAS, a token's id and a number, not {text!r}") from None
