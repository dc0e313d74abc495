"""What clients get, as the served OpenAPI document describes it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Response(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Error(_Response):
    """What is wrong."""

    message: str
    type: Literal["invalid_request_error", "rate_limit_error", "server_error"]
    param: str | None
    code: str | None


class ErrorResponse(_Response):
    """What every status from 400 on comes with."""

    error: Error


class ServedModel(_Response):
    """The model, and in `meta` what llama-server says of it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    meta: dict[str, int]


class ModelList(_Response):
    """All models, which is one."""

    object: Literal["list"]
    data: list[ServedModel]


class PromptDetails(_Response):
    """How many of the prompt's tokens needed no evaluation."""

    cached_tokens: int


class CompletionDetails(_Response):
    """What became of the prediction."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(_Response):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Timings(_Response):
    """What llama-server says of a text's making; of several texts, added up."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int


class Likely(_Response):
    """A token that could have come."""

    token: str
    logprob: float
    bytes: list[int] | None


class Scored(Likely):
    """A token that came, and the likeliest at its place."""

    top_logprobs: list[Likely]


class ChatScores(_Response):
    """The tokens of an answer."""

    content: list[Scored] | None
    refusal: list[Scored] | None


class AssistantMessage(_Response):
    """The answer."""

    role: Literal["assistant"]
    content: str


class ChatChoice(_Response):
    """An answer, and why it ended."""

    index: int
    message: AssistantMessage
    logprobs: ChatScores | None
    finish_reason: Literal["stop", "length"]


class ChatResponse(_Response):
    """Answers to a conversation."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    timings: Timings


class Scores(_Response):
    """The tokens of a text: where each begins (in characters), how likely it was, and others at its place."""

    tokens: list[str]
    text_offset: list[int]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]


class Choice(_Response):
    """A text, and why it ended."""

    text: str
    index: int
    logprobs: Scores | None
    finish_reason: Literal["stop", "length"]


class CompletionResponse(_Response):
    """Continued texts."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    timings: Timings


class Health(_Response):
    """Whether the server is ready."""

    status: Literal["ok", "loading model", "ending", "failed"]
