"""What clients may ask for, as OpenAI's API has it, with llama-server's samplers."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from lcspec.server.limits import (
    MAX_BIASES,
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_STOP_LENGTH,
    MAX_STOPS,
    MAX_TEXTS,
    MAX_TOP_LOGPROBS,
)

_Value = TypeVar("_Value")


def _said(message: str) -> WrapValidator:
    """Say in one sentence what a value of several possible types must be."""

    def check(value: object, validate: Callable[[object], _Value]) -> _Value:
        try:
            return validate(value)
        except ValidationError:
            raise PydanticCustomError("invalid_value", message) from None

    return WrapValidator(check)


def _not_too_many(biases: object) -> object:
    """Make sure that biases are few enough to be looked at one by one."""
    if isinstance(biases, Mapping) and len(biases) > MAX_BIASES:
        raise PydanticCustomError("invalid_value", f"must be of {MAX_BIASES:,} tokens at the most")
    return biases


class TextPart(BaseModel):
    """A part of a content, which is text: this server's models read nothing else."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"]
    text: str


Content: TypeAlias = Annotated[
    str | Annotated[list[TextPart], Field(max_length=MAX_PARTS)],
    _said("must be a text or a list of parts of type 'text', which is all that the model reads"),
]

_TokenKey: TypeAlias = Annotated[int, Field(strict=False)]  # in JSON a text

_StopString: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]


def joined(content: str | list[TextPart], between: str) -> str:
    """Return a content as one text."""
    return content if isinstance(content, str) else between.join(part.text for part in content)


class Message(BaseModel):
    """A turn of a conversation; 'developer' is another word for 'system'."""

    model_config = ConfigDict(strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: Content

    def as_dict(self) -> dict[str, str]:
        """Return the message as chat templates want it."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": joined(self.content, "\n")}


class Prediction(BaseModel):
    """What most of the text will be, as the client expects: it is drafted from."""

    model_config = ConfigDict(strict=True)

    type: Literal["content"]
    content: Content


class StreamOptions(BaseModel):
    """What a stream has beside the text."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None


class TextRequest(BaseModel):
    """What both kinds of requests have; null is as good as nothing, and fields that aren't named are ignored."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    model: str | None = Field(None, description="Any name: there is one model, which the answer names.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_TEXTS)] | None = None
    max_tokens: Annotated[int, Field(ge=-1)] | None = Field(None, description="-1 is as many as the context holds.")
    stop: (
        Annotated[
            _StopString | Annotated[list[_StopString], Field(max_length=MAX_STOPS)],
            _said(
                f"must be a text or a list of {MAX_STOPS} texts at the most, each of 1 to {MAX_STOP_LENGTH} characters"
            ),
        ]
        | None
    ) = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=1 << 30)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repeat_penalty: Annotated[float, Field(gt=0, le=100)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    logit_bias: (
        Annotated[dict[_TokenKey, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_not_too_many)] | None
    ) = Field(None, description="By token id; -100 forbids a token.")
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = Field(None, description="-1 draws one.")
    prediction: Prediction | None = None
    # not supported
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    json_schema: Any = None
    grammar: Any = None
    modalities: Any = None
    audio: Any = None
    mirostat: Any = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end a text."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def n_prompts(self) -> int:
        """How many prompts are to be continued."""
        return 1

    @property
    def shown_prompt(self) -> object:
        """What a log shows of the request, if it may."""
        return None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ChatRequest(TextRequest):
    """A conversation that is to be answered."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: Annotated[int, Field(ge=-1)] | None = Field(None, description="Comes before max_tokens.")
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @property
    def shown_prompt(self) -> object:
        """What a log shows of the request, if it may."""
        return [message.as_dict() for message in self.messages]


class CompletionRequest(TextRequest):
    """Texts that are to be continued."""

    prompt: Annotated[
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
        | Annotated[list[int], Field(min_length=1, fail_fast=True)]  # or the errors take more memory than the body
        | Annotated[list[Annotated[list[int], Field(fail_fast=True)]], Field(min_length=1, max_length=MAX_TEXTS)],
        _said(f"must be a text, a list of token ids, or a list of either, of {MAX_TEXTS} at the most"),
    ]
    suffix: str | None = None
    echo: bool | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_TEXTS)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """The texts or tokens to continue."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)

    @property
    def n_prompts(self) -> int:
        """How many prompts are to be continued."""
        return len(self.prompts)

    @property
    def shown_prompt(self) -> object:
        """What a log shows of the request, if it may."""
        return self.prompt
