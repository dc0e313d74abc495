"""The text of one generation as it comes, and what it was in the end."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from lcspec.llama import Model
from lcspec.loop import Pass
from lcspec.stats import Stats
from lcspec.text import TextAssembler

FinishReason = Literal["stop", "length", "eog", "cancelled"]


@dataclass(frozen=True)
class Piece:
    """A run of tokens of one origin, and the text that became certain with them.

    Attributes:
        text: may be empty, when a character or a possible stop string is not complete.
        tokens: token ids; empty for text that was held back until the end.
        drafter: name of the drafter that proposed the tokens, None when they are the target's own.
    """

    text: str
    tokens: tuple[int, ...]
    drafter: str | None


@dataclass(frozen=True)
class Completion:
    """A finished generation.

    Attributes:
        text: without the stop string.
        tokens: ids of the text's tokens, without the end-of-generation token. When a stop string ended
            the text, they go on to the token that completed it.
        finish_reason: 'eog' at an end-of-generation token, 'stop' at a stop string, 'length' at
            `max_tokens` or the end of the context, 'cancelled' when the stream was not read to its end.
        stats: what it cost.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats

    def as_dict(self) -> dict[str, Any]:
        """Return the completion as JSON types."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            "stats": self.stats.as_dict(),
        }


class Stream(Iterator[Piece]):
    """Iterates over the pieces of a generation while it runs.

    The engine is taken from the first piece to the last; close a stream that is not read to its end
    (it is a context manager) to let others have it.
    """

    def __init__(
        self, passes: Generator[Pass, None, None], model: Model, prompt_tokens: int, stop: Sequence[str]
    ) -> None:
        self._model = model
        self._assembler = TextAssembler(stop)
        self._stats = Stats(prompt_tokens=prompt_tokens)
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._finish_reason: FinishReason = "cancelled"
        self._pieces = self._assemble(passes)

    @property
    def completion(self) -> Completion:
        """What has been generated so far; 'cancelled' until the last piece was read."""
        return Completion("".join(self._texts), tuple(self._tokens), self._finish_reason, self._stats)

    def _assemble(self, passes: Generator[Pass, None, None]) -> Generator[Piece, None, None]:
        reason: FinishReason = "length"
        with closing(passes):
            for done in passes:
                self._stats.record(done)
                drafted, own = done.emitted[: done.accepted], done.emitted[done.accepted :]
                for tokens, drafter in (drafted, done.draft.drafter), (own, None):
                    if tokens:
                        yield self._piece(tokens, drafter)
                    if self._assembler.stopped:
                        self._finish_reason = "stop"
                        return
                if self._model.is_eog(done.emitted[-1]):
                    reason = "eog"
        self._finish_reason = reason
        if rest := self._assembler.finish():
            self._texts.append(rest)
            yield Piece(rest, (), None)

    def _piece(self, tokens: tuple[int, ...], drafter: str | None) -> Piece:
        """Take tokens up to the one that ends the text."""
        text = ""
        n = 0
        for token in tokens:
            if self._assembler.stopped or self._model.is_eog(token):
                break
            text += self._assembler.add(self._model.piece(token))
            n += 1
        self._texts.append(text)
        self._tokens += tokens[:n]
        return Piece(text, tokens[:n], drafter)

    def __next__(self) -> Piece:
        return next(self._pieces)

    def close(self) -> None:
        """End the generation; what came so far stays in `completion`."""
        self._pieces.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
