"""Summaries: a text goes through the model, in pieces where it is long, and a short one comes out."""

import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from lcspec.checks import check_whole
from lcspec.engine import SpeculativeLM
from lcspec.errors import PromptError
from lcspec.limits import DrafterName
from lcspec.llama import Model
from lcspec.rules import RuleName
from lcspec.sampling import GREEDY, SamplingParams
from lcspec.stats import Stats
from lcspec.stream import FinishReason, Stream
from lcspec.tasks.budget import TITLE_TOKENS, Budget
from lcspec.tasks.pieces import split
from lcspec.tasks.selection import Selection
from lcspec.tasks.summary import Progress, Summary

DEFAULT_WORDS = 100

_TASK = "{text}\n\n---\n\n{task}"  # what is asked comes last: several questions share the evaluated text
_SUMMARY = "Summarize the text above in a short paragraph of at most {words} words."  # small models stay closest to it
_LONG_SUMMARY = "Summarize the text above in at most {words} words."
_SHORT = 150  # words of a paragraph
_BULLETS = "List the main points of the text above, one line each, in at most {words} words."
_TITLE = "Give the text above a short title."


def summarize_text(
    engine: SpeculativeLM,
    text: str,
    *,
    words: int = DEFAULT_WORDS,
    bullets: bool = False,
    title: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    sampling: SamplingParams = GREEDY,
    rule: RuleName | None = None,
    drafter: DrafterName | None = None,
) -> Summary:
    """Return a summary of a text; arguments and errors are those of `SummaryStream`, which gives it in parts."""
    with SummaryStream(
        engine,
        text,
        words=words,
        bullets=bullets,
        title=title,
        on_progress=on_progress,
        sampling=sampling,
        rule=rule,
        drafter=drafter,
    ) as stream:
        for _ in stream:
            pass
        return stream.summary


class SummaryStream(Iterator[str]):
    """Iterates over the parts of a summary, sentence by sentence, while it is written.

    A text that does not fit into the context is summarized piece by piece before the first part comes, and then the
    summaries are, until one is left. Close a stream that is not read to its end (it is a context manager); any thread
    may do so.

    Args:
        engine: writes; its context decides how long pieces are.
        text: of any length.
        words: of the summary at the most, though it has at least one sentence.
        bullets: make it a list of the main points, each a line that begins with '- '.
        title: give it a title, too, which `summary` has before the first part comes.
        on_progress: is called before a level's first piece is summarized and after each.
        sampling: how tokens are chosen; by default always the likeliest.
        rule: the acceptance rule, see `SpeculativeLM.stream`.
        drafter: another drafter than the engine's.

    Raises:
        PromptError: the text is empty, `words` is less than 1, the context is too small for so many words, or the
            model has no chat template.
    """

    def __init__(
        self,
        engine: SpeculativeLM,
        text: str,
        *,
        words: int = DEFAULT_WORDS,
        bullets: bool = False,
        title: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
        sampling: SamplingParams = GREEDY,
        rule: RuleName | None = None,
        drafter: DrafterName | None = None,
    ) -> None:
        check_whole("words", words, 1)
        if not text.strip():
            raise PromptError("the text is empty: there is nothing to summarize")
        if sampling.temperature > 0 and sampling.seed is None:
            sampling = replace(sampling, seed=secrets.randbits(64))
        self._engine = engine
        self._options: dict[str, Any] = {"sampling": sampling, "rule": rule, "drafter": drafter}
        self._seed = sampling.seed if sampling.temperature > 0 else None
        self._wants_title = title
        self._task = _BULLETS.format(words=words) if bullets else _summary_task(words)
        self._tell = on_progress or (lambda _: None)
        self._budget = Budget.of(engine, words, _message("", self._task))
        self._selection = Selection(words, bullets)
        self._bullets = bullets
        self._title: str | None = None
        self._stats = Stats()
        self._pieces = self._levels = 0
        self._stream: Stream | None = None
        self._closed = self._finished = False
        self._last_reason: FinishReason = "cancelled"
        self._parts = self._run(_without_special_tokens(engine, text))

    @property
    def summary(self) -> Summary:
        """What has been read so far; 'cancelled' until all of it was."""
        return Summary(
            text=self._selection.text,
            title=self._title,
            bullets=tuple(self._selection.items) if self._bullets else None,
            finish_reason=(self._finished and self._selection.ended) or "cancelled",
            pieces=self._pieces,
            levels=self._levels,
            stats=self._stats,
            seed=self._seed,
        )

    def __next__(self) -> str:
        return next(self._parts)

    def _run(self, text: str) -> Generator[str, None, None]:
        """Summarize pieces until one is left, and yield the summary of that one."""
        pieces = self._cut(text)
        self._pieces, self._levels = len(pieces), 1
        while len(pieces) > 1:
            self._tell(Progress(self._levels, 0, len(pieces)))
            summaries = []
            for done, piece in enumerate(pieces, 1):
                summaries.append(self._summary_of(piece))
                if self._closed:
                    return
                self._tell(Progress(self._levels, done, len(pieces)))
            pieces = self._cut("\n\n".join(filter(None, summaries)))
            self._levels += 1
        self._tell(Progress(self._levels, 0, 1))
        for piece in pieces:
            if self._wants_title:
                self._title = self._title_of(piece)
            yield from self._last_summary(piece)
        if self._finished:
            self._tell(Progress(self._levels, 1, 1))

    def _cut(self, text: str) -> list[str]:
        """Return a text as one piece if it fits, else in several."""
        if self._count_tokens(text) <= self._budget.room:
            return [text] if text else []
        return split(text, self._count_tokens, self._budget.piece)

    def _count_tokens(self, text: str) -> int:
        return len(self._engine.target.tokenize(text, add_special=False))

    def _summary_of(self, piece: str) -> str:
        """Return the summary of a piece, which has few tokens whatever the model writes."""
        budget = self._budget
        selection = Selection(budget.piece_words)
        for _ in self._select(selection, piece, _summary_task(budget.piece_words), budget.piece_summary):
            pass
        fits = split(selection.text, self._count_tokens, budget.piece_summary)
        return fits[0] if fits else ""

    def _last_summary(self, piece: str) -> Iterator[str]:
        begin = "-" if self._bullets else ""
        try:
            yield from self._select(self._selection, piece, self._task, self._budget.summary, begin)
            self._finished = self._selection.ended is not None
        finally:
            for _ in self._selection.finish(is_whole=True):  # of one that was interrupted, what was held back
                pass

    def _title_of(self, piece: str) -> str | None:
        title = "".join(self._write(piece, _TITLE, TITLE_TOKENS, "Title:", stop=["\n"]))
        title = title.strip(" \t\"'*_#“”„«»").removesuffix(".")
        return f"{title} …" if title and self._last_reason == "length" else title or None

    def _select(self, selection: Selection, piece: str, task: str, max_tokens: int, begin: str = "") -> Iterator[str]:
        """Yield what the selection takes of an answer."""
        yield from selection.add(begin)
        with closing(self._write(piece, task, max_tokens, begin)) as texts:
            for text in texts:
                yield from selection.add(text)
                if selection.ended is not None:
                    return
        if self._last_reason != "cancelled":
            yield from selection.finish(is_whole=self._last_reason == "eog")

    def _write(
        self, piece: str, task: str, max_tokens: int, begin: str = "", stop: Sequence[str] = ()
    ) -> Generator[str, None, None]:
        """Yield the answer to a task on a piece, which goes on from `begin`."""
        engine = self._engine
        prompt = engine.chat_prompt(_message(piece, task))
        prompt += engine.target.tokenize(begin, add_special=False)
        with engine.stream(prompt, max_tokens=max_tokens, stop=stop, **self._options) as stream:
            self._stream = stream
            if self._closed:
                stream.close()
            try:
                for part in stream:
                    yield part.text
            finally:
                completion = stream.completion
                self._last_reason = completion.finish_reason
                self._stats += completion.stats

    def close(self) -> None:
        """End the summary; what was written so far stays in `summary`."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()
        with suppress(ValueError):  # another thread reads it, and will see
            self._parts.close()

    def __enter__(self) -> "SummaryStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _summary_task(words: int) -> str:
    return (_SUMMARY if words <= _SHORT else _LONG_SUMMARY).format(words=words)


def _message(text: str, task: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": _TASK.format(text=text.strip("\n"), task=task)}]


def _without_special_tokens(engine: SpeculativeLM, text: str) -> str:
    """Return a text in which what would be read as a special token, such as '<|im_end|>', is broken by a space."""
    while special := _special_tokens_in(text, engine.target):
        for written in special:
            text = text.replace(written, f"{written[0]} {written[1:]}")
    return text


def _special_tokens_in(text: str, model: Model) -> set[str]:
    tokens = {token for token in model.tokenize(text, add_special=False) if model.piece(token) == b""}
    return {written for written in map(model.token_text, tokens) if len(written) > 1 and written in text}
