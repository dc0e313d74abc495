"""From a stream to llama-cpp-python's dictionaries."""

import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Literal

from lcspec.errors import ClosedError
from lcspec.llama import Model
from lcspec.llama_cpp_api.scores import ScoreWriter, chat_scores
from lcspec.llama_cpp_api.types import (
    ChatCompletionStreamResponseChoice,
    ChatCompletionStreamResponseDelta,
    CompletionLogprobs,
    CreateChatCompletionResponse,
    CreateChatCompletionStreamResponse,
    CreateCompletionResponse,
    CreateCompletionStreamResponse,
)
from lcspec.stream import Stream
from lcspec.text import TextAssembler


class Answer:
    """One text, whole or in chunks.

    Args:
        stream: writes it.
        model: the target.
        name: what the dictionaries call the model; None for its file.
        prompt: its text, on which the positions of tokens count on.
        echo: begin the text with the prompt's.
        stop: strings at which the text ends, where tokens are scored.
        scored: whether tokens are.
    """

    def __init__(
        self,
        stream: Stream,
        model: Model,
        name: str | None,
        *,
        prompt: str,
        echo: bool,
        stop: Sequence[str],
        scored: bool,
    ) -> None:
        self._stream = stream
        self._model = model
        self._name = str(model.path) if name is None else name
        self._id = f"cmpl-{uuid.uuid4()}"
        self._created = int(time.time())
        self._echoed = prompt if echo else ""
        self._stop = stop
        self._scores = ScoreWriter(model, len(prompt)) if scored else None

    def whole(self) -> CreateCompletionResponse:
        """Write all of the text.

        Raises:
            ClosedError: the engine was closed meanwhile.
        """
        with self._stream:
            for _ in self._stream:
                pass
        reason = self._finish_reason()
        completion = self._stream.completion
        scores = None if self._scores is None else self._scores.write(completion.logprobs)
        n_prompt, n_text = completion.stats.prompt_tokens, len(completion.tokens)
        return {
            **self._chunk(self._echoed + completion.text, scores, reason),
            "usage": {
                "prompt_tokens": n_prompt,
                "completion_tokens": n_text,
                "total_tokens": n_prompt + n_text,
            },
        }

    def chunks(self) -> Generator[CreateCompletionStreamResponse, None, None]:
        """Write the text chunk by chunk: one for each token where they are scored, else one for each run of them.

        Raises:
            ClosedError: the engine was closed meanwhile.
        """
        if self._echoed:
            yield self._chunk(self._echoed)
        with self._stream:
            if self._scores is None:
                for piece in self._stream:
                    if piece.text:
                        yield self._chunk(piece.text)
            else:
                for text, scores in self._scored_texts(self._scores):
                    yield self._chunk(text, scores)
        yield self._chunk("", None, self._finish_reason())

    def _scored_texts(self, writer: ScoreWriter) -> Iterator[tuple[str, CompletionLogprobs | None]]:
        assembler = TextAssembler(self._stop)
        for piece in self._stream:
            for score in piece.logprobs:
                yield assembler.add(self._model.piece(score.token)), writer.write([score])
        if rest := assembler.finish():
            yield rest, None

    def _chunk(
        self,
        text: str,
        scores: CompletionLogprobs | None = None,
        reason: Literal["stop", "length"] | None = None,
    ) -> CreateCompletionStreamResponse:
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._name,
            "choices": [{"text": text, "index": 0, "logprobs": scores, "finish_reason": reason}],
        }

    def _finish_reason(self) -> Literal["stop", "length"]:
        reason = self._stream.completion.finish_reason
        if reason == "cancelled":
            raise ClosedError("the engine was closed before the text was complete")
        return "length" if reason == "length" else "stop"


def chat_answer(answer: CreateCompletionResponse) -> CreateChatCompletionResponse:
    """Return a text as an answer to messages."""
    (choice,) = answer["choices"]
    return {
        "id": f"chat{answer['id']}",
        "object": "chat.completion",
        "created": answer["created"],
        "model": answer["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": choice["text"]},
                "logprobs": chat_scores(choice["logprobs"]),
                "finish_reason": choice["finish_reason"],
            }
        ],
        "usage": answer["usage"],
    }


def chat_chunks(
    chunks: Generator[CreateCompletionStreamResponse, None, None],
) -> Generator[CreateChatCompletionStreamResponse, None, None]:
    """Yield the chunks of a text as those of an answer to messages; one with the role comes first."""
    is_first = True
    with closing(chunks):
        for chunk in chunks:
            if is_first:
                yield _chat_chunk(chunk, _delta({"role": "assistant"}))
                is_first = False
            (choice,) = chunk["choices"]
            reason = choice["finish_reason"]
            delta: ChatCompletionStreamResponseDelta = {"content": choice["text"]} if reason is None else {}
            yield _chat_chunk(
                chunk,
                {
                    "index": 0,
                    "delta": delta,
                    "logprobs": chat_scores(choice["logprobs"]),
                    "finish_reason": reason,
                },
            )


def _delta(delta: ChatCompletionStreamResponseDelta) -> ChatCompletionStreamResponseChoice:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}


def _chat_chunk(
    chunk: CreateCompletionStreamResponse, choice: ChatCompletionStreamResponseChoice
) -> CreateChatCompletionStreamResponse:
    return {
        "id": f"chat{chunk['id']}",
        "object": "chat.completion.chunk",
        "created": chunk["created"],
        "model": chunk["model"],
        "choices": [choice],
    }
