"""`lcspec chat` in a terminal, as its user sees it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pexpect
import pytest
from screen import Screen

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
PATIENCE = 60  # seconds until a test gives up, not what anything should take
ENTER, INTERRUPT, END, ALT_ENTER, CTRL_J, UP, TAB = "\r", "\x03", "\x04", "\x1b\r", "\n", "\x1b[A", "\t"
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
SUMMARY = "tokens/s"


class Chat:
    """A conversation in a terminal of 80 columns and 24 rows."""

    def __init__(self, data: Path, model: Path, *arguments: str, waits: bool = True, **environment: str) -> None:
        self.marks_pastes = False
        self.screen = Screen(80, 24)
        self._process = pexpect.spawn(
            LCSPEC,
            ["chat", "-m", str(model), "-t", "1", *arguments],
            timeout=PATIENCE,
            encoding="utf-8",
            dimensions=(24, 80),
            env=os.environ
            | {"TERM": "xterm", "XDG_DATA_HOME": str(data), "PROMPT_TOOLKIT_NO_CPR": "1", "LC_ALL": "C.UTF-8"}
            | environment,
        )
        self.files = data / "lcspec" / "conversations"
        if waits:
            self.wait_for_prompt()

    @property
    def text(self) -> str:
        return "\n".join(self.screen.lines)

    def wait_for(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.text}"
            self._read(0.05)

    def wait_for_prompt(self, n_answers: int = 0) -> None:
        """Wait until so many answers have come, and the next turn is asked for."""
        self.wait_for(lambda: self.text.count(SUMMARY) >= n_answers and self.screen.lines[-1:] == [">"], "the prompt")

    def press(self, *keys: str) -> None:
        for one in keys:
            self._process.send(one)
        self._read(0.05)

    def say(self, turn: str) -> None:
        self.press(turn, ENTER)

    def resize(self, columns: int, rows: int) -> None:
        self._read(0)
        self.screen.resize(columns, rows)
        self._process.setwinsize(rows, columns)

    def messages(self) -> list[dict[str, str]]:
        """Return what is kept."""
        (file,) = self.files.glob("*.json")
        messages: list[dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))["messages"]
        return messages

    def leave(self) -> None:
        self.press(END)
        self.end()
        assert self._process.exitstatus == 0

    def end(self) -> None:
        """Read what comes until the process ends."""
        while self._read(PATIENCE):
            pass
        self._process.close()

    def kill(self, number: int) -> None:
        self._process.kill(number)

    def hang_up(self) -> None:
        """Take the terminal away, and wait until the process ends."""
        os.close(self._process.child_fd)
        deadline = time.monotonic() + PATIENCE
        while self._process.isalive():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def _read(self, seconds: float) -> bool:
        try:
            text = self._process.read_nonblocking(1 << 16, seconds)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        else:
            self.screen.write(text)
            on, off = (text.rfind(f"\x1b[?2004{letter}") for letter in "hl")
            self.marks_pastes = on > off if on != off else self.marks_pastes
            return True


@pytest.fixture
def start(tmp_path: Path, smollm2: Path) -> Iterator[Callable[..., Chat]]:
    chats = []

    def start_chat(*arguments: str, model: Path = smollm2, waits: bool = True, **environment: str) -> Chat:
        chats.append(Chat(tmp_path, model, *arguments, waits=waits, **environment))
        return chats[-1]

    yield start_chat
    for chat in chats:
        with suppress(OSError):  # its terminal may be gone
            chat._process.close(force=True)


pytestmark = pytest.mark.real


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def test_turns_of_several_lines(start: Callable[..., Chat]) -> None:
    chat = start("-n", "4")
    chat.press("one", ALT_ENTER, "two", CTRL_J, "three", ENTER)
    chat.wait_for_prompt(1)
    assert "\n> one\n  two\n  three\n" in chat.text
    chat.press('"""four', ENTER, "", ENTER, 'five"""', ENTER)
    chat.wait_for_prompt(2)
    chat.press(PASTE, "def f():\r\n\treturn 'Zoé 世界 👍'\r\n", PASTED)
    assert "return" in chat.text
    assert chat.text.count(SUMMARY) == 2  # a paste is not sent
    chat.press(ENTER)
    chat.wait_for_prompt(3)
    chat.leave()
    turns = [message["content"] for message in chat.messages()[::2]]
    assert turns == ["one\ntwo\nthree", "four\n\nfive", "def f():\n\treturn 'Zoé 世界 👍'"]


def test_history_and_completion(start: Callable[..., Chat], tmp_path: Path) -> None:
    chat = start("-n", "4")
    chat.say("the first turn")
    chat.wait_for_prompt(1)
    chat.press("/")
    chat.wait_for(lambda: "answer the last message anew" in chat.text, "the menu")
    chat.press("sta", TAB, ENTER)
    chat.wait_for(lambda: "target passes" in chat.text, "statistics")
    chat.leave()
    assert (tmp_path / "lcspec" / "chat_history").stat().st_mode & 0o777 == 0o600

    again = start("-n", "4")
    again.press(UP, UP)
    again.wait_for(lambda: again.screen.lines[-1:] == ["> the first turn"], "the history")
    again.press(INTERRUPT)  # clears the line
    again.wait_for(lambda: again.screen.lines[-1:] == [">"], "an empty line")
    again.press("/model smollm2-135m"[:14])
    again.wait_for(lambda: "smollm2-135m" in again.text, "names of models")
    again.press(INTERRUPT, INTERRUPT)
    again.wait_for(lambda: "Ctrl-D or /quit leaves" in again.text, "a hint")
    again.leave()


def test_ctrl_c_keeps_the_answer_and_the_conversation_goes_on(start: Callable[..., Chat]) -> None:
    chat = start()
    chat.say("Write a very long story about the sea.")
    chat.wait_for(lambda: len(chat.text.split()) > 60, "the story")
    chat.press(INTERRUPT)
    chat.wait_for_prompt(1)
    story = chat.messages()[1]["content"]
    shown = chat.text.partition("about the sea.\n")[2].partition("\nlcspec:")[0]
    assert shown.split() == story.split()
    assert len(story.split()) < 500
    chat.say("/undo")
    chat.say("Say hello.")
    chat.wait_for_prompt(2)
    chat.leave()
    assert [message["content"] for message in chat.messages()[::2]] == ["Say hello."]


def test_ctrl_c_before_an_answer_begins_leaves_the_turn_out(start: Callable[..., Chat]) -> None:
    chat = start("-n", "4")
    chat.press(PASTE, "This is a very long message. " * 300, PASTED, ENTER)
    chat.wait_for(lambda: chat.screen.lines[-1:] == ["…"], "the mark that an answer comes")
    chat.press(INTERRUPT, INTERRUPT)
    chat.wait_for(lambda: "stopped before an answer began: the message is left out" in chat.text, "a notice")
    chat.wait_for_prompt()
    assert not list(chat.files.glob("*.json"))
    chat.say("hello")
    chat.wait_for_prompt(1)
    chat.leave()
    assert chat.messages()[0] == user("hello")


def test_what_is_typed_meanwhile_is_the_next_turn(start: Callable[..., Chat]) -> None:
    chat = start("-n", "60")
    chat.say("Tell me about the sea.")
    chat.wait_for(lambda: len(chat.text.split()) > 40, "an answer")
    chat.press("And the sky?", ENTER)
    chat.wait_for_prompt(2)
    answer, question = (chat.messages()[i]["content"] for i in (1, 2))
    assert question == "And the sky?"
    shown = chat.text.partition("the sea.\n")[2].partition("\nlcspec:")[0]
    assert shown.split() == answer.split()  # what was typed is not in between
    chat.leave()


def test_what_is_pasted_meanwhile_is_one_message(start: Callable[..., Chat]) -> None:
    chat = start("-n", "60")
    chat.say("Tell me about the sea.")
    chat.wait_for(lambda: len(chat.text.split()) > 40, "an answer")
    assert chat.marks_pastes
    chat.press(PASTE, "one\rtwo\rthree", PASTED)
    chat.wait_for(lambda: chat.screen.lines[-3:] == ["> one", "  two", "  three"], "what was pasted")
    assert chat.text.count(SUMMARY) == 1  # it is not sent
    chat.press(ENTER)
    chat.wait_for_prompt(2)
    chat.leave()
    assert not chat.marks_pastes
    assert chat.messages()[2] == user("one\ntwo\nthree")


def test_what_is_typed_before_ctrl_c_is_the_next_turn(start: Callable[..., Chat]) -> None:
    chat = start("-n", "400")
    chat.say("Write a very long story about the sea.")
    chat.wait_for(lambda: len(chat.text.split()) > 60, "the story")
    chat.press("And the sky?", ENTER, "unsent", INTERRUPT)
    chat.wait_for(lambda: "And the sky?" in chat.text, "the next turn")
    chat.press(INTERRUPT)
    chat.wait_for(lambda: chat.screen.lines[-1:] == ["> unsent"], "what was typed behind it")
    chat.press(INTERRUPT)
    chat.wait_for_prompt(1)
    chat.leave()
    assert chat.text.count("And the sky?") == 1


@pytest.mark.parametrize("when", ["before the model is loaded", "before Python is"])
def test_what_is_typed_before_the_first_prompt_is_the_first_turn(start: Callable[..., Chat], when: str) -> None:
    chat = start("-n", "4", waits=False)
    if when == "before the model is loaded":
        chat.wait_for(lambda: chat.marks_pastes, "the editor's keys")
    chat.press("Name two colors.", ENTER, "And two", CTRL_J if when == "before the model is loaded" else " ")
    chat.wait_for(lambda: chat.text.count(SUMMARY) == 1 and "> And two" in chat.screen.lines[-2:], "the next turn")
    assert chat.text.count("Name two colors.") == (1 if when == "before the model is loaded" else 2)
    assert chat.messages()[0] == user("Name two colors.")
    chat.press(INTERRUPT)
    chat.wait_for_prompt(1)
    chat.leave()


def test_retry_after_ctrl_c_is_another_answer(start: Callable[..., Chat]) -> None:
    chat = start()
    chat.say("Write a very long story about the sea.")
    chat.wait_for(lambda: len(chat.text.split()) > 60, "the story")
    chat.press(INTERRUPT)
    chat.wait_for_prompt(1)
    story = chat.messages()[1]["content"]
    chat.say("/retry")
    chat.wait_for(lambda: "at temperature 0 it would be the same" in chat.text, "a notice")
    chat.wait_for(lambda: len(chat.text.partition("(/temp")[2].split()) > 40, "the other story")
    chat.press(INTERRUPT)
    chat.wait_for_prompt(2)
    chat.leave()
    assert chat.messages()[1]["content"][:100] != story[:100]


def test_errors_are_wrapped_at_blanks(start: Callable[..., Chat]) -> None:
    chat = start()
    chat.resize(40, 24)
    chat.say("/nothing")
    chat.wait_for_prompt()
    chat.leave()
    error = "Error: /nothing is no command; /help\n  lists them, and a blank before it\n  sends it as a message\n"
    assert error in chat.text


@pytest.mark.parametrize("when", ["in an answer", "at the prompt"])
def test_after_a_kill_the_conversation_goes_on(start: Callable[..., Chat], when: str) -> None:
    chat = start("-n", "8" if when == "at the prompt" else "400")
    chat.say("Write a story about the sea.")
    if when == "at the prompt":
        chat.wait_for_prompt(1)
    else:
        chat.wait_for(lambda: len(chat.text.split()) > 50, "the story")
    chat.kill(signal.SIGKILL)
    chat.end()
    assert chat.messages()[0] == user("Write a story about the sea.")
    assert len(chat.messages()) == (2 if when == "at the prompt" else 1)

    again = start("--continue", "-n", "8")
    assert "> Write a story about the sea.\n" in again.text
    if when == "at the prompt":
        assert again.messages()[1]["content"] in " ".join(again.text.split("\n"))
    else:
        assert "/retry answers it" in again.text
        again.say("/retry")
        again.wait_for_prompt(1)
        assert len(again.messages()) == 2
    again.leave()


def test_a_terminal_that_goes_away_leaves_a_conversation_that_goes_on_at_once(start: Callable[..., Chat]) -> None:
    chat = start("-n", "8")
    chat.say("Write a story about the sea.")
    chat.wait_for_prompt(1)
    chat.hang_up()
    again = start("--continue", "-n", "8", "--stats")
    again.say("Go on.")
    again.wait_for_prompt(1)
    prompt, cached = map(int, re.findall(r"prompt  (\d+) tokens, (\d+) of them", again.text)[0])
    assert cached > prompt - 20
    again.leave()


def test_resizing_in_an_answer(start: Callable[..., Chat]) -> None:
    chat = start("-n", "150")
    chat.say("Tell me about the sea.")
    for n_words, columns in (45, 60), (70, 100), (90, 40):
        chat.wait_for(lambda n_words=n_words: len(chat.text.split()) > n_words, "an answer")
        chat.resize(columns, 24)
    chat.wait_for_prompt(1)
    answer = chat.messages()[1]["content"]
    chat.leave()
    shown = chat.text.partition("the sea.\n")[2].partition("\nlcspec:")[0]
    letters = "".join(shown.split())
    assert letters.startswith("".join(answer.split())[:40])
    assert letters.endswith("".join(answer.split())[-100:])


def test_keeping_nothing(start: Callable[..., Chat], tmp_path: Path) -> None:
    chat = start("-n", "4", "--no-save")
    chat.say("a secret")
    chat.wait_for_prompt(1)
    chat.leave()
    assert not (tmp_path / "lcspec").exists()


def test_drafts_are_coloured(start: Callable[..., Chat]) -> None:
    chat = start("-n", "60", "--show-drafts", "--drafter", "lookup")
    chat.say("Repeat: one two three four five. one two three four five.")
    chat.wait_for_prompt(1)
    assert "from lookup, from the draft model, and the model's own tokens" in chat.text
    chat.leave()


def test_output_in_a_file_is_the_plain_text(smollm2: Path, tmp_path: Path) -> None:
    file = tmp_path / "answers"
    line = f'"{LCSPEC}" chat -t 1 -n 20 -m "{smollm2}" > "{file}"'
    environment = os.environ | {"XDG_DATA_HOME": str(tmp_path), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    terminal = pexpect.spawn("sh", ["-c", line], timeout=PATIENCE, encoding="utf-8", env=environment)
    terminal.expect("leaves.*>")  # the line editor is where the terminal is
    terminal.send("Write **this** in Markdown." + ENTER)
    terminal.expect(SUMMARY)
    terminal.send(END)
    terminal.expect(pexpect.EOF)
    terminal.close()
    command = [LCSPEC, "chat", "-t", "1", "-n", "20", "-m", str(smollm2)]
    piped = subprocess.run(command, input=b"Write **this** in Markdown.\n", capture_output=True, check=True)
    assert file.read_bytes() == piped.stdout
