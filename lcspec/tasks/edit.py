"""Editing a text by an instruction: all of it goes through the model and comes back edited."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import count
from operator import add

from lcspec.checks import check_whole
from lcspec.engine import SpeculativeLM
from lcspec.errors import AnswerError, PromptError
from lcspec.rules import RuleName
from lcspec.sampling import GREEDY, SamplingParams
from lcspec.stats import Stats
from lcspec.tasks.edited_piece import EditedPiece, cut_blanks, edited_piece
from lcspec.tasks.line_endings import commonest_ending, lines_of, with_lf
from lcspec.tasks.pieces import split

Progress = Callable[[int, int], None]
"""Is told how many characters are done, and how many there are."""

_MESSAGE = """\
Edit this file: {instruction}
Answer with the whole edited file and nothing else.

<{tag}>
{text}
</{tag}>"""
_GROWTH, _EXTRA = 1.5, 64  # an answer may have so many tokens for each of the text, and so many more
_LEAST_LIMIT = 16  # tokens of a piece


@dataclass(frozen=True)
class Edited:
    """An edited text.

    Attributes:
        text: all of it, with what was not to be edited.
        pieces: what was to be edited, in pieces that the model was given one after the other.
        stats: of all answers together.
    """

    text: str
    pieces: tuple[EditedPiece, ...]
    stats: Stats

    @property
    def problems(self) -> tuple[str, ...]:
        """Why answers don't look like edits, one for each that does not; none are let through without `force`."""
        return tuple(piece.problem for piece in self.pieces if piece.problem is not None)


def edit_text(
    engine: SpeculativeLM,
    text: str,
    instruction: str,
    *,
    lines: tuple[int, int | None] | None = None,
    max_tokens: int | None = None,
    on_progress: Progress | None = None,
    force: bool = False,
    sampling: SamplingParams = GREEDY,
    rule: RuleName | None = None,
) -> Edited:
    r"""Let a model edit a text.

    A text that is too long for the context goes through it in pieces. Line endings (\n, \r\n or \r) stay as they are,
    and so do empty lines before a piece, blanks behind it, and pieces that come back unchanged.

    Args:
        engine: the model; it needs a chat template.
        text: what is to be edited.
        instruction: what is to be done, such as "Correct the spelling."
        lines: the first and the last line to edit, counted from 1; None as the last is the end of the text.
        max_tokens: tokens that the answer for a piece may have; by default 1.5 times those of the piece, and 64.
        on_progress: is told, while the text comes, how much of it is done.
        force: take answers that don't look like an edit, too.
        sampling: how tokens are chosen.
        rule: the acceptance rule, as of `SpeculativeLM.stream`.

    Raises:
        PromptError: there is nothing to edit or no instruction, no such line, no room for a piece in the context, or
            the model has no chat template.
        AnswerError: without `force`, when an answer is cut off, empty, a refusal, or less than half as long as the
            piece though the instruction did not ask to shorten.
    """
    before, chosen, behind = _chosen(text, lines)
    if not chosen.strip():
        raise PromptError("there is nothing to edit but blanks")
    asking = _Asking(engine, instruction, text, max_tokens, sampling, rule)
    usual = commonest_ending(text)
    line = len(lines_of(before)) + 1
    pieces: list[EditedPiece] = []
    stats: list[Stats] = []
    done = 0

    def tell(of_piece: int) -> None:
        if on_progress is not None:
            on_progress(done + of_piece, len(chosen))

    for part in split(chosen, asking.count_tokens, asking.limit):
        piece = EditedPiece(part, part)
        if part.strip():
            answer = asking.answer(part, tell)
            piece = edited_piece(part, answer.text, instruction, answer.is_complete, usual)
            stats.append(answer.stats)
        if piece.problem is not None and not force:
            raise AnswerError(
                f"the answer for {_lines_named(line, part)} {piece.problem}; force (--force) takes it all the same"
            )
        pieces.append(piece)
        line += with_lf(part).count("\n")
        tell(len(part))
        done += len(part)
    edited = "".join([before, *(piece.after for piece in pieces), behind])
    return Edited(edited, tuple(pieces), reduce(add, stats))


def _lines_named(first: int, part: str) -> str:
    last = first + with_lf(part.rstrip()).count("\n")
    return f"lines {first:,} to {last:,}" if last > first else f"line {first:,}"


def _chosen(text: str, lines: tuple[int, int | None] | None) -> tuple[str, str, str]:
    """Return what is before the lines to edit, these, and what is behind them."""
    if lines is None:
        return "", text, ""
    all_lines = lines_of(text)
    first = check_whole("the first line", lines[0], 1)
    last = len(all_lines) if lines[1] is None else check_whole("the last line", lines[1], first)
    if first > len(all_lines):
        raise PromptError(f"there is no line {first:,} to edit: the text has {len(all_lines):,}")
    return "".join(all_lines[: first - 1]), "".join(all_lines[first - 1 : last]), "".join(all_lines[last:])


@dataclass(frozen=True)
class _Answer:
    text: str
    is_complete: bool
    stats: Stats


class _Asking:
    """How a model is asked for the edited text of a piece.

    The piece is in the prompt as it is, which lookup drafts from, between tags, and the model's answer is begun for it
    with the opening one, so that it writes the text at once and then the closing tag, where the answer ends.
    """

    def __init__(
        self,
        engine: SpeculativeLM,
        instruction: str,
        text: str,
        max_tokens: int | None,
        sampling: SamplingParams,
        rule: RuleName | None,
    ) -> None:
        if not instruction.strip():
            raise PromptError("there is no instruction that says how to edit")
        if max_tokens is not None:
            check_whole("max_tokens", max_tokens, 1)
        self._engine = engine
        self._instruction = instruction.strip()
        self._tag = _tag_for(text + instruction)
        self._max_tokens = max_tokens
        self._sampling = sampling
        self._rule = rule
        room = engine.n_ctx - len(self._prompt(""))
        self.limit = int((room - _EXTRA) / (1 + _GROWTH)) if max_tokens is None else room - max_tokens
        """Tokens that a piece may have, so that it and its answer fit into the context."""
        if self.limit < _LEAST_LIMIT:
            raise PromptError(
                f"the context of {engine.n_ctx:,} tokens has no room for instruction, text and answer: "
                "take more context (n_ctx, --ctx), a shorter instruction or fewer tokens of an answer"
            )

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self._engine.target.tokenize(with_lf(text), add_special=False))

    def answer(self, part: str, on_progress: Callable[[int], None]) -> _Answer:
        """Let the model write the edited text of a piece."""
        head, body, _ = cut_blanks(part)
        allowed = self._max_tokens or int(_GROWTH * self.count_tokens(body)) + _EXTRA
        written = len(head)
        with self._engine.stream(
            self._prompt(with_lf(body)),
            max_tokens=allowed,
            stop=[f"</{self._tag}>"],
            sampling=self._sampling,
            rule=self._rule,
        ) as stream:
            for piece in stream:
                written += len(piece.text)
                on_progress(min(written, len(part)))
            completion = stream.completion
        return _Answer(completion.text, completion.finish_reason in ("eog", "stop"), completion.stats)

    def _prompt(self, text: str) -> list[int]:
        message = _MESSAGE.format(instruction=self._instruction, tag=self._tag, text=text)
        opening = self._engine.target.tokenize(f"<{self._tag}>\n", add_special=False)
        return self._engine.chat_prompt([{"role": "user", "content": message}]) + opening


def _tag_for(text: str) -> str:
    """Return the name of a tag that does not occur in a text."""
    names = (f"file{number or ''}" for number in count())
    return next(name for name in names if f"<{name}>" not in text and f"</{name}>" not in text)
