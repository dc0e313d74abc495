"""What models write around an edited text, and how an answer shows that it is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.tasks.answers import clean, problem_of

LETTER = "Dear Ann,\n\nwe seen the park.\nIt was nice.\n\nYours, Bob"
EDITED = "Dear Ann,\n\nwe saw the park.\nIt was nice.\n\nYours, Bob"
CODE = "import os\n\n\ndef f(x):\n    return os.path.join(x, 'a')"
CODE_EDITED = CODE.replace("f(x)", "g(x)")
MARKDOWN = "# Install\n\n```sh\npip install foo\n```\n\nThen start it:\n\n```sh\nfoo serve\n```"
MARKDOWN_EDITED = MARKDOWN.replace("foo", "bar")
BEGINS_WITH_FENCE = "```sh\npip install foo\n```\n\nThen start it."


@pytest.mark.parametrize(
    "wrapped",
    [
        "{}",
        "\n\n{}\n\n",
        "```\n{}\n```",
        "```python\n{}\n```",
        "~~~\n{}\n~~~",
        "````markdown\n{}\n````",
        "```\n{}",  # it came to no end
        "{}\n```",
        "Here is the corrected text:\n\n{}",
        "Here's the edited file:\n{}",
        "Here are the updated contents of the file:\n\n{}",
        "Sure!\n\n{}",
        "Certainly! Here is the corrected version:\n\n{}",
        "**Corrected text:**\n\n{}",
        "The edited file is:\n\n{}",
        "Of course.\n\nHere is the updated file with the changes applied:\n\n```\n{}\n```",
        "Here is the whole edited file:\n\n```text\n{}\n```\n\nI replaced a word.",
        "```\n{}\n```\n\nExplanation: some words were wrong.\n- one\n- another",
        "{}\n\nI hope this helps!",
        "{}\n\nLet me know if you need anything else.",
        "{}\n\nI've corrected the spelling.\n\nIs there anything else I can do for you?",
        "{}\nThe file has been edited.\n\nPlease let me know if there is more.",
        "Sure! Here's the edited text:\n\n{}\n\nI hope this is what you were looking for.",
    ],
)
@pytest.mark.parametrize(
    ("original", "edited"), [(LETTER, EDITED), (CODE, CODE_EDITED), (MARKDOWN, MARKDOWN_EDITED)], ids=["a", "b", "c"]
)
def test_what_is_around_a_text_is_taken_off(wrapped: str, original: str, edited: str) -> None:
    assert clean(wrapped.format(edited), original) == edited


@pytest.mark.parametrize(
    ("original", "edited"),
    [
        (BEGINS_WITH_FENCE, BEGINS_WITH_FENCE.replace("foo", "bar")),
        ("```\na\n```", "```\nb\n```"),
        ("Here is the corrected text:\n\nit", "Here is the corrected text:\n\nthis"),
        ("Hier ist der korrigierte Text:\n\nes", "Here is the corrected text:\n\nit"),  # as many paragraphs
        ("a\n\nLet me now if you can come.", "a\n\nLet me know if you can come."),
        ("a\n\nSag Bescheid, ob du kommst.", "a\n\nLet me know if you can come."),
        ("Look.\n\nI hope this helps you.\n\nBob", "Look!\n\nI hope that it helps you.\n\nBob\n\nPS: Hi"),
        ("Text\n\npip install foo\n\nMore", "Text\n\n```sh\npip install foo\n```\n\nMore"),  # a block is put in
        (
            "pip install a\n\nThen start it:\n\na serve",
            "```sh\npip install a\n```\n\nThen start it:\n\n```\na serve\n```",
        ),
        ("foo\n```", "bar\n```"),
        ("a: 1", "# Sure, a comment\na: 1"),
    ],
)
def test_what_is_the_text_s_own_stays(original: str, edited: str) -> None:
    assert clean(edited, original) == edited
    assert clean(original, original) == original


def test_a_file_that_begins_with_a_fence_can_be_wrapped_in_another() -> None:
    edited = BEGINS_WITH_FENCE.replace("foo", "bar")
    assert clean(f"```markdown\n{edited}\n```", BEGINS_WITH_FENCE) == edited
    assert clean(f"Here is the edited file:\n\n```markdown\n{edited}\n```", BEGINS_WITH_FENCE) == edited


def test_usage_behind_the_fenced_text_is_no_part_of_it() -> None:
    answer = f"```python\n{CODE_EDITED}\n```\n\nUse it like this:\n\n```python\ng('b')\n```"
    assert clean(answer, CODE) == CODE_EDITED


def test_a_text_that_is_all_talk_stays() -> None:
    assert clean("Here is the edited file:", "a\n\nb") == "Here is the edited file:"


PLAIN = st.text(alphabet="ab `~#:\n\tSure!.", max_size=80)


@given(st.one_of(PLAIN, st.text(max_size=80)))
def test_a_text_that_is_answered_as_it_was_is_left_alone(text: str) -> None:
    text = text.replace("\r", "").strip()
    assert clean(text, text) == text


@given(
    st.lists(st.text(alphabet="abcdef (){}=#-*", min_size=1, max_size=20), min_size=1, max_size=12),
    st.lists(st.text(alphabet="abcdef (){}=#-*", min_size=1, max_size=20), min_size=1, max_size=12),
)
def test_a_text_without_wrapping_comes_back_unchanged(answer: list[str], original: list[str]) -> None:
    text = "\n".join(answer).strip()
    assert clean(text, "\n".join(original).strip()) == text


@given(st.lists(st.sampled_from(["```", "```sh", "~~~~", "a", "b c", "", "  d"]), max_size=12))
def test_a_fence_around_any_text_is_taken_off_if_it_is_longer_than_all_within(lines: list[str]) -> None:
    text = "\n".join(lines).strip()
    if text:
        assert clean(f"`````\n{text}\n`````", text) == text


# what shows that an answer is none


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ("I'm sorry, but I can't assist with that request, as it is none for me.", "is a refusal (I'm sorry, but"),
        ("As an AI language model, I can't edit files, but you can do it.", "is a refusal"),
        ("I cannot access your file. Please paste the text of it here for me.", "is a refusal"),
        ("Dear Ann,", "has 9 characters where there were 53"),
        ("Dear Ann,\n\nwe saw the \ufffd\ufffd.\nIt was nice.\n\nYours, Bob", "has characters that are broken"),
    ],
)
def test_an_answer_that_is_no_edit_is_told(edited: str, problem: str) -> None:
    found = problem_of(edited, LETTER, "Correct the spelling.", is_complete=True)
    assert found is not None
    assert found.startswith(problem)


def test_an_answer_that_was_cut_off_is_told() -> None:
    assert "cut off" in (problem_of(EDITED, LETTER, "Correct it.", is_complete=False) or "")


@pytest.mark.parametrize(
    ("edited", "original", "instruction"),
    [
        (EDITED, LETTER, "Correct the spelling."),
        (LETTER, LETTER, "Correct the spelling."),
        ("Dear Ann,\n\nit was nice.\n\nBob", LETTER, "Correct it."),
        ("Dear Ann", LETTER, "Remove all but the first line."),
        ("Hi", LETTER, "Make it shorter"),
        ("Hi", LETTER, "Summarize."),
        ("I'm sorry that I was late. Yours, Bob", "Es tut mir leid, dass ich zu spät kam. Bob", "Translate."),
        ("I'm sorry, I can't help it.", "I'm sorry, I cant help it.", "Correct it."),
        ("a \ufffd b", "a \ufffd c", "Change c to b."),
    ],
)
def test_an_edit_is_no_problem(edited: str, original: str, instruction: str) -> None:
    assert problem_of(edited, original, instruction, is_complete=True) is None
