"""Editing texts: with answers as they should be, and with those that a tiny model gives."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import tiny

from lcspec import LcspecError, PromptError, SamplingParams, SpeculativeLM, Stats
from lcspec.errors import AnswerError
from lcspec.stream import Completion, FinishReason, Piece
from lcspec.tasks.edit import Edited, edit_text

CTX = 512
PARAGRAPHS = "".join(f"This is paragraph {n}, \r\nof two lines.\r\n\r\n" for n in range(40))


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1, measure=False) as engine:
        yield engine


class Editor:
    """An engine whose model writes what a function makes of the piece in the prompt; all else is real.

    The function may give the reason for which the answer ended, too.
    """

    def __init__(self, engine: SpeculativeLM) -> None:
        self.n_ctx = engine.n_ctx
        self.target = engine.target
        self.chat_prompt = engine.chat_prompt

    def __call__(self, text: str, write: "Write", instruction: str = "Do it.", **options: Any) -> Edited:
        self._write = write
        self.prompts: list[str] = []
        self.allowed: list[int] = []
        return edit_text(cast("SpeculativeLM", self), text, instruction, **options)

    def stream(self, prompt: list[int], *, max_tokens: int, stop: list[str], **_: Any) -> "_Written":
        text = bytes(token for token in prompt if token < 256).decode()
        self.prompts.append(text)
        self.allowed.append(max_tokens)
        assert len(prompt) + max_tokens <= self.n_ctx
        (end,) = stop
        opening = end.replace("/", "")
        assert text.endswith(f"{opening}\n")
        written = self._write(text[text.index(f"\n{opening}\n") + len(opening) + 2 : text.rindex(f"\n{end}")])
        answer, reason = written if isinstance(written, tuple) else (written, "stop")
        tokens = tuple(answer.encode())
        return _Written(Completion(answer, tokens, reason, Stats(len(prompt), 0, len(tokens), texts=1)))


Write = Callable[[str], str | tuple[str, FinishReason]]


@dataclass
class _Written:
    completion: Completion

    def __enter__(self) -> "_Written":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Piece]:
        return (Piece(character, (), None) for character in self.completion.text)


@pytest.fixture
def edit(engine: SpeculativeLM) -> Editor:
    return Editor(engine)


def test_the_answer_takes_the_place_of_the_text(edit: Editor) -> None:
    edited = edit("\none\ntwo\n\n", lambda text: text.replace("two", "2"))
    assert edited.text == "\none\n2\n\n"
    assert [(piece.before, piece.after) for piece in edited.pieces] == [("\none\ntwo\n\n", "\none\n2\n\n")]
    assert edited.problems == ()


def test_the_prompt_has_the_instruction_and_the_text_as_it_is(edit: Editor) -> None:
    edit("  one {tag}\r\ntwo\r\n", str, instruction=" Rename {it}. ")
    (prompt,) = edit.prompts
    assert "Edit this file: Rename {it}.\n" in prompt
    assert "\n<file>\n  one {tag}\ntwo\n</file>" in prompt


def test_a_text_with_the_tag_in_it_has_another(edit: Editor) -> None:
    text = "<file>\na\n</file> </file1>\n"
    edited = edit(text, lambda piece: piece.replace("a", "b"))
    assert edited.text == text.replace("a", "b")
    assert edit.prompts[0].endswith("<file2>\n")


def test_a_long_text_is_edited_in_pieces_that_fit(edit: Editor) -> None:
    edited = edit(PARAGRAPHS, lambda piece: piece.replace("paragraph", "part"))
    assert edited.text == PARAGRAPHS.replace("paragraph", "part")
    assert "".join(piece.before for piece in edited.pieces) == PARAGRAPHS
    assert len(edit.prompts) == len(edited.pieces) > 5
    assert edited.stats.texts == len(edited.pieces)


def test_pieces_that_come_back_as_they_were_are_the_same_to_the_byte(edit: Editor) -> None:
    text = PARAGRAPHS.replace(" 7, \r\n", " 7, \n").replace(" 20,", "\t20,") + "end\r"
    assert edit(text, str).text == text
    changed = edit(text, lambda piece: piece.replace("paragraph 30,", "PARAGRAPH 30,"))
    assert changed.text == text.replace("paragraph 30,", "PARAGRAPH 30,")


def test_an_answer_may_be_half_as_long_again_and_64_tokens(edit: Editor) -> None:
    edit("x" * 40 + "\n", str)
    assert edit.allowed == [124]
    edit("x" * 40, str, max_tokens=7)
    assert edit.allowed == [7]


def test_more_tokens_of_an_answer_leave_fewer_for_a_piece(edit: Editor) -> None:
    few = len(edit(PARAGRAPHS, str, max_tokens=100).pieces)
    assert few < len(edit(PARAGRAPHS, str, max_tokens=300).pieces)


def test_blank_pieces_do_not_go_through_the_model(edit: Editor) -> None:
    text = "a\n" + "\n" * 700 + "b\n"
    assert edit(text, str.upper).text == text.upper()
    assert len(edit.prompts) == 2


def test_only_the_lines_that_are_asked_for_go_through_the_model(edit: Editor) -> None:
    text = "a \r\n\r\nb\nc\rd"
    assert edit(text, str.upper, lines=(3, 3)).text == "a \r\n\r\nB\nc\rd"
    assert "<file>\nb\n</file>" in edit.prompts[0]
    assert edit(text, str.upper, lines=(3, None)).text == "a \r\n\r\nB\nC\rD"
    assert edit(text, str.upper, lines=(1, 2)).text == "A \r\n\r\nb\nc\rd"
    assert edit(text, str.upper, lines=(4, 99)).text == "a \r\n\r\nb\nC\rD"


def test_a_line_that_is_replaced_by_several_ends_like_the_text(edit: Editor) -> None:
    assert edit("a b\r\nc\r\n", lambda _: "a\nb", lines=(1, 1)).text == "a\r\nb\r\nc\r\n"


def test_progress_grows_to_the_whole(edit: Editor) -> None:
    told: list[tuple[int, int]] = []
    edit(PARAGRAPHS, lambda piece: piece + " And more." * 3, on_progress=lambda *done: told.append(done))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert {total for _, total in told} == {len(PARAGRAPHS)}
    assert told[-1] == (len(PARAGRAPHS), len(PARAGRAPHS))
    assert len({done for done, _ in told}) > 100


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (("This is", "length"), "was cut off"),
        (("This is", "cancelled"), "was cut off"),
        ("", "is empty"),
        ("I'm sorry, but I can't help with that.", "is a refusal"),
        ("This", "has 4 characters where there were"),
    ],
)
def test_an_answer_that_is_no_edit_is_an_error_that_says_where(
    edit: Editor, answer: str | tuple[str, FinishReason], problem: str
) -> None:
    def write(piece: str) -> str | tuple[str, FinishReason]:
        return answer if "paragraph 20," in piece else piece

    with pytest.raises(AnswerError, match=rf"^the answer for lines \d+ to \d+ {problem}.*--force") as caught:
        edit(PARAGRAPHS, write)
    first, last = map(int, re.findall(r"lines (\d+) to (\d+)", str(caught.value))[0])
    assert first <= 61 <= last
    assert isinstance(caught.value, LcspecError)
    forced = edit(PARAGRAPHS, write, force=True)
    assert len(forced.problems) == 1
    assert forced.problems[0].startswith(problem)
    assert forced.text != PARAGRAPHS
    assert forced.text.count("paragraph") >= 30


def test_an_answer_may_be_short_if_that_was_asked_for(edit: Editor) -> None:
    assert edit("one two three four five\n", lambda _: "one", instruction="Remove the rest.").text == "one\n"


def test_what_cannot_be_edited_is_told(edit: Editor, engine: SpeculativeLM) -> None:
    for text in "", " \n\t\r\n":
        with pytest.raises(PromptError, match="nothing to edit"):
            edit(text, str)
    with pytest.raises(PromptError, match="no instruction"):
        edit("a", str, instruction=" \n")
    with pytest.raises(PromptError, match="no line 3 to edit: the text has 2"):
        edit("a\nb\n", str, lines=(3, None))
    for lines in (0, 1), (2, 1):
        with pytest.raises(PromptError, match="line is"):
            edit("a\nb\n", str, lines=lines)
    with pytest.raises(PromptError, match="nothing to edit"):
        edit("a\n\nb\n", str, lines=(2, 2))
    with pytest.raises(PromptError, match="max_tokens is 0"):
        edit("a", str, max_tokens=0)
    for options in {"instruction": "x" * CTX}, {"max_tokens": CTX}:
        with pytest.raises(PromptError, match="no room for instruction, text and answer"):
            edit("a", str, **options)


def test_a_model_without_a_chat_template_is_told(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "base.gguf", template=None)
    with (
        SpeculativeLM(model, n_ctx=CTX, threads=1, measure=False) as engine,
        pytest.raises(PromptError, match="no chat template"),
    ):
        edit_text(engine, "a\n", "Do it.")


# with the answers of a tiny model


def test_a_tiny_model_edits_the_same_text_whoever_drafts(tiny_llama: Path) -> None:
    texts = []
    for drafter in "none", "lookup":
        with SpeculativeLM(tiny_llama, None, drafter, n_ctx=200, threads=1, exact=True, measure=False) as engine:
            edited = edit_text(engine, "abcabcabc\n" * 3, "Do it.", max_tokens=30, force=True)
        texts.append(edited.text)
        assert edited.stats.tokens <= 30 * len(edited.pieces)
    assert texts[0] == texts[1]


def test_a_tiny_model_that_rambles_is_cut_off(engine: SpeculativeLM) -> None:
    with pytest.raises(AnswerError, match="cut off"):
        edit_text(engine, "abcabcabc\n" * 3, "Do it.", max_tokens=5)


def test_sampling_is_used(engine: SpeculativeLM) -> None:
    sampling = SamplingParams(temperature=2.0, seed=3)
    drawn = [
        edit_text(engine, "abc\n", "Do it.", max_tokens=20, force=True, sampling=one).text
        for one in (sampling, sampling, SamplingParams(temperature=2.0, seed=4), SamplingParams())
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 3
