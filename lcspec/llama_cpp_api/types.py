"""The dictionaries of llama-cpp-python, by their names and with the keys of its llama_types.py."""

from typing import Literal, TypedDict


class CompletionLogprobs(TypedDict):
    """The tokens of a text: where each begins in prompt and text (in characters), how likely it was, and others."""

    tokens: list[str]
    text_offset: list[int]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]


class CompletionChoice(TypedDict):
    """The text; in a stream a piece of it, and why it ended in the last chunk."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CompletionUsage(TypedDict):
    """Tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CreateCompletionStreamResponse(TypedDict):
    """A chunk of a text."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]


class CreateCompletionResponse(CreateCompletionStreamResponse):
    """A text."""

    usage: CompletionUsage


class ChatCompletionTopLogprobToken(TypedDict):
    """A token that could have come, and how likely it was."""

    token: str
    logprob: float
    bytes: list[int] | None


class ChatCompletionLogprobToken(ChatCompletionTopLogprobToken):
    """A token, how likely it was, and others."""

    top_logprobs: list[ChatCompletionTopLogprobToken]


class ChatCompletionLogprobs(TypedDict):
    """The tokens of an answer."""

    content: list[ChatCompletionLogprobToken] | None
    refusal: list[ChatCompletionLogprobToken] | None


class ChatCompletionResponseMessage(TypedDict):
    """The answer."""

    role: Literal["assistant"]
    content: str


class ChatCompletionResponseChoice(TypedDict):
    """The answer, and why it ended."""

    index: int
    message: ChatCompletionResponseMessage
    logprobs: ChatCompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CreateChatCompletionResponse(TypedDict):
    """An answer to messages."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatCompletionResponseChoice]
    usage: CompletionUsage


class ChatCompletionStreamResponseDelta(TypedDict, total=False):
    """What a chunk adds: the role in the first, nothing in the last."""

    role: Literal["assistant"]
    content: str


class ChatCompletionStreamResponseChoice(TypedDict):
    """What a chunk adds, and why the answer ended in the last one."""

    index: int
    delta: ChatCompletionStreamResponseDelta
    logprobs: ChatCompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CreateChatCompletionStreamResponse(TypedDict):
    """A chunk of an answer to messages."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatCompletionStreamResponseChoice]
