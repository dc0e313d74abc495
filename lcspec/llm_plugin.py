"""Local models for the command `llm` (llm.datasette.io): `llm -m lcspec/smollm2-135m "Name three colors."`."""

import atexit
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import llm
from pydantic import Field

from lcspec.engine import SpeculativeLM
from lcspec.errors import LcspecError, LcspecWarning, ModelError
from lcspec.hub import cached_path, catalog, entry_of, local_models
from lcspec.limits import AUTO_DRAFT, DrafterName
from lcspec.sampling import SamplingParams

if TYPE_CHECKING:
    from llm.parts import Message

DEFAULT_MODEL = "smollm2-135m"


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Give `llm` the models of the caches and of the catalog, and `lcspec`, which is any file."""
    if not hasattr(llm, "Message"):
        warnings.warn("lcspec's models need llm 0.32 or later", LcspecWarning, stacklevel=2)
        return
    register(AnyModel())
    for name in _names():
        register(LcspecModel(name), aliases=() if ":" in name or "/" in name else (name,))


class Error(llm.ModelError, click.ClickException):
    """What `llm` shows in one line, in its chat too."""


class Options(llm.Model.Options):
    """What `-o NAME VALUE` may set; what is left out is as in `lcspec generate`."""

    max_tokens: int | None = Field(description="Tokens to write at the most", default=None)
    temperature: float | None = Field(
        description="0 takes the likeliest token; above it tokens are drawn", default=None
    )
    top_k: int | None = Field(description="Draw from this many of the likeliest, 0 from all", default=None)
    top_p: float | None = Field(description="Draw from the likeliest up to this together", default=None)
    min_p: float | None = Field(description="Least probability, relative to the likeliest", default=None)
    typical_p: float | None = Field(description="Draw from the most typical up to this together", default=None)
    seed: int | None = Field(description="Gives the same text again", default=None)
    repeat_penalty: float | None = Field(description="Divides the logits of recent tokens", default=None)
    frequency_penalty: float | None = Field(description="Per occurrence of a recent token", default=None)
    presence_penalty: float | None = Field(description="Once for a recent token", default=None)
    stop: str | None = Field(description="Ends the text", default=None)
    draft: str | None = Field(description="A smaller model with the same vocabulary, to draft", default=None)
    drafter: DrafterName | None = Field(description="Who drafts; none is plain decoding", default=None)
    exact: bool | None = Field(description="Give the text of plain decoding bit for bit", default=None)
    n_ctx: int | None = Field(description="Tokens of context", default=None)
    threads: int | None = Field(description="Threads that evaluate", default=None)


_SAMPLING = {"temperature", "top_k", "top_p", "min_p", "typical_p", "seed"} | {
    f"{kind}_penalty" for kind in ("repeat", "frequency", "presence")
}
_LOADING = {"draft", "drafter", "exact", "n_ctx", "threads"}


class LcspecModel(llm.Model):
    """A model by its name; a prompt loads it, and it stays loaded until one wants another, or other options."""

    can_stream = True
    Options = Options

    def __init__(self, name: str) -> None:
        self.model_id = f"lcspec/{name}"
        self._name = name

    def __str__(self) -> str:
        return f"lcspec: {self.model_id}"

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: llm.Conversation | None
    ) -> Iterator[str]:
        """Answer the conversation, and say what it took.

        Raises:
            Error: what lcspec says is wrong.
        """
        try:
            yield from self._answer(prompt, stream, response)
        except LcspecError as error:
            raise Error(str(error)) from error

    def _answer(self, prompt: llm.Prompt, stream: bool, response: llm.Response) -> Iterator[str]:
        options: Any = prompt.options
        sampling = SamplingParams(**{"temperature": 0.0} | _given(options, _SAMPLING))
        stop = () if options.stop is None else (options.stop,)
        with _engine(self.target(options), _given(options, _LOADING)) as engine:
            tokens = engine.chat_prompt([_as_dict(message) for message in prompt.messages])
            with engine.stream(tokens, max_tokens=options.max_tokens, stop=stop, sampling=sampling) as pieces:
                if stream:
                    yield from (piece.text for piece in pieces if piece.text)
                else:
                    yield "".join(piece.text for piece in pieces)
        completion = pieces.completion
        stats = completion.stats
        response.set_usage(
            input=stats.prompt_tokens,
            output=len(completion.tokens),
            details={"cached": stats.cached_tokens, "drafted": stats.drafted, "accepted": stats.accepted},
        )
        response.response_json = {
            "finish_reason": completion.finish_reason,
            "seed": completion.seed,
            "stats": {name: value for name, value in stats.as_dict().items() if name != "plan"},
        }

    def target(self, options: Any) -> str:
        """Return the model that is meant."""
        return self._name


class AnyModel(LcspecModel):
    """A model that an option names: `llm -m lcspec -o model ./any-model.gguf`."""

    class Options(Options):
        """Those of all models, and the model."""

        model: str = Field(
            description="GGUF file, catalog name, or hf:owner/repository/file.gguf", default=DEFAULT_MODEL
        )

    def __init__(self) -> None:
        super().__init__("")
        self.model_id = "lcspec"

    def target(self, options: Any) -> str:
        """Return the model that is meant."""
        name: str = options.model
        return name


def _names() -> list[str]:
    """Return the models on this machine, and then the others of the catalog; nothing is asked of any network."""
    try:
        here = [model.name for model in local_models() if model.is_complete]
        return [*here, *(name for name in catalog() if name not in here)]
    except (LcspecError, OSError) as error:  # every command of llm comes by here
        warnings.warn(f"lcspec's models are not available: {error}", LcspecWarning, stacklevel=2)
        return []


@dataclass
class _Kept:
    """The engine that was used last; it is closed when another is wanted and nobody writes with it any more."""

    key: tuple[object, ...]
    engine: SpeculativeLM
    users: int = 0


_kept: _Kept | None = None
_loading = threading.RLock()  # not a Lock: where a garbage collection ends a prompt, its thread may be loading


@contextmanager
def _engine(target: str, options: dict[str, Any]) -> Iterator[SpeculativeLM]:
    """Lend the engine that these options ask for."""
    with _loading:
        kept = _loaded(target, options)
        kept.users += 1
    try:
        yield kept.engine
    finally:
        with _loading:
            kept.users -= 1
            if kept is not _kept and not kept.users:
                kept.engine.close()


def _loaded(target: str, options: dict[str, Any]) -> _Kept:
    """Return the engine that these options ask for, which another prompt may have loaded."""
    global _kept
    key = (target, *sorted(options.items()))
    if _kept is None or _kept.key != key:
        for model in filter(None, (target, options.get("draft"))):
            entry = None if model == AUTO_DRAFT else entry_of(model, ask_hub=False)
            if entry is not None and cached_path(entry) is None:
                raise ModelError(f"{model} is not on this machine: fetch it with `lcspec pull {model}`")
        _let_go()
        _kept = _Kept(key, SpeculativeLM(target, **options))
    return _kept


@atexit.register
def _let_go() -> None:
    """Keep no engine any more."""
    global _kept
    with _loading:
        kept, _kept = _kept, None
        if kept is not None and not kept.users:
            kept.engine.close()


def _given(options: Any, names: set[str]) -> dict[str, Any]:
    given: dict[str, Any] = options.model_dump(include=names, exclude_none=True)
    return given


def _as_dict(message: "Message") -> dict[str, str]:
    """Return a message as a chat template wants it."""
    from llm.parts import TextPart  # which an llm before 0.32 does not have, and it has to go on

    text = "".join(part.text for part in message.parts if isinstance(part, TextPart))
    return {"role": message.role, "content": text}
