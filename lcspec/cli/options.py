"""Options that commands share, and the engine they ask for."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from lcspec.cli.completion import complete_model
from lcspec.cli.fetching import offer_to_fetch, yes_option
from lcspec.errors import PromptError
from lcspec.limits import AUTO_DRAFT, DRAFTERS, MAX_CONTEXT, MAX_THREADS, MAX_WIDTH

if TYPE_CHECKING:
    from lcspec.engine import SpeculativeLM, StreamOptions
    from lcspec.rules import RuleName
    from lcspec.sampling import SamplingParams

DEFAULT_MODEL = "smollm2-135m"

_STRENGTH = (
    ParameterSource.COMMANDLINE,
    ParameterSource.ENVIRONMENT,
    ParameterSource.DEFAULT_MAP,
    ParameterSource.DEFAULT,
)

_CONFIGURED = (ParameterSource.ENVIRONMENT, ParameterSource.DEFAULT_MAP)

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _option(*names: str, **settings: Any) -> Callable[[_Command], _Command]:
    """Return an option with an environment variable that is called like it."""
    long = next(name for name in names if name.startswith("--")).partition("/")[0]
    variable = "LCSPEC_" + long.lstrip("-").replace("-", "_").upper()
    return click.option(*names, envvar=variable, **settings)


THREADS = _option("-t", "--threads", type=click.IntRange(1, MAX_THREADS), help="Threads [the usable physical cores].")

MODEL = _option(
    "-m",
    "--model",
    default=DEFAULT_MODEL,
    show_default=True,
    shell_complete=complete_model,
    help="GGUF file, catalog name, or hf:owner/repository/file.gguf.",
)

DRAFT_TOKENS = _option(
    "--draft-tokens",
    type=click.IntRange(1, MAX_WIDTH - 1),
    help="Tokens of a draft; for auto the most [model: 4; lookup: half of the match, up to 15].",
)

CTX = _option(
    "-c", "--ctx", type=click.IntRange(2, MAX_CONTEXT), help="Tokens of context [4096, or what the model has]."
)

STORE = _option("--store/--no-store", "use_store", help="Draft from earlier texts, too: see `lcspec store`.")
LEARN = _option("--learn/--no-learn", help="Keep what is written in the store; implies --store.")
EXACT = _option("--exact/--no-exact", help="Give the text of plain decoding bit for bit; the prompt takes longer.")

_ENGINE_OPTIONS = (
    MODEL,
    _option(
        "-d",
        "--draft",
        metavar="MODEL",
        shell_complete=complete_model,
        help="What drafts: a smaller model with the same vocabulary, or a head that was trained for the model; "
        "auto is the best that was measured (lcspec draft).",
    ),
    _option(
        "--drafter",
        type=click.Choice(DRAFTERS),
        default="auto",
        show_default=True,
        help="Who drafts: none is plain decoding, lookup finds repetitions, model and head are what -d names, "
        "auto plans for each pass who pays.",
    ),
    DRAFT_TOKENS,
    CTX,
    THREADS,
    STORE,
    LEARN,
    EXACT,
    yes_option,
)

_SAMPLING_OPTIONS = (
    _option(
        "-T", "--temperature", "--temp", type=float, help="0 takes the likeliest token [0]; above it tokens are drawn."
    ),
    _option("--top-k", type=int, help="Draw from this many of the likeliest, 0 from all [40]."),
    _option("--top-p", type=float, help="Draw from the likeliest up to this together [0.95]."),
    _option("--min-p", type=float, help="Least probability, relative to the likeliest [0.05]."),
    _option("--typical-p", type=float, help="Draw from the most typical up to this together [1, off]."),
    _option("--seed", type=int, help="Gives the same text again [drawn, and told]."),
    _option(
        "--rule",
        type=click.Choice(["coupled", "rejection"]),
        help="How drafts are verified when tokens are drawn: coupled gives one text for one seed, rejection "
        "accepts a little more [coupled].",
    ),
    _option("--repeat-penalty", type=float, help="Divides the logits of recent tokens [1, off]."),
    _option("--frequency-penalty", type=float, help="Per occurrence of a recent token [0]."),
    _option("--presence-penalty", type=float, help="Once for a recent token [0]."),
    _option("--penalty-last-n", type=int, help="Tokens that are recent, -1 all [64]."),
    _option("--logit-bias", multiple=True, metavar="TOKEN=BIAS", help="Add to a token's logit; -inf forbids it."),
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

    @wraps(command)
    def with_draft(*arguments: Any, model: str, draft: str | None, **others: Any) -> Any:
        return command(*arguments, model=model, draft=draft_for(model, draft), **others)

    return _with(with_draft, _ENGINE_OPTIONS)  # type: ignore[return-value]


def sampling_options(command: _Command) -> _Command:
    """Give `command` the options that choose tokens; `split_sampling` takes their values."""
    return _with(command, _SAMPLING_OPTIONS)


def _with(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command


def _check_encoding(_: click.Context, __: click.Parameter, encoding: str | None) -> str | None:
    from lcspec.tasks.text_file import codec_named

    try:
        return None if encoding is None else codec_named(encoding)
    except PromptError as error:
        raise click.BadParameter(str(error)) from error


encoding_option = click.option(
    "--encoding",
    callback=_check_encoding,
    metavar="NAME",
    help="Encoding of the files [what they say themselves, else UTF-8].",
)
"""Gives a command --encoding."""


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
) -> Iterator["SpeculativeLM"]:
    """Load the engine that the options ask for; what has to be fetched is fetched, and the log says so.

    On a terminal it is asked for before, unless --yes was given.
    """
    from lcspec.engine import SpeculativeLM  # takes a while, which completion does not have
    from lcspec.store import NgramStore

    if drafter in ("model", "head") and draft is None:
        raise click.UsageError(f"--drafter {drafter} needs a draft {drafter}: name it with -d")
    offer_to_fetch(model)
    if draft not in (None, AUTO_DRAFT) and drafter in ("auto", "model", "head"):
        offer_to_fetch(draft)
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


def draft_for(model: str, draft: str | None, source: ParameterSource | None = None) -> str | None:
    """Return the draft model, but not one that was configured beside another model.

    Args:
        model: the model.
        draft: its draft model, by the options.
        source: where the model was named; by default where the option was.
    """
    context = click.get_current_context()
    sources = source or context.get_parameter_source("model"), context.get_parameter_source("draft")
    of_model, of_draft = (_STRENGTH.index(one or ParameterSource.DEFAULT) for one in sources)
    beside = (context.default_map or {}).get("model", DEFAULT_MODEL)
    return draft if of_draft <= of_model or model == beside or draft == AUTO_DRAFT else None


def split_sampling(values: dict[str, Any]) -> tuple["StreamOptions", dict[str, Any]]:
    """Return the stream's options that the sampling options ask for, and the values of the other options."""
    sampling = {name: value for name, value in values.items() if name in _SAMPLING_NAMES}
    return _sampling_arguments(**sampling), {name: values[name] for name in values.keys() - _SAMPLING_NAMES}


def seeded(sampling: "SamplingParams") -> "SamplingParams":
    """Draw the seed of several texts, so that one can be told for all."""
    if sampling.temperature > 0 and sampling.seed is None:
        return replace(sampling, seed=secrets.randbits(64))
    return sampling


def _sampling_arguments(
    temperature: float | None,
    rule: "RuleName | None",
    logit_bias: Sequence[str],
    **others: Any,
) -> "StreamOptions":
    from lcspec.sampling import SamplingParams

    given = {name: value for name, value in others.items() if value is not None}
    if not temperature:
        useless = [name for name in _DRAWING if name in given or (name == "rule" and rule)]
        if named := [name for name in useless if _is_on_command_line(name)]:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise click.UsageError(f"{options} means nothing at temperature 0, the default: give a --temperature")
        given = {name: value for name, value in given.items() if name not in useless}
        rule = None
    biases = dict(map(_bias, logit_bias))
    if len(biases) < len(logit_bias):
        raise _wrong("logit_bias", "--logit-bias is given twice for a token")
    try:
        sampling = SamplingParams(temperature=temperature or 0.0, logit_bias=biases, **given)
    except PromptError as error:
        subject = str(error).partition(" is ")[0]
        raise _wrong(next((one for one in _SAMPLING_NAMES if one in subject), ""), str(error)) from error
    return {"sampling": sampling, "rule": rule}


def _wrong(name: str, message: str) -> click.UsageError:
    """Return what to raise where the value of an option is wrong; where it is configured, it will be said where."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source(name) not in _CONFIGURED:
        return click.UsageError(message)
    return click.BadParameter(message, context, next(one for one in context.command.params if one.name == name))


def _is_on_command_line(name: str) -> bool:
    """Whether an option was given in this call; defaults for drawing may wait for a temperature."""
    context = click.get_current_context(silent=True)
    return context is None or context.get_parameter_source(name) == ParameterSource.COMMANDLINE


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError:
        message = f"--logit-bias takes TOKEN=BIAS, a token's id and a number, not {text!r}"
        raise _wrong("logit_bias", message) from None
