"""What a client's request is for the engine."""

from collections.abc import Sequence
from dataclasses import replace

from lcspec.batching import BatchingEngine, Request
from lcspec.errors import PromptError
from lcspec.llama_cpp_api.arguments import refuse_unsupported, sampling_params
from lcspec.sampling import SamplingParams
from lcspec.server.errors import ApiError
from lcspec.server.limits import MAX_TEXTS
from lcspec.server.requests import TextRequest, joined
from lcspec.server.service import Settings

_UNSUPPORTED = (
    "functions",
    "function_call",
    "tools",
    "tool_choice",
    "response_format",
    "json_schema",
    "grammar",
    "modalities",
    "audio",
    "mirostat",
)
_SEEDS = 1 << 64
_DEFAULTS = SamplingParams()


def refuse(asked: TextRequest, settings: Settings) -> None:
    """Make sure that nothing is asked for that there is not.

    Raises:
        ApiError: something is.
    """
    needs_no_tools = asked.tool_choice == "none"
    for name in _UNSUPPORTED:
        if name == "tools" and needs_no_tools:
            continue
        try:
            refuse_unsupported(**{name: getattr(asked, name)})
        except PromptError as error:
            raise ApiError(400, str(error), "unsupported_parameter", name) from error
    n_texts = asked.n_prompts * (asked.n or 1)
    most = min(MAX_TEXTS, settings.most_texts)
    if n_texts > most:
        raise ApiError(400, f"{n_texts:,} texts are asked for; {most:,} are the most", "invalid_value", "n")


def check_length(engine: BatchingEngine, text: str) -> None:
    """Make sure that a text can be one for the context, before the work of making tokens of it.

    Raises:
        ApiError: it can't.
    """
    size, most = len(text.encode()), engine.n_ctx * engine.target.longest_token
    if size > most:
        message = f"a text of {size:,} bytes is too long: the context holds {engine.n_ctx:,} tokens"
        raise ApiError(400, message, "context_length_exceeded")


def requests_of(
    engine: BatchingEngine,
    asked: TextRequest,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | None,
    logprobs: int | None,
) -> list[Request]:
    """Return the engine's requests: for each prompt, one after the other, as many as are wanted.

    Raises:
        PromptError: a parameter is out of range.
    """
    sampling = sampling_of(asked)
    if asked.prediction is None:
        prediction = []
    else:
        text = joined(asked.prediction.content, "")
        check_length(engine, text)
        prediction = engine.target.tokenize(text, add_special=False, parse_special=False)[: engine.n_ctx]
    return [
        Request(
            prompt=tuple(prompt),
            max_tokens=None if max_tokens == -1 else max_tokens,
            sampling=_another(sampling, i),
            stop=asked.stop_strings,
            logprobs=logprobs,
            prediction=tuple(prediction),
        )
        for prompt in prompts
        for i in range(asked.n or 1)
    ]


def sampling_of(asked: TextRequest) -> SamplingParams:
    """Return how tokens are chosen: what is not said is as with llama.cpp."""

    def given(name: str) -> float:
        value = getattr(asked, name)
        return float(getattr(_DEFAULTS, name) if value is None else value)

    return sampling_params(
        temperature=given("temperature"),
        top_k=_DEFAULTS.top_k if asked.top_k is None else asked.top_k,
        top_p=given("top_p"),
        min_p=given("min_p"),
        typical_p=given("typical_p"),
        repeat_penalty=given("repeat_penalty"),
        frequency_penalty=given("frequency_penalty"),
        presence_penalty=given("presence_penalty"),
        seed=asked.seed if asked.seed is None or asked.seed == -1 else asked.seed % _SEEDS,
        logit_bias=asked.logit_bias,
    )


def _another(sampling: SamplingParams, i: int) -> SamplingParams:
    """Return the sampling of the i-th text of a prompt, which must not be the first once more."""
    return sampling if sampling.seed is None or i == 0 else replace(sampling, seed=(sampling.seed + i) % _SEEDS)
