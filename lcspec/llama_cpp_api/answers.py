"""From a stream to llama-cpp-python's dictionaries."""

from collections.abc import Generator, Sequence
from typing import Generic, Protocol, TypeVar

from lcspec.errors import ClosedError
from lcspec.llama import Model
from lcspec.llama_cpp_api.writers import ChunkTexts, Reason, shown_reason
from lcspec.logprobs import TokenLogprob
from lcspec.stream import Completion, Stream

_Whole = TypeVar("_Whole", covariant=True)
_Chunk = TypeVar("_Chunk", covariant=True)


class Writer(Protocol[_Whole, _Chunk]):
    """Writes dictionaries: `CompletionWriter` or `ChatWriter`."""

    def whole(self, completion: Completion) -> _Whole:
        """Return all of a text."""

    def opening(self) -> Sequence[_Chunk]:
        """Return the chunks that come before the text."""

    def chunk(self, text: str, scores: Sequence[TokenLogprob] = ..., reason: Reason | None = ...) -> _Chunk:
        """Return a chunk."""


class Answer(Generic[_Whole, _Chunk]):
    """One text, whole or in chunks.

    Args:
        stream: writes it.
        model: the target.
        writer: writes its dictionaries.
        stop: strings at which the text ends.
        scored: whether tokens are scored.
    """

    def __init__(
        self, stream: Stream, model: Model, writer: Writer[_Whole, _Chunk], *, stop: Sequence[str], scored: bool
    ) -> None:
        self._stream = stream
        self._writer = writer
        self._texts = ChunkTexts(model, stop, scored)

    def whole(self) -> _Whole:
        """Write all of the text.

        Raises:
            ClosedError: the engine was closed meanwhile.
        """
        with self._stream:
            for _ in self._stream:
                pass
        return self._writer.whole(self._completion())

    def chunks(self) -> Generator[_Chunk, None, None]:
        """Write the text chunk by chunk: one for each token where they are scored, else one for each run of them.

        Raises:
            ClosedError: the engine was closed meanwhile.
        """
        yield from self._writer.opening()
        with self._stream:
            for piece in self._stream:
                for text, scores in self._texts.add(piece):
                    yield self._writer.chunk(text, scores)
            for text, scores in self._texts.finish():
                yield self._writer.chunk(text, scores)
        yield self._writer.chunk("", (), shown_reason(self._completion().finish_reason))

    def _completion(self) -> Completion:
        completion = self._stream.completion
        if completion.finish_reason == "cancelled":
            raise ClosedError("the engine was closed before the text was complete")
        return completion
