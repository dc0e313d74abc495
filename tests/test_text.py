from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lcspec.text import TextAssembler

ANY_TIME = settings(deadline=None)
FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
HARD_TEXTS = {
    "emoji joined by ZWJ": f"a {FAMILY}{FAMILY}!",
    "flag and skin tone": "\U0001f1eb\U0001f1f7 \N{WAVING HAND SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-5}",
    "CJK": "漢字かな交じり文、𠮷野家。한국어",
    "combining marks": "e\N{COMBINING ACUTE ACCENT}o\N{COMBINING DIAERESIS}\N{COMBINING MACRON} नमस्ते ก็",
    "its own replacement character": "a\N{REPLACEMENT CHARACTER}b",
    "byte order mark": "\N{ZERO WIDTH NO-BREAK SPACE}a\N{ZERO WIDTH NO-BREAK SPACE}",
}

few_letters = st.text(alphabet="ab", max_size=40) | st.text(alphabet="ab\n é😀", max_size=40)
stop_strings = st.text(alphabet="ab", min_size=1, max_size=5) | st.text(alphabet="ab\n é😀", min_size=1, max_size=5)
texts = st.text(max_size=40) | few_letters | st.sampled_from(list(HARD_TEXTS.values()))
stops = st.lists(stop_strings, min_size=1, max_size=4)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut bytes in pieces, some of them empty."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    pieces = [data[start:end] for start, end in pairwise(edges)]
    return [*pieces[:1], b"", *pieces[1:]]


cuts = st.lists(st.integers(0, 160), max_size=60)


def assemble(pieces: list[bytes], stop: list[str]) -> list[str]:
    """Return what was shown with each piece, and at the end."""
    assembler = TextAssembler(stop)
    return [*(assembler.add(piece) for piece in pieces), assembler.finish()]


def expected(pieces: list[bytes], stop: list[str]) -> str:
    """Cut at the earliest stop string in what has arrived, looking anew after each piece."""
    arrived = b""
    for piece in pieces:
        arrived += piece
        text = arrived.decode(errors="ignore")  # without the beginning of a character
        found = [text.index(one) for one in stop if one in text]
        if found:
            return text[: min(found)]
    return arrived.decode()


@ANY_TIME
@given(text=texts, places=cuts)
@example(text="", places=[])
def test_any_text_in_any_pieces_comes_out_the_same(text: str, places: list[int]) -> None:
    shown = assemble(cut(text.encode(), places), [])
    assert "".join(shown) == text
    for n in range(len(shown)):
        assert text.startswith("".join(shown[:n]))


@pytest.mark.parametrize("text", HARD_TEXTS.values(), ids=HARD_TEXTS)
def test_hard_texts_byte_by_byte(text: str) -> None:
    pieces = [bytes([byte]) for byte in text.encode()]
    assert [one for one in assemble(pieces, []) if one] == list(text)


@ANY_TIME
@given(text=texts, places=cuts)
def test_no_replacement_character_that_the_text_does_not_have(text: str, places: list[int]) -> None:
    clean = text.replace("\N{REPLACEMENT CHARACTER}", "")
    assert not any("\N{REPLACEMENT CHARACTER}" in one for one in assemble(cut(clean.encode(), places), []))


@ANY_TIME
@given(data=st.binary(max_size=60), places=cuts)
@example(data=b"\xf0\x9f\x98", places=[1, 2])
@example(data=b"a\xf0\x9fb\xff\xc3", places=[2, 3, 5])
def test_any_bytes_in_any_pieces_give_what_they_give_at_once(data: bytes, places: list[int]) -> None:
    assert "".join(assemble(cut(data, places), [])) == data.decode(errors="replace")


def test_bytes_that_are_no_text_in_the_middle_show_as_soon_as_that_is_certain() -> None:
    assembler = TextAssembler()
    assert assembler.add(b"a\xf0\x9f") == "a"
    assert assembler.add(b"b") == "\N{REPLACEMENT CHARACTER}b"
    assert assembler.add(b"\xff") == "\N{REPLACEMENT CHARACTER}"
    assert assembler.finish() == ""


def test_half_a_character_at_the_end_becomes_one_replacement_character() -> None:
    assembler = TextAssembler()
    assert assembler.add("a😀".encode()[:-1]) == "a"
    assert assembler.finish() == "\N{REPLACEMENT CHARACTER}"


@ANY_TIME
@given(text=few_letters, stop=stop_strings, places=cuts)
@example(text="xabab", stop="abab", places=[4])
def test_the_text_ends_at_the_first_occurrence_of_the_stop_string(text: str, stop: str, places: list[int]) -> None:
    assembler = TextAssembler([stop])
    shown = "".join(assembler.add(piece) for piece in cut(text.encode(), places)) + assembler.finish()
    assert shown == text.split(stop)[0]
    assert assembler.stopped == (stop in text)


@ANY_TIME
@given(text=few_letters, stop=stops, places=cuts)
@example(text="abc", stop=["abcd", "c"], places=[1, 2])
@example(text="xabcd", stop=["bc", "abcd"], places=[3])
@example(text="aab", stop=["ab"], places=[1, 2])
def test_of_several_stop_strings_the_earliest_that_has_arrived_counts(
    text: str, stop: list[str], places: list[int]
) -> None:
    pieces = cut(text.encode(), places)
    assert "".join(assemble(pieces, stop)) == expected(pieces, stop)


@ANY_TIME
@given(text=few_letters, stop=stops, places=cuts)
def test_nothing_of_a_stop_string_is_ever_shown(text: str, stop: list[str], places: list[int]) -> None:
    pieces = cut(text.encode(), places)
    final = expected(pieces, stop)
    shown = ""
    for one in assemble(pieces, stop):
        shown += one
        assert final.startswith(shown)
        assert not any(word in shown for word in stop)


@ANY_TIME
@given(text=few_letters, stop=stops, places=cuts)
def test_only_a_possible_beginning_of_a_stop_string_is_held_back(text: str, stop: list[str], places: list[int]) -> None:
    assembler = TextAssembler(stop)
    arrived, shown = b"", ""
    for piece in cut(text.encode(), places):
        arrived += piece
        shown += assembler.add(piece)
        if assembler.stopped:
            break
        held = arrived.decode(errors="ignore")[len(shown) :]
        assert held == "" or any(word.startswith(held) for word in stop)


def test_what_could_have_been_a_stop_string_comes_at_the_end() -> None:
    assembler = TextAssembler(["\nUser:"])
    assert assembler.add(b"Hi\nUs") == "Hi"
    assert not assembler.stopped
    assert assembler.finish() == "\nUs"


def test_nothing_comes_behind_a_stop_string() -> None:
    assembler = TextAssembler(["END"])
    assert assembler.add(b"aENDb") == "a"
    assert assembler.stopped
    assert assembler.add(b"c") == ""
    assert assembler.finish() == ""
