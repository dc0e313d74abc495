"""The text of one generation as it comes, and what it was in the end."""

import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Literal

from lcspec.llama import Model
from lcspec.logprobs import TokenLogprob
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
        logprobs: of the tokens; empty where they were not asked for.
    """

    text: str
    tokens: tuple[int, ...]
    drafter: str | None
    logprobs: tuple[TokenLogprob, ...] = ()


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
        seed: gives this text again; None where it does not depend on one.
        logprobs: of the tokens; empty where they were not asked for.
    """

    text: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats
    seed: int | None = None
    logprobs: tuple[TokenLogprob, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the completion as JSON types."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "finish_reason": self.finish_reason,
            "stats": self.stats.as_dict(),
            "seed": self.seed,
            "logprobs": [asdict(one) for one in self.logprobs],
        }


@dataclass
class ReadMark:
    """How much of a prompt and its text plain decoding would have in its cache, as far as the text was read."""

    n_tokens: int


class Pieces:
    """Makes pieces of the passes of a generation, up to where its text ends.

    Args:
        model: gives the bytes of tokens.
        stats: counts the passes.
        max_tokens: tokens of the text at the most.
        stop: strings that end it.
    """

    def __init__(self, model: Model, stats: Stats, max_tokens: int, stop: Sequence[str]) -> None:
        self.stats = stats
        self.finish_reason: FinishReason | None = None
        """Why the text ended; None while it goes on."""
        self._model = model
        self._max_tokens = max_tokens
        self._assembler = TextAssembler(stop)

    def add(self, done: Pass) -> list[Piece]:
        """Return what a pass adds; with the last one, all that was held back."""
        self.stats.record(done)
        pieces = []
        for drafter, part in (done.draft.drafter, slice(done.accepted)), (None, slice(done.accepted, None)):
            if done.emitted[part] and not self._assembler.stopped:
                pieces.append(self._piece(done.emitted[part], drafter, done.scores[part]))
        if self._assembler.stopped:
            return pieces + self.finish("stop")
        if self._model.is_eog(done.emitted[-1]):
            return pieces + self.finish("eog")
        if self.stats.tokens == self._max_tokens:
            return pieces + self.finish("length")
        return pieces

    def finish(self, reason: FinishReason) -> list[Piece]:
        """End the text, and return what was held back."""
        rest = self._assembler.finish()
        self.finish_reason = "stop" if self._assembler.stopped else reason
        return [Piece(rest, (), None)] if rest else []

    def _piece(self, tokens: tuple[int, ...], drafter: str | None, logprobs: tuple[TokenLogprob, ...]) -> Piece:
        """Take tokens up to the one that ends the text."""
        text = ""
        n = 0
        for token in tokens:
            if self._assembler.stopped or self._model.is_eog(token):
                break
            text += self._assembler.add(self._model.piece(token))
            n += 1
        return Piece(text, tokens[:n], drafter, logprobs[:n])


class Stream(Iterator[Piece]):
    """Iterates over the pieces of a generation while it runs.

    The engine is taken from the first piece to the last; close a stream that is not read to its end
    (it is a context manager) to let others have it. Any thread may close it.
    """

    def __init__(
        self,
        passes: Generator[Pass, None, None],
        model: Model,
        stats: Stats,
        max_tokens: int,
        stop: Sequence[str],
        *,
        seed: int | None = None,
        mark: ReadMark | None = None,
    ) -> None:
        self._passes = passes
        self._made = Pieces(model, stats, max_tokens, stop)
        self._seed = seed
        self._mark = mark or ReadMark(0)
        self._stats = stats
        self._texts: list[str] = []
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._pieces: deque[Piece] = deque()
        self._finish_reason: FinishReason = "cancelled"
        self._ended = False
        self._advancing = threading.Lock()

    @property
    def completion(self) -> Completion:
        """What has been read so far; 'cancelled' until all of it was."""
        reason: FinishReason = "cancelled" if self._pieces else self._finish_reason
        tokens, logprobs = tuple(self._tokens), tuple(self._logprobs)
        return Completion("".join(self._texts), tokens, reason, deepcopy(self._stats), self._seed, logprobs)

    def __next__(self) -> Piece:
        with self._advancing:
            while not self._pieces:
                if self._ended:
                    self._passes.close()
                    raise StopIteration
                self._advance()
            piece = self._pieces.popleft()
            self._texts.append(piece.text)
            self._tokens += piece.tokens
            self._logprobs += piece.logprobs
            self._move_mark()
            return piece

    def _move_mark(self) -> None:
        last_is_evaluated = self._finish_reason == "eog" and not self._pieces  # since an end came behind it
        self._mark.n_tokens = self._stats.prompt_tokens + len(self._tokens) - (0 if last_is_evaluated else 1)

    def _advance(self) -> None:
        """Run a pass and add its pieces; with the last one, or where nothing is wanted, let the engine go."""
        done = None
        try:
            done = next(self._passes, None)
        finally:
            self._ended = self._ended or done is None
        self._pieces += (
            self._made.finish("length") if done is None else self._made.add(done)
        )  # None: nothing was wanted
        if self._made.finish_reason is not None:
            self._passes.close()
            self._ended = True
            self._finish_reason = self._made.finish_reason

    def close(self) -> None:
        """End the generation, in another thread when its pass is over; what came so far stays in `completion`."""
        self._ended = True
        if self._advancing.acquire(blocking=False):
            try:
                self._passes.close()
                if self._pieces:
                    self._pieces.clear()
                    self._finish_reason = "cancelled"
            finally:
                self._advancing.release()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
