"""`lcspec chat` as its user meets it, without a terminal and in one that knows no escape sequences."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
import tiny

from lcspec import LcspecError, SpeculativeLM
from lcspec.cli.chat import engine as engine_module
from lcspec.cli.chat.engine import EngineInUse

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
CTX = 200  # under 256 cells, where any pass width is exact
PATIENCE = 60  # seconds until a test gives up, not what anything should take


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's data folder, empty at first."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "lcspec"


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    """The library, decoding plainly: the texts that have to be answered."""
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=CTX, threads=1) as engine:
        yield engine


def chat(model: Path, *arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [LCSPEC, "chat", "-m", model, "-c", CTX, "-t", 1, *arguments]
    return subprocess.run(list(map(str, command)), input=stdin, capture_output=True, timeout=PATIENCE)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


# each line is a turn


def test_chat_answers_lines_and_clear_starts_anew(tiny_llama: Path, engine: SpeculativeLM, data: Path) -> None:
    first = engine.chat([user("one")], max_tokens=20).text
    second = engine.chat([user("one"), assistant(first), user("two")], max_tokens=20).text
    done = chat(tiny_llama, "-n", "20", stdin=b"one\n\ntwo\n/clear\ntwo\n")
    anew = engine.chat([user("two")], max_tokens=20).text
    assert anew != second
    assert done.returncode == 0
    assert done.stdout.decode() == f"{first}\n{second}\n{anew}\n"
    assert done.stderr.count(b"tokens/s") == 3
    assert not data.exists()  # what is not typed is not kept


def test_chat_keeps_the_system_message(tiny_llama: Path, engine: SpeculativeLM) -> None:
    expected = engine.chat([{"role": "system", "content": "Be kind."}, user("one")], max_tokens=20).text
    done = chat(tiny_llama, "-n", "20", "--system", "Be kind.", stdin=b"one\n/clear\none\n")
    assert done.stdout.decode() == f"{expected}\n{expected}\n"


def test_a_turn_that_does_not_fit_is_left_out(tiny_llama: Path, engine: SpeculativeLM) -> None:
    expected = engine.chat([user("short")], max_tokens=20).text
    done = chat(tiny_llama, "-n", "20", stdin=b"x" * CTX + b"\nshort\n")
    assert done.returncode == 0
    assert done.stdout.decode() == f"{expected}\n"
    assert "shorten the message" in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_the_oldest_turns_are_dropped_when_the_context_is_full(tiny_llama: Path, engine: SpeculativeLM) -> None:
    done = chat(tiny_llama, "-n", "5", "-s", "Be kind.", stdin=b"".join(b"turn %d\n" % i for i in range(12)))
    assert done.returncode == 0
    assert done.stderr.count(b"tokens/s") == 12
    assert b"the context is full: the model no longer sees the first" in done.stderr


def test_one_turn_that_is_dropped_is_not_several(tiny_llama: Path) -> None:
    done = chat(tiny_llama, "-n", "5", stdin=(b"x" * (CTX // 2) + b"\n") * 2)
    assert b"the model no longer sees the first turn\n" in done.stderr


def test_a_turn_that_is_not_utf8_is_an_error(tiny_llama: Path) -> None:
    c_locale = os.environ | {"LC_ALL": "C.UTF-8"}  # where Python itself lets any byte pass
    command = [LCSPEC, "chat", "-m", str(tiny_llama), "-n", "5"]
    done = subprocess.run(command, input=b"caf\xe9\n", capture_output=True, timeout=PATIENCE, env=c_locale)
    assert done.returncode == 1
    assert done.stdout == b""
    assert done.stderr.decode().splitlines()[-1] == "Error: standard input is not UTF-8 text"


def test_quiet_tells_nothing(tiny_llama: Path) -> None:
    done = chat(tiny_llama, "-n", "5", "--quiet", stdin=b"one\n/clear\n/temp 1\n/nonsense\n")
    assert done.stderr.decode().splitlines() == [
        "Error: /nonsense is no command; /help lists them, and a blank before it sends it as a message"
    ]


def test_importing_chat_loads_nothing_that_only_terminals_need() -> None:
    code = "import sys, lcspec.cli; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    assert not {"rich", "prompt_toolkit", "pygments", "markdown_it"} & set(modules)


# commands


def test_help_lists_the_commands(tiny_llama: Path) -> None:
    stderr = chat(tiny_llama, stdin=b"/help\n/quit\nnever\n").stderr.decode()
    for name in ("reset", "system", "retry", "undo", "save", "load", "list", "model", "draft", "temp", "stats", "quit"):
        assert re.search(rf"^/{name} ", stderr, re.MULTILINE)
    assert "tokens/s" not in stderr  # /quit left
    usage = subprocess.run([LCSPEC, "chat", "--help"], capture_output=True, check=True).stdout
    assert b"/clear" in usage
    assert re.search(rb"^ +lcspec chat --continue$", usage, re.MULTILINE)


def test_what_only_looks_like_a_command_is_a_turn(tiny_llama: Path, engine: SpeculativeLM) -> None:
    expected = [engine.chat([user(text)], max_tokens=5).text for text in ("/etc/passwd is a file", "/nonsense", "//")]
    done = chat(tiny_llama, "-n", "5", stdin=b"/etc/passwd is a file\n/reset\n /nonsense\n/reset\n//\n")
    assert done.stdout.decode().splitlines() == "\n".join(expected).splitlines()


def test_undo_forgets_the_last_turn(tiny_llama: Path, engine: SpeculativeLM) -> None:
    first = engine.chat([user("one")], max_tokens=9).text
    second = engine.chat([user("one"), assistant(first), user("two")], max_tokens=9).text
    done = chat(tiny_llama, "-n", "9", stdin=b"/undo\none\nforget this\n/undo\ntwo\n")
    assert done.stdout.decode().endswith(f"\n{second}\n")
    assert "nothing to undo" in done.stderr.decode()
    assert "undone: forget this" in done.stderr.decode()


def test_retry_is_another_answer(tiny_llama: Path, engine: SpeculativeLM, data: Path) -> None:
    same = engine.chat([user("one")], max_tokens=40).text
    done = chat(tiny_llama, "-n", "40", stdin=b"/retry\none\n/retry\n/retry\ntwo\n/save mine\n")
    assert done.stdout.decode().startswith(f"{same}\n")
    assert "nothing to answer anew" in done.stderr.decode()
    assert done.stderr.count(b"at temperature 0 it would be the same") == 2
    assert len(set(re.findall(r"; seed (\d+)", done.stderr.decode()))) == 2
    contents = [message["content"] for message in kept(data)["mine"]]
    assert contents[::2] == ["one", "two"]  # one answer each: those before are gone


def test_retry_with_a_seed_takes_the_next_ones(tiny_llama: Path) -> None:
    done = chat(tiny_llama, "-n", "12", "-T", "2", "--seed", "7", stdin=b"one\n/retry\n/retry\ntwo\n")
    assert re.findall(r"; seed (\d+)", done.stderr.decode()) == ["7", "8", "9", "7"]


def test_system_and_temperature_are_set_and_shown(tiny_llama: Path, engine: SpeculativeLM) -> None:
    kind = engine.chat([{"role": "system", "content": "Be kind."}, user("one")], max_tokens=9).text
    lines = b"/system\n/system Be kind.\n/system\none\n/system off\n/system\n"
    done = chat(tiny_llama, "-n", "9", stdin=lines + b"/temp\n/temp 0.5\n/temp\n/temp hot\n/temp -1\n")
    stderr = done.stderr.decode()
    assert done.stdout.decode() == f"{kind}\n"
    assert stderr.count("there is no system message; /system TEXT sets one\n") == 2
    assert "\nBe kind.\n" in stderr
    assert "\n0\n" in stderr
    assert "\n0.5\n" in stderr
    assert "Error: /temp takes a number, not 'hot'" in stderr
    assert re.search(r"Error: temperature is -1", stderr)


def test_stats_are_those_of_the_last_answer(tiny_llama: Path) -> None:
    stderr = chat(tiny_llama, "-n", "5", stdin=b"/stats\none\n/stats\n").stderr.decode()
    assert "nothing was answered yet" in stderr
    assert stderr.count("target passes") == 1
    assert re.search(rf"context  \d+ of {CTX}$", stderr, re.MULTILINE)
    assert chat(tiny_llama, "-n", "5", "--stats", stdin=b"one\ntwo\n").stderr.count(b"target passes") == 2


def test_another_model_goes_on_with_the_conversation(tiny_llama: Path, tiny_draft: Path, tmp_path: Path) -> None:
    mute = tiny.write_model(tmp_path / "mute.gguf", template=None)
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1) as one, SpeculativeLM(tiny_draft, n_ctx=CTX, threads=1) as two:
        first = one.chat([user("one")], max_tokens=9).text
        second = two.chat([user("one"), assistant(first), user("two")], max_tokens=9).text
        third = two.chat([user("one"), assistant(first), user("two"), assistant(second), user("3")], max_tokens=9).text
    stdin = f"one\n/model {tiny_draft}\ntwo\n/model missing\n/model {mute}\n/model\n3\n"
    done = chat(tiny_llama, "-n", "9", stdin=stdin.encode())
    assert done.stdout.decode() == f"{first}\n{second}\n{third}\n"
    stderr = done.stderr.decode()
    assert "Error: 'missing' is neither a file nor in the catalog" in stderr
    assert "Error: mute.gguf has no chat template" in stderr
    assert f"\n{tiny_draft}\n" in stderr


@pytest.mark.parametrize("free", [0, 1 << 60], ids=["one after the other", "beside each other"])
def test_a_model_that_can_not_be_loaded_leaves_the_one_there_was(
    tiny_llama: Path, tiny_draft: Path, tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = tiny.write_model(tmp_path / "mute.gguf", template=None)
    monkeypatch.setattr(engine_module, "free_memory", lambda: free)
    rest = ("draft_tokens", "use_store", "learn", "exact")
    options = {"model": str(tiny_llama), "draft": None, "drafter": "none", "ctx": CTX, "threads": 1}
    with EngineInUse(options | dict.fromkeys(rest)) as in_use:
        expected = in_use.engine.generate("abc", max_tokens=9).text
        for broken in str(mute), "missing":
            with pytest.raises(LcspecError):
                in_use.exchange(model=broken)
            assert in_use.name == str(tiny_llama)
            assert in_use.engine.generate("abc", max_tokens=9).text == expected
        in_use.exchange(model=str(tiny_draft))
        assert in_use.engine.target.path == tiny_draft
        engine = in_use.engine
    with pytest.raises(LcspecError):
        engine.generate("abc")


def test_draft_models_come_and_go(tiny_llama: Path, tiny_draft: Path, engine: SpeculativeLM, tmp_path: Path) -> None:
    other = tiny.write_model(tmp_path / "other.gguf", changed_token=65)
    expected = engine.chat([user("one")], max_tokens=20).text
    stdin = f"/draft\n/draft {other}\n/draft {tiny_draft}\n/model\none\n/draft off\n/draft\n/stats\n"
    done = chat(tiny_llama, "-n", "20", "--draft-tokens", "3", stdin=stdin.encode())
    stderr = done.stderr.decode()
    assert done.stdout.decode() == f"{expected}\n"
    assert "other.gguf can't draft for llama.gguf" in stderr
    assert f"{tiny_llama}, drafted by {tiny_draft}" in stderr
    assert stderr.count("there is no draft model; /draft NAME loads one") == 2


# conversations


def kept(data: Path) -> dict[str, list[dict[str, str]]]:
    """Return the messages of the conversations on disk, by name."""
    files = (data / "conversations").glob("*.json")
    return {file.stem: json.loads(file.read_text(encoding="utf-8"))["messages"] for file in files}


def test_conversations_are_saved_loaded_and_listed(tiny_llama: Path, engine: SpeculativeLM, data: Path) -> None:
    first = engine.chat([user("one")], max_tokens=9).text
    second = engine.chat([user("one"), assistant(first), user("two")], max_tokens=9).text
    lines = b"/list\none\n/save letters\n/reset\nnumber\n/load letters\ntwo\n/list\n"
    done = chat(tiny_llama, "-n", "9", stdin=lines + b"/load nothing\n/load\n/save a/b\n")
    stderr = done.stderr.decode()
    assert done.stdout.decode().endswith(f"\n{second}\n")
    assert "no conversations are kept" in stderr
    assert "* letters, 2 turns: one\n" in stderr
    assert re.search(r"^  [\d-]+, 1 turn: number$", stderr, re.MULTILINE)
    assert "Error: there is no conversation 'nothing'" in stderr
    assert "Error: /load needs the NAME" in stderr
    assert "can't be the name of a conversation" in stderr
    found = kept(data)
    assert found.pop("letters") == [user("one"), assistant(first), user("two"), assistant(second)]
    ((_, number),) = found.items()
    assert number[0] == user("number")
    for file in (data / "conversations").glob("*.json"):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_name_that_is_taken_is_not_overwritten(tiny_llama: Path, data: Path) -> None:
    assert chat(tiny_llama, "-n", "5", stdin=b"one\n/save mine\n").returncode == 0
    done = chat(tiny_llama, "-n", "5", stdin=b"other\n/save mine\n")
    assert "Error: there is a conversation 'mine' already" in done.stderr.decode()
    assert [messages[0] for messages in kept(data).values()] == [user("one")]


def test_going_on_later_evaluates_nothing_again(tiny_llama: Path, engine: SpeculativeLM, data: Path) -> None:
    first = engine.chat([user("one")], max_tokens=9).text
    second = engine.chat([user("one"), assistant(first), user("two")], max_tokens=9).text
    done = chat(tiny_llama, "-n", "9", stdin=b"one\n/save mine\n")
    command = [LCSPEC, "chat", "-c", str(CTX), "-t", "1", "-n", "9", "--stats"]  # and the model of then
    for option, turn in (["--continue"], b"two\n"), (["--resume", "mine"], b"three\n"):
        done = subprocess.run([*command, *option], input=turn, capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0
        if turn == b"two\n":
            assert done.stdout.decode() == f"{second}\n"
        prompt, cached = map(int, re.findall(r"prompt  ([\d]+) tokens, (\d+) of them", done.stderr.decode())[0])
        assert cached > prompt - 40  # of the turn that is new, and the template around it
    without = subprocess.run(
        [*command, "--continue", "--no-cache"], input=b"four\n", capture_output=True, timeout=PATIENCE
    )
    assert b"tokens, 0 of them cached" in without.stderr


def test_going_on_with_nothing(tiny_llama: Path, data: Path) -> None:
    done = chat(tiny_llama, "-n", "5", "--continue", stdin=b"one\n")
    assert (done.returncode, b"a new one begins" in done.stderr) == (0, True)
    done = chat(tiny_llama, "--resume", "mine")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == "Error: there is no conversation 'mine'\n"
    done = chat(tiny_llama, "--resume", "mine", "--continue")
    assert done.returncode == 2


def test_a_folder_that_can_not_be_written_is_said_once(tiny_llama: Path, data: Path) -> None:
    assert chat(tiny_llama, "-n", "5", stdin=b"one\n/save mine\n").returncode == 0
    (data / "conversations" / "mine.json").write_text("damaged", encoding="utf-8")
    assert chat(tiny_llama, "--resume", "mine").stderr.decode().startswith("Error: ")
    data.rename(data.with_name("elsewhere"))
    data.write_text("a file where a folder should be", encoding="utf-8")
    done = chat(tiny_llama, "-n", "5", stdin=b"one\n/save mine\ntwo\n")
    assert done.returncode == 0
    assert done.stderr.decode().count("Error: ") == 1
    assert done.stderr.count(b"tokens/s") == 2


def test_in_the_end_a_chat_says_what_is_not_kept(tiny_llama: Path, data: Path) -> None:
    assert chat(tiny_llama, "-n", "5", stdin=b"one\n/save mine\n").returncode == 0
    lock = data / "conversations" / ".lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # nothing can be written
    done = chat(tiny_llama, "-n", "5", "--resume", "mine", stdin=b"two\nthree\n")
    errors = [line for line in done.stderr.decode().splitlines() if line.startswith("Error: ")]
    assert len(errors) == 2
    assert errors[0].startswith("Error: the conversation can't be kept in ")
    assert done.stderr.decode().splitlines()[-1] == errors[1]
    assert errors[1].startswith("Error: the conversation is not kept as it is now: the conversation can't be kept in ")
    assert [messages[0] for messages in kept(data).values()] == [user("one")]


def test_the_name_of_a_damaged_conversation_controls_no_terminal(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a\x9b31m" / "lcspec" / "conversations"
    folder.mkdir(parents=True)
    (folder / "bad.json").write_text("{")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "a\x9b31m"))
    told = chat(tiny_llama, "--resume", "bad").stderr.decode()
    assert told.startswith("Error: ")
    assert "a\\x9b31m" in told
    assert "\x9b" not in told


# a terminal without escape sequences


class Conversation:
    """`lcspec chat` in a terminal."""

    def __init__(self, model: Path, *arguments: str) -> None:
        command = ["chat", "-m", str(model), "-t", "1", *arguments]
        self.terminal = pexpect.spawn(
            LCSPEC, command, timeout=PATIENCE, encoding="utf-8", env=os.environ | {"TERM": "dumb"}
        )
        self.terminal.setwinsize(50, 1000)
        self.terminal.expect("tokens of context.*\r\n> ")

    def say(self, turn: str) -> None:
        self.terminal.sendline(turn)
        self.terminal.expect_exact(f"{turn}\r\n")

    def answer(self) -> str:
        """Return the answer, read up to the next prompt."""
        self.terminal.expect(r"\r\n[^\r\n]*lcspec: [\d,]+ tokens, [^\r\n]*\r\n> ")
        return str(self.terminal.before).replace("\r\n", "\n")

    def leave(self) -> None:
        self.terminal.sendeof()
        self.terminal.expect(pexpect.EOF)
        self.terminal.close()
        assert self.terminal.exitstatus == 0


@pytest.mark.real
def test_a_conversation_in_a_terminal(smollm2: Path) -> None:
    conversation = Conversation(smollm2, "-n", "24")
    turns = "Hello, who are you?", "Tell me more."
    answers = []
    for turn in turns:
        conversation.say(turn)
        answers.append(conversation.answer())
    conversation.say("/clear")
    conversation.terminal.expect("> ")
    conversation.say(turns[1])
    answers.append(conversation.answer())
    conversation.leave()

    with SpeculativeLM(smollm2, drafter="none", threads=1) as engine:
        first = engine.chat([user(turns[0])], max_tokens=24).text
        second = engine.chat([user(turns[0]), assistant(first), user(turns[1])], max_tokens=24).text
        anew = engine.chat([user(turns[1])], max_tokens=24).text
    assert second != anew
    assert answers == [first, second, anew]


@pytest.mark.real
def test_ctrl_c_ends_an_answer_and_the_conversation_goes_on(smollm2: Path) -> None:
    conversation = Conversation(smollm2)
    story, more = "Write a very long story about the sea.", "Go on."
    texts = []
    for turn in (story, more):
        conversation.say(turn)
        conversation.terminal.expect(r"(\w+\W+){16}")
        text = str(conversation.terminal.before) + str(conversation.terminal.after)
        conversation.terminal.sendintr()
        texts.append((text.replace("\r\n", "\n") + conversation.answer()).removesuffix("^C"))
    time.sleep(0.5)  # the prompt is there a moment before anything is read
    conversation.terminal.sendintr()  # at the prompt it does no harm
    conversation.terminal.expect("\r\n> ")
    conversation.leave()

    told, going_on = texts
    with SpeculativeLM(smollm2, drafter="none", threads=1) as engine:
        whole = engine.chat([user(story)], max_tokens=100).text
        forgotten = engine.chat([user(more)], max_tokens=20).text
        untold = engine.chat([user(story), assistant(""), user(more)], max_tokens=20).text
    assert whole.startswith(told)
    assert not going_on.startswith(forgotten[:40])
    assert not going_on.startswith(untold[:40])
