"""Sentences as they come, and which of them become a summary."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lcspec.tasks.selection import Selection
from lcspec.tasks.sentences import Sentences, count_words

WRITTEN = st.lists(
    st.sampled_from(
        [
            "Here is",
            " a summary:",
            "\n\n",
            "\n",
            " ",
            ". ",
            "A b c",
            "a b c",
            "! ",
            "- ",
            "\n- x y",
            "\n2. z",
            "。",
            "中文",
            "…",
            '"',
            "Dr. ",
        ]
    )
    | st.text(alphabet="aB .!?\n-*1。”", max_size=6),
    max_size=20,
).map("".join)


def parts_of(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(ends)]


def select(text: str, words: int = 1000, *, bullets: bool = False, is_whole: bool = True) -> Selection:
    selection = Selection(words, bullets)
    for part in [text]:
        list(selection.add(part))
    list(selection.finish(is_whole))
    return selection


def sentences_of(text: str, as_items: bool = False) -> list[str]:
    sentences = Sentences(as_items)
    return [one.strip() for one in [*sentences.add(text), sentences.rest]]


# sentences


@given(WRITTEN, st.lists(st.integers(0, 60)), st.booleans())
def test_sentences_do_not_depend_on_the_parts_in_which_they_come(text: str, cuts: list[int], as_items: bool) -> None:
    at_once, in_parts = Sentences(as_items), Sentences(as_items)
    expected = at_once.add(text)
    assert [one for part in parts_of(text, cuts) for one in in_parts.add(part)] == expected
    assert in_parts.rest == at_once.rest
    assert "".join(expected) + at_once.rest == text


def test_a_sentence_ends_where_a_reader_sees_it() -> None:
    text = (
        'It rained. "Really?" asked Dr. Who, e.g. on 3.5 days... Yes!\n\nA line without a stop\n\nP. S. Byatt wrote it.'
    )
    assert sentences_of(text) == [
        "It rained.",
        '"Really?" asked Dr. Who, e.g. on 3.5 days...',
        "Yes!",
        "A line without a stop",
        "P. S. Byatt wrote it.",
    ]
    assert sentences_of("天氣很好。「真的嗎？」他問。是") == ["天氣很好。", "「真的嗎？」", "他問。", "是"]
    assert sentences_of("One line\nand the next one. Then:\n1. One. Two\n- three") == [
        "One line\nand the next one.",
        "Then:",
        "1. One.",
        "Two",
        "- three",
    ]


def test_items_are_lines_with_those_that_are_indented_below_them() -> None:
    text = "- One. Still one\n  and still.\n* Two\n\n  3) Three\nfour"
    assert sentences_of(text, as_items=True) == ["- One. Still one\n  and still.", "* Two", "3) Three", "four"]


def test_words_are_counted_as_word_processors_do() -> None:
    assert count_words("It's 3.5 well-known “words” – not six.") == 6
    assert count_words("漢字三つ and two") == 6
    assert count_words(" … - ") == 0


# selection


@given(WRITTEN, st.lists(st.integers(0, 60)), st.integers(1, 12), st.booleans(), st.booleans())
def test_a_summary_does_not_depend_on_the_parts_in_which_it_is_written(
    text: str, cuts: list[int], words: int, bullets: bool, is_whole: bool
) -> None:
    expected = select(text, words, bullets=bullets, is_whole=is_whole)
    selection = Selection(words, bullets)
    out = [one for part in parts_of(text, cuts) for one in selection.add(part)] + list(selection.finish(is_whole))
    assert "".join(out) == selection.text == expected.text
    assert (selection.items, selection.ended) == (expected.items, expected.ended)


@given(WRITTEN, st.integers(1, 12), st.booleans())
def test_a_summary_has_one_sentence_or_no_more_words_than_wanted(text: str, words: int, bullets: bool) -> None:
    selection = select(text, words, bullets=bullets)
    assert len(selection.items) == 1 or count_words(selection.text) <= words
    assert len(set(selection.items)) == len(selection.items)
    assert selection.text == selection.text.strip()


def test_talk_before_and_behind_a_summary_is_left_out() -> None:
    for talk in (
        "Here is a summary of the text:\n\n",
        "Sure! Here's a summary in at most 50 words: ",
        "Certainly. ",
        "**Summary:** ",
        "## Summary\n\n",
        "The text can be summarized as follows:\n",
        "Sure, here are the main points:\n\n",
    ):
        assert select(f"{talk}Cats sleep. Dogs do not.\n\nI hope this helps!").text == "Cats sleep. Dogs do not.", talk


def test_what_only_looks_like_talk_stays() -> None:
    for text in (
        "The text explains two things: cats and dogs.",
        "Here the river bends.",
        "The summary of 1999 said: no.",
        "Surely not.",
        "I hope to see you.",
    ):
        assert select(text).text == text


def test_a_model_that_goes_round_in_circles_is_stopped() -> None:
    selection = Selection(1000)
    out = list(selection.add("One. Two. One. Three. Two! Four. "))
    assert "".join(out) == "One. Two. Three."
    assert selection.ended == "repetition"
    said = "The statement is there to keep names of classes apart, and a name is what an object has."
    alike = select(f"{said} The statement is there to keep names of classes apart. A name is what it wants.")
    assert alike.text == f"{said} A name is what it wants."
    numbered = select("- [1] The same line.\n- [2] The same line.\n- [3] The same line.\n", bullets=True)
    assert (numbered.items, numbered.ended) == (["[1] The same line."], "repetition")


def test_a_summary_ends_with_a_whole_sentence() -> None:
    cut = select("One two three. Four five si", is_whole=False)
    assert (cut.text, cut.ended) == ("One two three.", "length")
    long = select("One two three. Four five. Six.", words=4)
    assert (long.text, long.ended) == ("One two three.", "length")


def test_a_sentence_that_is_cut_off_says_so() -> None:
    assert select("One two thr", is_whole=False).text == "One two thr …"
    assert select("- One two thr", bullets=True, is_whole=False).text == "- One two thr …"


def test_paragraphs_stay_apart_and_lines_are_joined() -> None:
    assert select("One\n   line. Two.\n\n\nThree.\n- four\n- five").text == "One line. Two.\n\nThree.\n- four\n- five"


def test_whatever_marks_a_list_has_its_bullets_are_the_same() -> None:
    selection = select(
        "Here are the main points:\n\n1. One\n 2) Two\n• Three.\n  More\n\nFour\n* **Five**", bullets=True
    )
    assert selection.items == ["One", "Two", "Three. More", "Four", "**Five**"]
    assert selection.text == "- One\n- Two\n- Three. More\n- Four\n- **Five**"
