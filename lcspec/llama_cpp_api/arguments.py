"""What llama-cpp-python's arguments are here."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from lcspec.errors import PromptError
from lcspec.llama import Model
from lcspec.sampling import SamplingParams

_DRAWN_SEEDS = (-1, 0xFFFFFFFF)  # LLAMA_DEFAULT_SEED, and how it is often written

_HARMLESS: dict[str, tuple[object, ...]] = {
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "tfs_z": (1.0,),
    "mirostat_mode": (0,),
    "mirostat_tau": (5.0,),
    "mirostat_eta": (0.1,),
    "stopping_criteria": (None, []),
    "logits_processor": (None, []),
    "grammar": (None,),
    "json_schema": (None,),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "mirostat": (None, 0),
}
"""Arguments of which there is no use here, and the values that ask for nothing."""


def refuse_unsupported(**arguments: object) -> None:
    """Make sure that nothing is asked for that there is not.

    Raises:
        PromptError: an argument would have to be ignored; the message names it.
    """
    for name, value in arguments.items():
        if not isinstance(value, str | Real | list | dict | None) or value not in _HARMLESS[name]:
            raise PromptError(f"{name} is not supported: leave it out")


def sampling_params(
    *, temperature: float, top_k: int, typical_p: float, seed: int | None, logit_bias: Any, **others: float
) -> SamplingParams:
    """Return the parameters that llama-cpp-python would sample with.

    At temperature 0 that knows biases and penalties only; a negative `top_k` is off, and a seed of -1 draws one.

    Raises:
        PromptError: a parameter is out of range, or is not a number.
    """
    return SamplingParams(
        temperature=temperature,
        top_k=0 if isinstance(top_k, int) and top_k < 0 else top_k,
        typical_p=1.0 if isinstance(temperature, Real) and temperature == 0 else typical_p,
        seed=None if isinstance(seed, Integral) and seed in _DRAWN_SEEDS else seed,
        logit_bias=_biases(logit_bias),
        **others,  # type: ignore[arg-type]
    )


def infill_prompt(model: Model, prompt: str | Sequence[int], suffix: str) -> list[int]:
    """Return the tokens that ask for what is between `prompt` and `suffix`.

    Raises:
        PromptError: the model does not fill in.
    """
    if model.infill is None:
        raise PromptError(f"suffix is not supported: {model.path.name} has no tokens for filling in")
    if not isinstance(suffix, str):
        raise PromptError(f"suffix must be a text, not {type(suffix).__name__}")
    before, behind, between = model.infill
    bos = [model.bos] if model.adds_bos and model.bos is not None else []
    beginning = model.tokenize(prompt, add_special=False) if isinstance(prompt, str) else prompt
    end = model.tokenize(suffix, add_special=False, parse_special=False)
    return [*bos, before, *beginning, behind, *end, between]


def token_limit(max_tokens: int | None) -> int | None:
    """Return how many tokens may be written: None, 0 and less stand for as many as the context holds."""
    return None if isinstance(max_tokens, int) and max_tokens <= 0 else max_tokens


def stop_strings(stop: str | Sequence[str] | None) -> Sequence[str]:
    """Return the strings that end a text."""
    if stop is None:
        return ()
    return [stop] if isinstance(stop, str) else stop


def _biases(logit_bias: Any) -> Any:
    """Return the biases by token id; clients that speak JSON have ids as texts."""
    if logit_bias is None:
        return {}
    if not isinstance(logit_bias, Mapping):
        return logit_bias
    return {int(token) if _is_id(token) else token: bias for token, bias in logit_bias.items()}


def _is_id(token: object) -> bool:
    return isinstance(token, str) and token.isascii() and token.isdigit() and len(token) <= 10
