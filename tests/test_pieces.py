"""Cutting long texts."""

from hypothesis import given
from hypothesis import strategies as st

from lcspec.tasks.pieces import split


def words(text: str) -> int:
    return len(text.split())


@given(st.text(alphabet="ab #.\n\r\tdef。", max_size=300), st.integers(1, 40))
def test_pieces_join_to_the_text_and_fit(text: str, limit: int) -> None:
    for count in len, words:
        pieces = split(text, count, limit)
        assert "".join(pieces) == text
        assert all(pieces)
        assert all(count(piece) <= limit for piece in pieces)


def test_a_character_that_is_too_long_is_a_piece_of_its_own() -> None:
    assert split("aé", lambda text: len(text.encode()), 1) == ["a", "é"]


def test_functions_are_kept_whole() -> None:
    functions = [f"def f{i}():\n    a = 1\n\n    return a\n\n\n" for i in range(6)]
    assert split("".join(functions), words, 16) == ["".join(functions[i : i + 2]) for i in (0, 2, 4)]


def test_headings_come_before_paragraphs() -> None:
    text = "# One\n\na b c\n\nd e f\n\n# Two\n\ng h i\n\nj k l\n"
    assert split(text, words, 13) == ["# One\n\na b c\n\nd e f\n\n", "# Two\n\ng h i\n\nj k l\n"]


def test_paragraphs_lines_sentences_and_words() -> None:
    assert split("a b c\nd\n\ne f\ng h i", words, 6) == ["a b c\nd\n\n", "e f\ng h i"]
    assert split("a b c\nd e f", words, 4) == ["a b c\n", "d e f"]
    assert split("A b c. D e f.", words, 4) == ["A b c. ", "D e f."]
    assert split("a b c d e", words, 2) == ["a b ", "c d ", "e"]


def test_a_border_costs_at_most_half_of_a_piece() -> None:
    text = "a\n\n" + "b " * 30
    assert len(split(text, words, 20)[0].split()) >= 10


def test_no_line_ending_is_cut_apart() -> None:
    assert all(not piece.endswith("\r") for piece in split("ab\r\n" * 40, len, 9))
