"""Line endings, and what becomes of a piece of a text once a model has answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.tasks.edited_piece import cut_blanks, edited_piece
from lcspec.tasks.line_endings import commonest_ending, lines_of, restore_endings, with_lf

ANY = st.text(alphabet="ab \t\r\n\x0c\u2028", max_size=60)


def after(part: str, answer: str, usual: str = "\n") -> str:
    return edited_piece(part, answer, "Correct it.", True, usual).after


@given(ANY)
def test_lines_join_to_the_text(text: str) -> None:
    lines = lines_of(text)
    assert "".join(lines) == text
    assert all(line.count("\n") + line.count("\r") - line.count("\r\n") <= 1 for line in lines)


@given(ANY)
def test_line_endings_of_an_unchanged_text_come_back(text: str) -> None:
    assert restore_endings(with_lf(text), text, "\n") == text


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_new_lines_end_like_the_others(ending: str) -> None:
    assert restore_endings("a\nB\nc\nd", f"a{ending}b", "\n") == ending.join("aBcd")


def test_a_single_line_becomes_several_with_the_usual_ending() -> None:
    assert restore_endings("a\nb", "a b", "\r\n") == "a\r\nb"


def test_of_several_kinds_each_line_keeps_its_own() -> None:
    original = "one\r\ntwo\nthree\r\nfour\n"
    assert restore_endings("one\n2\nthree\nfour\n", original, "\n") == "one\r\n2\nthree\r\nfour\n"
    assert restore_endings("one\nthree\nfour\n", original, "\n") == "one\r\nthree\r\nfour\n"
    assert restore_endings("one\nmore\ntwo\nthree\nfour\n", original, "\n") == "one\r\nmore\r\ntwo\nthree\r\nfour\n"
    assert restore_endings("zero\none\ntwo\n", original, "\n").startswith("zero\r\n")


def test_the_commonest_ending() -> None:
    assert [commonest_ending(text) for text in ("", "a", "a\r\nb\r\nc\n", "a\rb")] == ["\n", "\n", "\r\n", "\r"]


@given(ANY)
def test_blanks_around_a_piece_are_cut_off(part: str) -> None:
    head, body, tail = cut_blanks(part)
    assert head + body + tail == part
    assert not (head + tail).strip()
    assert body == body.rstrip()
    assert head == "" or head[-1] in "\r\n"
    assert body == "" or with_lf(body).split("\n")[0].strip()


@given(ANY, st.sampled_from(["\n", "\r\n"]))
def test_a_piece_that_comes_back_as_it_was_is_the_same_to_the_byte(part: str, usual: str) -> None:
    answer = with_lf(cut_blanks(part)[1])
    for said in answer, f"\n{answer}\n\n", answer.replace("\n", "\r\n"), f"````\n{answer}\n````":
        assert after(part, said, usual) == part or not answer


@given(ANY, ANY)
def test_blanks_around_a_piece_belong_to_the_file(part: str, answer: str) -> None:
    head, _, tail = cut_blanks(part)
    assert after(part, answer).startswith(head)
    assert after(part, answer).endswith(tail)


def test_a_piece_keeps_its_crlf_and_its_ends() -> None:
    assert after("\r\n \r\na\r\nb \r\n\r\n", "A\nB\nC\n") == "\r\n \r\nA\r\nB\r\nC \r\n\r\n"


def test_an_indentation_that_the_first_line_lost_comes_back() -> None:
    part = "    def f(self):\n        return 1\n"
    assert after(part, "def g(self):\n        return 1") == "    def g(self):\n        return 1\n"
    assert after("    a = 1\n", "b = 1") == "    b = 1\n"
    assert after("\ta = 1\n\n\tb = 2\n", "a = 2\n\n\tb = 2") == "\ta = 2\n\n\tb = 2\n"


def test_an_indentation_that_all_lines_lost_was_to_go() -> None:
    assert after("    def f():\n        return 1\n", "def f():\n    return 1") == "def f():\n    return 1\n"
    assert after("  a\n", "    a") == "    a\n"


def test_a_problem_goes_with_the_answer() -> None:
    piece = edited_piece("a line\n", "", "Correct it.", True, "\n")
    assert (piece.before, piece.after, piece.problem) == ("a line\n", "\n", "is empty")
    assert edited_piece("a line\n", "A line.", "Correct it.", True, "\n").problem is None


@pytest.mark.parametrize("text", [" " * 50_000 + "x", "x" + "\n " * 50_000 + "x", "`" * 50_000, "\n" * 50_000 + "x"])
def test_strange_texts_take_no_time(text: str) -> None:
    assert after(text, text) == text
    assert after(text, f"{text}\n```\ny") != ""
