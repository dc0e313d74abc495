"""The dictionaries of a text, as an answer to a prompt and as one to messages: all of it, or a chunk."""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lcspec.llama import Model
from lcspec.llama_cpp_api.scores import ScoreWriter
from lcspec.llama_cpp_api.types import (
    ChatCompletionLogprobs,
    ChatCompletionStreamResponseChoice,
    ChatCompletionStreamResponseDelta,
    CompletionLogprobs,
    CompletionUsage,
    CreateChatCompletionResponse,
    CreateChatCompletionStreamResponse,
    CreateCompletionResponse,
    CreateCompletionStreamResponse,
)
from lcspec.logprobs import TokenLogprob
from lcspec.stream import Completion, FinishReason, Piece
from lcspec.text import TextAssembler

Reason: TypeAlias = Literal["stop", "length"]

ChatScores: TypeAlias = Callable[[Iterable[TokenLogprob]], ChatCompletionLogprobs]


@dataclass(frozen=True)
class Heading:
    """What all dictionaries of an answer have in common.

    Attributes:
        id: of the answer.
        created: seconds since 1970.
        model: what they call the model.
    """

    id: str
    created: int
    model: str


def heading(model: str) -> Heading:
    """Return the heading of a new answer to a prompt."""
    return Heading(f"cmpl-{uuid.uuid4()}", int(time.time()), model)


def chat_heading(model: str) -> Heading:
    """Return the heading of a new answer to messages."""
    return Heading(f"chatcmpl-{uuid.uuid4()}", int(time.time()), model)


def shown_reason(reason: FinishReason) -> Reason:
    """Return why a text that was not cancelled ended."""
    return "length" if reason == "length" else "stop"


def usage_of(completion: Completion) -> CompletionUsage:
    """Return the tokens of prompt and text."""
    n_prompt, n_text = completion.stats.prompt_tokens, len(completion.tokens)
    return {"prompt_tokens": n_prompt, "completion_tokens": n_text, "total_tokens": n_prompt + n_text}


class ChunkTexts:
    """Divides a text into chunks: one for each token where they are scored, else one for each run of them.

    Args:
        model: whose tokens they are.
        stop: strings at which the text ends.
        scored: whether tokens are scored.
    """

    def __init__(self, model: Model, stop: Sequence[str], scored: bool) -> None:
        self._model = model
        self._assembler = TextAssembler(stop) if scored else None

    def add(self, piece: Piece) -> list[tuple[str, Sequence[TokenLogprob]]]:
        """Return the texts and scores of the chunks that come with a piece."""
        if self._assembler is None:
            return [(piece.text, ())] if piece.text else []
        return [(self._assembler.add(self._model.piece(one.token)), [one]) for one in piece.logprobs]

    def finish(self) -> list[tuple[str, Sequence[TokenLogprob]]]:
        """Return what was held back."""
        rest = "" if self._assembler is None else self._assembler.finish()
        return [(rest, ())] if rest else []


class CompletionWriter:
    """Writes a text as the answer to a prompt.

    Args:
        model: the target.
        heading: that of the answer.
        prompt: its text, on which the positions of tokens count on.
        echo: begin the text with the prompt's.
        scored: whether tokens are scored.
        index: which of the answer's texts it is.
    """

    def __init__(
        self, model: Model, heading: Heading, *, prompt: str, echo: bool, scored: bool, index: int = 0
    ) -> None:
        self._heading = heading
        self._echoed = prompt if echo else ""
        self._index = index
        self._scores = ScoreWriter(model, len(prompt)) if scored else None

    def whole(self, completion: Completion) -> CreateCompletionResponse:
        """Return all of the text."""
        scores = None if self._scores is None else self._scores.write(completion.logprobs)
        reason = shown_reason(completion.finish_reason)
        return {**self._chunk(self._echoed + completion.text, scores, reason), "usage": usage_of(completion)}

    def opening(self) -> list[CreateCompletionStreamResponse]:
        """Return the chunks that come before the text."""
        return [self.chunk(self._echoed)] if self._echoed else []

    def chunk(
        self, text: str, scores: Sequence[TokenLogprob] = (), reason: Reason | None = None
    ) -> CreateCompletionStreamResponse:
        """Return a chunk of the text; the last one is empty and has the reason."""
        return self._chunk(text, self._scores.write(scores) if self._scores is not None and scores else None, reason)

    def _chunk(
        self, text: str, scores: CompletionLogprobs | None, reason: Reason | None
    ) -> CreateCompletionStreamResponse:
        return {
            "id": self._heading.id,
            "object": "text_completion",
            "created": self._heading.created,
            "model": self._heading.model,
            "choices": [{"text": text, "index": self._index, "logprobs": scores, "finish_reason": reason}],
        }


class ChatWriter:
    """Writes a text as the answer to messages.

    Args:
        heading: that of the answer.
        scores: writes the scores of tokens; None where they are not scored.
        index: which of the answer's texts it is.
    """

    def __init__(self, heading: Heading, *, scores: ChatScores | None, index: int = 0) -> None:
        self._heading = heading
        self._scores = scores
        self._index = index

    def whole(self, completion: Completion) -> CreateChatCompletionResponse:
        """Return all of the text."""
        return {
            "id": self._heading.id,
            "object": "chat.completion",
            "created": self._heading.created,
            "model": self._heading.model,
            "choices": [
                {
                    "index": self._index,
                    "message": {"role": "assistant", "content": completion.text},
                    "logprobs": None if self._scores is None else self._scores(completion.logprobs),
                    "finish_reason": shown_reason(completion.finish_reason),
                }
            ],
            "usage": usage_of(completion),
        }

    def opening(self) -> list[CreateChatCompletionStreamResponse]:
        """Return the chunk with the role, which comes before the text."""
        return [self._chunk({"role": "assistant"}, (), None)]

    def chunk(
        self, text: str, scores: Sequence[TokenLogprob] = (), reason: Reason | None = None
    ) -> CreateChatCompletionStreamResponse:
        """Return a chunk of the text; the last one is empty and has the reason."""
        return self._chunk({"content": text} if reason is None else {}, scores, reason)

    def _chunk(
        self, delta: ChatCompletionStreamResponseDelta, scores: Sequence[TokenLogprob], reason: Reason | None
    ) -> CreateChatCompletionStreamResponse:
        written = self._scores(scores) if self._scores is not None and scores else None
        choice = ChatCompletionStreamResponseChoice(
            index=self._index, delta=delta, logprobs=written, finish_reason=reason
        )
        return {
            "id": self._heading.id,
            "object": "chat.completion.chunk",
            "created": self._heading.created,
            "model": self._heading.model,
            "choices": [choice],
        }
