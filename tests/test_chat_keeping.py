"""What a chat keeps on disk beside other chats, and what it says of it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from lcspec import SamplingParams, SpeculativeLM
from lcspec.cli.chat import commands
from lcspec.cli.chat.display import PlainDisplay
from lcspec.cli.chat.history import PrivateHistory
from lcspec.cli.chat.keeping import Keeping
from lcspec.cli.chat.session import Session
from lcspec.cli.report import note
from lcspec.conversation import Conversation
from lcspec.conversations import Conversations

CTX = 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "conversations"


@pytest.fixture
def open_chat(folder: Path) -> Callable[[], Keeping]:
    """What a chat keeps, in a process of its own so to speak."""
    return lambda: Keeping(Conversations(folder), is_on=True, with_cache=True)


def turn(keeping: Keeping, conversation: Conversation, question: str) -> None:
    conversation.ask(question)
    conversation.answer("yes")
    keeping.save(conversation)


def kept(folder: Path) -> dict[str, list[str]]:
    """Return what was said in the conversations on disk, by name."""
    conversations = Conversations(folder)
    return {name: [one["content"] for one in conversations.load(name).messages] for name in conversations.names()}


# two chats


@pytest.mark.parametrize("leave", ["say nothing", "name it"])
def test_a_chat_removes_no_conversation_of_another(
    open_chat: Callable[[], Keeping], folder: Path, leave: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Conversations, "_free_name", lambda _: "now")  # both at once
    mine, other = open_chat(), open_chat()
    here, there = mine.begin("tiny"), other.begin("tiny")
    turn(mine, here, "precious")
    if leave == "say nothing":
        there.set_system("be short")
        other.save(there)
    else:
        there.ask("hi")
        other.name(there, "other")
    assert kept(folder)["now"] == ["precious", "yes"]


def test_a_conversation_in_which_nothing_is_left_is_removed(open_chat: Callable[[], Keeping], folder: Path) -> None:
    chat = open_chat()
    conversation = chat.begin("tiny")
    turn(chat, conversation, "one")
    assert list(kept(folder)) == [conversation.name]
    conversation.undo()
    chat.save(conversation)
    assert kept(folder) == {}


@pytest.mark.parametrize("looks", [False, True])
def test_what_another_chat_said_stays_and_this_one_goes_on_elsewhere(
    open_chat: Callable[[], Keeping], folder: Path, looks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    turn(first := open_chat(), conversation := first.begin("tiny"), "q")
    first.name(conversation, "X")
    mine, other = open_chat(), open_chat()
    here, there = mine.load("X"), other.load("X")
    turn(other, there, "theirs")
    if looks:
        commands.run(SimpleNamespace(keeping=mine, conversation=here), "/list")  # type: ignore[arg-type]
        assert "* X, 2 turns: q" in capsys.readouterr().err
    turn(mine, here, "mine")
    turn(mine, here, "mine again")
    found = kept(folder)
    assert found.pop("X") == ["q", "yes", "theirs", "yes"]
    assert found == {here.name: ["q", "yes", "mine", "yes", "mine again", "yes"]}
    told = capsys.readouterr().err
    assert told == f"Error: the file of X was changed elsewhere; this conversation is kept as {here.name} from now on\n"
    assert mine.is_kept(here)


def test_what_can_not_be_written_is_not_called_kept(
    open_chat: Callable[[], Keeping], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write_text("a file where a folder should be")
    chat = open_chat()
    conversation = chat.begin("tiny")
    turn(chat, conversation, "one")
    turn(chat, conversation, "two")
    assert capsys.readouterr().err.count("Error: ") == 1
    assert not chat.is_kept(conversation)
    assert "can't be kept" in chat.problem(conversation)
    assert not chat.problem(chat.begin("tiny"))  # of another one nothing is known
    folder.unlink()
    turn(chat, conversation, "three")
    assert chat.is_kept(conversation)
    assert list(kept(folder)) == [conversation.name]


# what the model made of it


@pytest.fixture
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=CTX, threads=1, measure=False) as engine:
        yield engine


@pytest.fixture
def session(engine: SpeculativeLM, folder: Path) -> Session:
    """A chat that keeps nothing so far."""
    keeping = Keeping(Conversations(folder), is_on=False, with_cache=True)
    options: Any = {"max_tokens": 5, "sampling": SamplingParams()}
    in_use: Any = SimpleNamespace(engine=engine, name="tiny")
    return Session(in_use, keeping.begin("tiny"), keeping, PlainDisplay(), options, stats=False, has_editor=False)


@pytest.mark.parametrize("asks", [False, True])
def test_what_is_kept_of_a_conversation_has_no_other_one_in_it(session: Session, folder: Path, asks: bool) -> None:
    other = Conversations(folder)
    conversation = other.begin("tiny", "B")
    conversation.ask("q")
    conversation.answer("a")
    other.save(conversation)
    session.ask("my secret number is 4711")
    commands.run(session, "/load B")
    if asks:
        session.ask("and?")
    commands.run(session, "/save")
    session.keep_cache()
    engine = session.in_use.engine
    state = other.state_path(conversation)
    engine.clear()
    assert (engine.restore_state(state) > 0) is asks
    evaluated = engine.target.detokenize(engine._loaded.context.tokens)
    assert b"4711" not in evaluated
    assert (b"and?" in evaluated) is asks


def test_a_reset_evaluates_from_the_beginning(session: Session) -> None:
    session.ask("my secret number is 4711")
    commands.run(session, "/reset")
    session.ask("my secret number is 4711")
    assert session.last is not None
    assert session.last.completion.stats.cached_tokens == 0


# names in a terminal


def test_notes_control_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note("\x1b]0;PWNED\x07t.gguf, 5\n\x9b31m\u202ered, Größe 東京")
    assert click.unstyle(capsys.readouterr().err) == (
        "lcspec: \\x1b]0;PWNED\\x07t.gguf, 5\n\\x9b31m\\u202ered, Größe 東京\n"
    )


def test_lists_and_errors_control_no_terminal(
    session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a\x9b31m"
    session.keeping.conversations = Conversations(folder)
    folder.mkdir()
    (folder / "bad.json").write_text("{")
    content = {"version": 1, "model": "m\x1b[31m", "created": "", "changed": "", "messages": []}
    (folder / "good.json").write_text(json.dumps(content))
    (folder / "turned\u202e.json").write_text(json.dumps(content))
    commands.run(session, "/list")
    commands.run(session, "/load good")
    session.in_use.options = {"model": "m\x1b[31m", "draft": "d\x1b[31m"}
    commands.run(session, "/model")
    commands.run(session, "/draft")
    told = click.unstyle(capsys.readouterr().err)
    assert "bad: " in told
    assert "turned" not in told
    assert "that was with m\\x1b[31m" in told
    assert "\nm\\x1b[31m, drafted by d\\x1b[31m\nd\\x1b[31m\n" in told
    assert "\x9b" not in told
    assert "\x1b" not in told


# what was typed


def test_a_long_paste_leaves_the_messages_before_it(tmp_path: Path) -> None:
    history = PrivateHistory(tmp_path / "history")
    for i in range(4):
        history.store_string(f"message {i}\n# not an entry" + "x" * 50_000)
    history.store_string("y" * 600_000)
    history.store_string("z" * 600_000)
    history.store_string("the last one")
    again = list(PrivateHistory(tmp_path / "history").load_history_strings())
    assert [text[:9] for text in again] == ["the last ", *(f"message {i}" for i in (3, 2, 1, 0))]
    assert (tmp_path / "history").stat().st_size < 1 << 20


def test_a_long_history_loses_its_older_half(tmp_path: Path) -> None:
    history = PrivateHistory(tmp_path / "history")
    for i in range(30):
        history.store_string(f"{i} " + "x" * 50_000)
    again = list(PrivateHistory(tmp_path / "history").load_history_strings())
    assert [text.split()[0] for text in again] == [str(i) for i in reversed(range(20, 30))]
