"""What is asked of an engine that many share, and what it answers."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from lcspec.rules import RuleName
from lcspec.sampling import GREEDY, SamplingParams
from lcspec.stream import Completion, Piece


@dataclass(frozen=True)
class Request:
    """A text that is wanted.

    Attributes:
        prompt: token ids, as `BatchingEngine.tokenize` and `chat_prompt` give them.
        max_tokens: tokens to generate at the most; None for as many as the context holds.
        sampling: how tokens are chosen.
        stop: strings at which the text ends.
        logprobs: give the log-probability of each token, and of this many of the likeliest.
        prediction: tokens that the text is expected to have, in this order, though maybe not all of them.
        rule: the acceptance rule; None for the default of the temperature.
        speculate: whether drafts may be made.
    """

    prompt: tuple[int, ...]
    max_tokens: int | None = None
    sampling: SamplingParams = GREEDY
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    prediction: tuple[int, ...] = ()
    rule: RuleName | None = None
    speculate: bool = True


@dataclass(frozen=True)
class Timings:
    """What a request took.

    Attributes:
        prompt_tokens: length of the prompt.
        cached_tokens: how many of them were in the KV cache.
        tokens: tokens that were emitted.
        queued_seconds: from its arrival until it began.
        prompt_seconds: from its beginning to its first token.
        decode_seconds: from its first token to its last.
        first_token_seconds: from its arrival to its first token; None without one.
        draft_n: draft tokens that were verified.
        draft_n_accepted: how many of them were accepted.
        prediction_accepted: tokens of the prediction that came as predicted.
        prediction_rejected: tokens of the prediction that did not, as far as it was used up.
    """

    prompt_tokens: int
    cached_tokens: int = 0
    tokens: int = 0
    queued_seconds: float = 0.0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    first_token_seconds: float | None = None
    draft_n: int = 0
    draft_n_accepted: int = 0
    prediction_accepted: int = 0
    prediction_rejected: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Finished:
    """The end of a request.

    Attributes:
        completion: the text; what there is of it where the request was cancelled or failed.
        timings: what it took.
        error: why it failed; None where it did not.
    """

    completion: Completion
    timings: Timings
    error: Exception | None = None


Listener: TypeAlias = Callable[[Piece | Finished], None]
"""Is told of a request's pieces as they come and then, once, of its end, on the engine's thread. It must not block."""
