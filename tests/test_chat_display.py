"""How answers look in a terminal while they come."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from screen import Screen

from lcspec.cli.chat import markdown_display
from lcspec.cli.chat.drafts_display import DraftsDisplay
from lcspec.cli.chat.live import LiveLines
from lcspec.cli.chat.markdown import Layout, Markdown
from lcspec.cli.chat.markdown_display import MarkdownDisplay
from lcspec.cli.report import harmless
from lcspec.stream import Piece

ANSWER = """\
Here is a **short** answer with a list:

- first item that is quite long, so that it has to be wrapped on a narrow terminal
- second with `code`
  1. nested
  2. more

```python
def greet(name: str) -> str:
    return f"Hello, {name}! This line is rather long, longer than eighty columns surely."

print(greet("世界"))
```

| Name | Age | City |
|------|----:|:----:|
| Ann  | 30  | Paris |
| Bob  | 7   | 東京 |

> quoted
> text

Emoji: 👍 👍 é (combining: e\u0301) and *that is all*.
"""
LAID_OUT = """\
Here is a short answer with a list:

• first item that is quite long, so that it has to be wrapped on a narrow
  terminal
• second with code
  1. nested
  2. more

```python
def greet(name: str) -> str:
    return f"Hello, {name}! This line is rather long, longer than eighty columns
surely."

print(greet("世界"))
```

Name   Age   City
──────────────────
Ann     30   Paris
Bob      7   東京

▌ quoted
▌ text

Emoji: 👍 👍 é (combining: e\u0301) and that is all."""


class Clock:
    """Stands still, or goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self._seconds = count()
        self.stands = False

    def monotonic(self) -> float:
        return 0.0 if self.stands else float(next(self._seconds))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(markdown_display, "time", clock)
    monkeypatch.setattr(markdown_display, "_SHARE", 1e9)  # drawing takes no time
    monkeypatch.delenv("NO_COLOR", raising=False)
    return clock


def pieces(text: str, length: int) -> Iterator[Piece]:
    for start in range(0, len(text), length):
        yield Piece(text[start : start + length], (1,), None)


@contextmanager
def display_on(screen: Screen) -> Iterator[MarkdownDisplay]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        patch.setattr(markdown_display, "size", screen.size)
        display = MarkdownDisplay()
        display._lines = LiveLines(screen, screen.size)  # type: ignore[arg-type]
        yield display


def shown(parts: Iterable[Piece], screen: Screen) -> list[str]:
    """Return what is on the screen, and above it, when these pieces have come."""
    with display_on(screen) as display:
        display.begin()
        for part in parts:
            display.add(part)
        display.end()
    return screen.lines


def at_once(text: str, columns: int = 80, rows: int = 500) -> list[str]:
    return shown([Piece(text, (1,), None)], Screen(columns, rows))


# Markdown


@pytest.mark.parametrize("length", [1, 3, 7, 1000])
def test_an_answer_looks_the_same_however_it_came(length: int) -> None:
    assert "\n".join(shown(pieces(ANSWER, length), Screen(81, 50))) == LAID_OUT


@pytest.mark.parametrize("rows", [3, 5, 10, 24])
@pytest.mark.parametrize("columns", [30, 80])
def test_an_answer_taller_than_the_screen_is_whole(columns: int, rows: int) -> None:
    screen = Screen(columns, rows)
    assert shown(pieces(ANSWER.replace("|", ""), 2), screen) == at_once(ANSWER.replace("|", ""), columns, rows)
    assert screen.n_clipped == 0


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"word{i}" for i in range(400)),
        "```c\n" + "\n".join(f"int value_{i} = {i};" for i in range(40)) + "\n```\n\nThe end.",
        "\n".join(f"{i}. item **number** {i}" for i in range(1, 30)),
        "\n".join(f"> line {i}" for i in range(60)),
        "| a | b |\n|---|---|\n" + "\n".join(f"| {i} | x |" for i in range(100, 130)),
    ],
    ids=["paragraph", "code", "list", "quote", "table"],
)
def test_a_block_taller_than_the_screen_is_whole(text: str) -> None:
    assert shown(pieces(text, 3), Screen(40, 12)) == at_once(text, 40)


CODE = """\
```python
def f(x):  # a comment that is longer than the terminal is wide, and must not become code
    return {"世界": x, "a key": "and a value that is long", "another key": "and another value 世界世界世界世界"}
```

- in a list:

  ```
  a line of a list that is longer than the terminal, too, and then
\tindented
  ```

The end."""


@pytest.mark.parametrize("columns", [20, 21, 40, 200])
@pytest.mark.parametrize("length", [1, 4, 1000])
def test_lines_of_code_are_copied_whole(columns: int, length: int) -> None:
    screen = Screen(columns, 12)
    shown(pieces(CODE, length), screen)
    code = CODE.partition("\n\n")[0].split("\n")
    assert screen.copied[: len(code)] == code
    assert "  a line of a list that is longer than the terminal, too, and then" in screen.copied
    assert screen.copied[-1] == "The end."


def test_a_line_of_code_that_fills_the_screen_is_shown_once() -> None:
    lines = shown(pieces("```\n" + "0123456789" * 60 + "\n```", 7), Screen(40, 8))
    assert "".join(lines) == "```" + "0123456789" * 60 + "```"


def test_a_table_that_grows_wider_above_the_screen_loses_no_row() -> None:
    rows = [f"| {i} | {'x' * i} |" for i in range(1, 31)]
    lines = shown(pieces("| a | b |\n|---|---|\n" + "\n".join(rows), 3), Screen(80, 8))
    found = [line.split()[0] for line in lines[2:] if "─" not in line]
    assert list(dict.fromkeys(found)) == [str(i) for i in range(1, 31)]


def texts(parts: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts)).map("".join)


markup = texts([*"ab1.-*_`#>|[]()!~\\:&;<=+ \t\n\n", "**", "```", "| ", "|-|-|\n", "1. ", "é", "世"])


@settings(max_examples=100, deadline=None)
@given(markup | st.text(), st.integers(1, 5), st.integers(8, 40))
def test_any_text_looks_the_same_however_it_came(text: str, length: int, columns: int) -> None:
    assert shown(pieces(text, length), Screen(columns, 2000)) == at_once(text, columns, 2000)


@settings(max_examples=100, deadline=None)
@given(markup, st.integers(1, 5), st.integers(8, 40), st.integers(2, 6))
def test_any_text_is_shown_on_any_screen(text: str, length: int, columns: int, rows: int) -> None:
    shown(pieces(text, length), Screen(columns, rows))  # the screen checks what it gets


@settings(max_examples=100, deadline=None)
@given(texts([*"ab \n\n-*`1.#", "word ", "- "]))
def test_letters_are_all_shown(text: str) -> None:
    letters = [one for one in text if one.isalpha()]
    assert [one for line in at_once(text) for one in line if one.isalpha()] == letters


def test_answers_do_not_mix() -> None:
    screen = Screen(80, 24)
    with display_on(screen) as display:
        for text in "one\n\n- two", "three", "":
            display.begin()
            display.add(Piece(text, (1,), None))
            display.end()
        display.add(Piece("four", (1,), None))
        display.end()
    assert screen.lines == ["one", "", "• two", "three", "four"]


def test_what_markdown_would_hide_is_shown() -> None:
    text = (
        'a <b>tag</b>\n<div>block</div>\n\n[1]: http://x.y\n\n![image](http://i.j "t") [link](http://k.l) <http://m.n>'
    )
    together = "\n".join(at_once(text, 200))
    assert "<b>tag</b>\n<div>block</div>" in together
    assert "[1]: http://x.y" in together
    assert "!image (http://i.j) link (http://k.l) http://m.n" in together


def test_formulas_and_escapes() -> None:
    assert at_once(r"\(a_1\) and \[b^2\] and \*c\*") == [r"\(a_1\) and \[b^2\] and *c*"]


def test_lines_of_the_text_stay_lines() -> None:
    assert at_once("roses are red\nviolets are blue") == ["roses are red", "violets are blue"]


def test_empty_lines_are_where_the_text_has_them() -> None:
    assert at_once("\n\n# Title\ntext\n- one\n\n- two\n  more\n\n\n```\ncode\n```\ntext") == [
        *("Title", "text", "• one", "", "• two", "  more", ""),
        *("```", "code", "```", "text"),
    ]


def test_unfinished_emphasis_is_shown_without_its_marks() -> None:
    for text in "some **bo", "some **", "some `co", "some `":
        markdown = Markdown(text, is_growing=True)
        (line,) = Layout(Console(), "ansi_dark").lines(markdown, markdown.blocks[0], 80)
        assert not set("".join(segment.text for segment in line)) & set("*`")


def test_blocks_are_finished_when_the_next_has_begun() -> None:
    assert Markdown("one\n\n").n_finished() == 0
    assert Markdown("one\n\ntw").n_finished() == 0  # this line may still become anything
    assert Markdown("one\n\ntwo\n").n_finished() == 1
    assert Markdown("one\n#").n_finished() == 0  # a heading, or a word such as #this
    assert Markdown("one\n# two\n\n- three\n- four\n").n_finished() == 2


# what reaches the terminal


def test_escape_sequences_do_not_control_the_terminal() -> None:
    evil = "\x1b[2J\x1b]0;title\x07 \x9b31m\r over \x7f &#27;[5m [x](\x1b[1A)"
    lines = at_once(evil + "\n\n```\x1b[31m\n" + evil + "\n```\n\n" + evil.replace("\r", ""))
    assert "␛[2J␛]0;title␇" in lines[0]  # the screen would not take them as they are
    assert harmless("a\tb\nc") == "a\tb\nc"


def test_a_terminal_without_colours_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    class Recorder(Screen):
        def write(self, text: str) -> int:
            written.append(text)
            return super().write(text)

    shown(pieces(ANSWER, 5), Recorder(80, 24))
    assert any("\x1b[9" in text for text in written)
    written.clear()
    monkeypatch.setenv("NO_COLOR", "1")
    shown(pieces(ANSWER, 5), Recorder(80, 24))
    assert not any("\x1b[9" in text or "\x1b[3" in text.replace("\x1b[3m", "") for text in written)
    assert any("\x1b[1m" in text for text in written)


def test_finished_lines_are_written_once() -> None:
    written = []

    class Recorder(Screen):
        def write(self, text: str) -> int:
            written.append(text)
            return super().write(text)

    shown(pieces("the first paragraph\n\n" + "word " * 100 + "\n\n- last", 2), Recorder(80, 24))
    assert sum("paragraph" in text for text in written) <= 3  # while it grew by two letters each time


def test_drawing_is_bounded(clock: Clock) -> None:
    n = 0

    class Counter(Screen):
        def write(self, text: str) -> int:
            nonlocal n
            n += 1
            return super().write(text)

    clock.stands = True
    lines = shown(pieces("word " * 1000, 1), Counter(80, 24))
    assert n <= 4  # the mark that waits, the first text, all of it, the end of the line
    assert " ".join(lines).split() == ["word"] * 1000


# the terminal is resized


@pytest.mark.parametrize("sizes", [[(40, 24)], [(120, 30)], [(50, 10), (100, 40)], [(30, 6), (31, 5), (79, 24)]])
def test_resizing_loses_and_repeats_nothing_that_is_on_the_screen(sizes: list[tuple[int, int]]) -> None:
    text = "one two three four five six seven eight nine ten " * 3 + "\n\n- list\n- of " + "words " * 20

    screen = Screen(80, 24)
    changes = {len(text) * (i + 1) // (len(sizes) + 1): size for i, size in enumerate(sizes)}

    def resizing() -> Iterator[Piece]:
        for i, piece in enumerate(pieces(text, 1)):
            if i in changes:
                screen.resize(*changes[i])
            yield piece

    words = " ".join(shown(resizing(), screen)).split()
    assert words == " ".join(at_once(text)).split()


def test_resizing_loses_nothing_of_what_is_taller_than_the_screen() -> None:
    text = " ".join(f"word{i}" for i in range(300))
    screen = Screen(60, 15)

    def resizing() -> Iterator[Piece]:
        for i, piece in enumerate(pieces(text, 2)):
            if i % 150 == 149:
                screen.resize(*[(40, 15), (90, 20), (50, 10)][i // 150 % 3])
            yield piece

    letters = "".join("".join(shown(resizing(), screen)).split())  # the terminal wrapped within words
    assert all(f"word{i}word" in letters for i in range(299))
    assert len(letters) < 1.2 * len(text)


@pytest.mark.parametrize("sizes", [[(30, 24)], [(120, 30)], [(47, 20), (100, 24)], [(33, 24), (32, 24), (79, 24)]])
def test_resizing_keeps_lines_of_code_whole(sizes: list[tuple[int, int]]) -> None:
    screen = Screen(60, 24)
    changes = {len(CODE) * (i + 1) // (len(sizes) + 2): size for i, size in enumerate(sizes)}

    def resizing() -> Iterator[Piece]:
        for i, piece in enumerate(pieces(CODE, 1)):
            if i in changes:
                screen.resize(*changes[i])
            yield piece

    shown(resizing(), screen)
    assert screen.copied == at_once(CODE, 500)


# coloured drafts


def test_drafted_tokens_are_coloured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    display = DraftsDisplay()
    display.begin()
    for text, drafter in ("own ", None), ("looked\nup ", "lookup"), ("drafted\x1b[2J", "model"):
        display.add(Piece(text, (1,), drafter))
    display.end()
    out, err = capsys.readouterr()
    assert out == "own \x1b[32mlooked\x1b[0m\n\x1b[32mup \x1b[0m\x1b[35mdrafted␛[2J\x1b[0m\n"
    assert "from lookup, from the draft model" in err.replace("\x1b[0m", "").replace("\x1b[32m", "").replace(
        "\x1b[35m", ""
    )
