"""Conversations as files: kept whole, resumed, never lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec import conversations
from lcspec.conversation import Conversation
from lcspec.conversations import ChangedError, Conversations
from lcspec.errors import FileError


@pytest.fixture
def kept(tmp_path: Path) -> Conversations:
    return Conversations(tmp_path / "conversations")


def talk(kept: Conversations, name: str, *texts: str) -> Conversation:
    """Save a conversation of these questions and answers."""
    conversation = kept.begin("tiny", name)
    for i, text in enumerate(texts):
        (conversation.answer if i % 2 else conversation.ask)(text)
    kept.save(conversation)
    return conversation


def files(kept: Conversations) -> list[Path]:
    """Return what is in the folder, but for the file that writers lock."""
    return [path for path in kept.folder.rglob("*") if path.is_file() and path.name != ".lock"]


# turns


def test_a_conversation_is_made_of_turns() -> None:
    talk = Conversation("a", "tiny", [], created="", changed="")
    assert talk.system is None
    assert talk.undo() is None
    with pytest.raises(ValueError, match="nothing to answer"):
        talk.answer("no")
    talk.set_system("be short")
    talk.ask("one?")
    assert talk.unanswered == "one?"
    talk.answer("1")
    assert talk.unanswered is None
    with pytest.raises(ValueError, match="nothing to answer"):
        talk.answer("1 again")
    talk.ask("two?")
    talk.ask("three?")
    assert [message["content"] for message in talk.messages] == ["be short", "one?", "1", "three?"]
    assert talk.undo() == "three?"
    assert talk.undo() == "one?"
    assert talk.undo() is None
    assert talk.messages == [{"role": "system", "content": "be short"}]
    assert talk.changed


def test_the_system_prompt_changes_and_outlives_a_reset() -> None:
    talk = Conversation("a", "tiny", [], created="", changed="")
    talk.ask("one?")
    talk.set_system("be short")
    talk.set_system("be long")
    assert [message["role"] for message in talk.messages] == ["system", "user"]
    assert talk.system == "be long"
    talk.reset()
    assert talk.messages == [{"role": "system", "content": "be long"}]
    talk.set_system(None)
    assert talk.messages == []
    talk.set_system("")
    assert talk.system is None


# files


def test_what_is_saved_is_loaded_by_another(kept: Conversations) -> None:
    saved = talk(kept, "Größe 東京", "hi\n\x00", "hello 👩‍👩‍👧", "and?")
    other = Conversations(kept.folder)
    loaded = other.load("Größe 東京")
    assert loaded == saved
    assert other.latest() == saved
    loaded.answer("that")
    other.save(loaded)
    other.save(loaded)
    assert Conversations(kept.folder).load("Größe 東京").messages[-1]["content"] == "that"


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX's")
def test_nobody_else_can_read_them(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    assert (kept.folder / "a.json").stat().st_mode & 0o777 == 0o600
    assert kept.folder.stat().st_mode & 0o777 == 0o700


def test_half_a_character_is_saved_as_the_model_reads_it(kept: Conversations) -> None:
    talk(kept, "a", "x\ud800y")
    assert kept.load("a").messages == [{"role": "user", "content": "x?y"}]


def test_the_newest_comes_first(kept: Conversations) -> None:
    assert kept.names() == []
    assert kept.latest() is None
    for age, name in enumerate(("c", "a", "b")):
        talk(kept, name, "hi")
        os.utime(kept.folder / f"{name}.json", (1000 - age, 1000 - age))
    (kept.folder / ".hidden.json").write_text("{}")
    (kept.folder / "other.txt").write_text("{}")
    (kept.folder / "folder.json").mkdir()
    assert kept.names() == ["c", "a", "b"]
    kept.save(kept.load("b"))
    latest = kept.latest()
    assert latest is not None
    assert latest.name == "b"


def test_names_of_the_time_are_free(kept: Conversations) -> None:
    names = set()
    for _ in range(3):
        conversation = kept.begin("tiny")
        conversation.ask("hi")
        kept.save(conversation)
        names.add(conversation.name)
    assert len(names) == 3
    assert set(kept.names()) == names


def test_a_name_that_is_taken_is_not_begun_anew(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    with pytest.raises(FileError, match="there is a conversation 'a' already"):
        kept.begin("tiny", "a")


WRONG_NAMES = (
    *("", "  ", ".", "..", ".a", "a.", " a", "a ", "a/b", "../a", "a\\b", "a\0", "a\nb", "C:a", "a*", "x" * 151),
    *("é" * 76, "con", "NUL.txt", "com1", "a\udc80", "a\x9b31mb", "a\u202etxt.b", "a\u2066b", "a\u061cb"),
)


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_what_is_no_name_is_refused_in_one_line(kept: Conversations, name: str) -> None:
    conversation = Conversation(name, "tiny", [], created="", changed="")
    uses = (
        lambda: kept.save(conversation),
        lambda: kept.load(name),
        lambda: kept.begin("tiny", name),
        lambda: kept.remove(name),
        lambda: kept.state_path(conversation),
    )
    for use in uses:
        with pytest.raises(FileError, match="can't be the name of a conversation") as error:
            use()
        assert len(str(error.value).splitlines()) == 1
        assert str(error.value).isprintable()
    assert not kept.folder.exists()


@given(name=st.text(max_size=200))
@settings(deadline=None)
def test_a_name_is_refused_or_stays_in_the_folder(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    kept = Conversations(outside / "inside")
    conversation = Conversation(name, "tiny", [{"role": "user", "content": "hi"}], created="", changed="")
    try:
        kept.save(conversation)
    except FileError:
        assert list(outside.iterdir()) == []
    else:
        assert kept.names() == [name]
        assert kept.load(name) == conversation
        assert kept.state_path(conversation).parent == kept.folder / "states"
        assert list(outside.iterdir()) == [kept.folder]


def test_a_missing_conversation_is_an_error(kept: Conversations) -> None:
    for use in (kept.load, kept.remove):
        with pytest.raises(FileError, match="there is no conversation 'nowhere'"):
            use("nowhere")


def test_a_removed_conversation_leaves_nothing(kept: Conversations) -> None:
    conversation = talk(kept, "a[b]", "secret")
    other = talk(kept, "ab", "other")
    for one in (conversation, other):
        kept.state_path(one).parent.mkdir(exist_ok=True)
        kept.state_path(one).write_text("state")
    (kept.folder / ".a[b].json.xyz.new").write_text("left by a writer that was killed")
    (kept.folder / "states" / ".a[b].kv.xyz.new").write_text("left by a writer that was killed")
    kept.remove("a[b]")
    assert kept.names() == ["ab"]
    assert sorted(path.name for path in files(kept)) == ["ab.json", "ab.kv"]
    assert kept.begin("tiny", "a[b]").messages == []


def test_what_a_killed_writer_left_goes_when_it_is_old(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    old, new = kept.folder / ".b.json.old.new", kept.folder / ".b.json.new.new"
    old.write_text("x")
    new.write_text("x")
    os.utime(old, (0, 0))
    kept.save(kept.load("a"))
    assert not old.exists()
    assert new.exists()


# damage


GOOD = {"version": 1, "model": "m", "created": "c", "changed": "d", "messages": [{"role": "user", "content": "hi"}]}

DAMAGED = (
    *(b"", b"{", b"null", b"[]", b"7", b'"x"', b"\xff\xfe", b"[" * 100_000, b"\0" * 50),
    *(
        json.dumps({key: other for key, other in {**GOOD, **wrong}.items() if other is not None}).encode()
        for wrong in (
            {"version": None},
            {"version": "1"},
            {"version": 0},
            {"version": True},
            {"model": None},
            {"model": 5},
            {"created": []},
            {"messages": None},
            {"messages": {}},
            {"messages": ["hi"]},
            {"messages": [{"role": "user"}]},
            {"messages": [{"role": "user", "content": None}]},
            {"messages": [{"role": "user", "content": ["hi"]}]},
            {"messages": [{"role": ["user"], "content": "hi"}]},
            {"messages": [{"role": "tool", "content": "hi"}]},
            {"messages": [{"role": "user", "content": "hi"}, {"role": "system", "content": "hi"}]},
        )
    ),
)


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_one_line_and_stays_as_it_is(kept: Conversations, content: bytes) -> None:
    kept.folder.mkdir()
    path = kept.folder / "a.json"
    path.write_bytes(content)
    for use in (lambda: kept.load("a"), kept.latest):
        with pytest.raises(FileError, match=r"a\.json (is damaged|is no conversation)") as error:
            use()
        assert len(str(error.value).splitlines()) == 1
    with pytest.raises(FileError, match="not replaced"):
        kept.save(Conversation("a", "tiny", [], created="", changed=""))
    assert path.read_bytes() == content
    assert kept.names() == ["a"]


def test_a_newer_version_says_so(kept: Conversations) -> None:
    kept.folder.mkdir()
    (kept.folder / "a.json").write_text(json.dumps({**GOOD, "version": 2, "messages": 7}))
    with pytest.raises(FileError, match="newer lcspec"):
        kept.load("a")


def test_what_else_stands_in_a_file_does_no_harm(kept: Conversations) -> None:
    kept.folder.mkdir()
    message = {"role": "user", "content": "hi", "more": 1}
    (kept.folder / "a.json").write_text(json.dumps({**GOOD, "messages": [message], "name": 7, "more": []}))
    assert kept.load("a") == Conversation("a", "m", GOOD["messages"], created="c", changed="d")  # type: ignore[arg-type]


def test_another_process_s_turns_are_not_overwritten(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    other = Conversations(kept.folder)
    here, there = kept.load("a"), other.load("a")
    there.answer("hello")
    other.save(there)
    here.answer("good day")
    with pytest.raises(FileError, match="not replaced"):
        kept.save(here)
    assert kept.load("a").messages[-1]["content"] == "hello"


def test_of_two_that_save_at_once_one_is_told(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    turns = 30
    both = Barrier(2, timeout=60)

    def save_all(name: str) -> list[str]:
        own, saved = Conversations(kept.folder), []
        for i in range(turns):
            both.wait()
            conversation = own.load("a")
            both.wait()
            conversation.answer(f"{name}{i}") if conversation.unanswered else conversation.ask(f"{name}{i}")
            with suppress(FileError):
                own.save(conversation)
                saved.append(f"{name}{i}")
        return saved

    with ThreadPoolExecutor(2) as pool:
        saved = [text for texts in pool.map(save_all, ("x", "y")) for text in texts]
    assert sorted(message["content"] for message in kept.load("a").messages) == sorted(["hi", *saved])
    assert len(saved) == turns


def test_a_look_at_a_conversation_does_not_let_it_be_overwritten(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    other = Conversations(kept.folder)
    here, there = kept.load("a"), other.load("a")
    there.answer("hello")
    other.save(there)
    assert kept.peek("a") == there
    here.answer("good day")
    with pytest.raises(ChangedError, match="not replaced"):
        kept.save(here)


def test_a_name_that_another_process_took_meanwhile_is_not_written(kept: Conversations) -> None:
    here = kept.begin("tiny", "a")
    talk(Conversations(kept.folder), "a", "hi")
    with pytest.raises(ChangedError, match="not replaced"):
        kept.save(here)
    with pytest.raises(ChangedError, match="not removed"):
        kept.remove("a")
    assert kept.load("a").messages == [{"role": "user", "content": "hi"}]
    kept.remove("a")


def test_processes_that_begin_in_the_same_second_get_other_names(kept: Conversations) -> None:
    assert len({Conversations(kept.folder).begin("tiny").name for _ in range(5)}) == 5


def test_what_could_not_be_read_again_is_not_written(kept: Conversations, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = talk(kept, "a", "hi")
    monkeypatch.setattr(conversations, "_LARGEST", 1 << 20)
    conversation.answer("x" * (1 << 20))
    with pytest.raises(FileError, match="larger than 1 MB: not written") as error:
        kept.save(conversation)
    assert len(str(error.value).splitlines()) == 1
    assert kept.load("a").messages == [{"role": "user", "content": "hi"}]


def test_what_is_written_of_another_conversation_stays(kept: Conversations) -> None:
    talk(kept, "a", "hi")
    (kept.folder / "states").mkdir()
    written = (kept.folder / ".a.json.b.json.xyz.new", kept.folder / "states" / ".a.kv.b.kv.xyz.new")
    for file in written:
        file.write_text("of a.json.b and a.kv.b")
    kept.remove("a")
    assert all(file.exists() for file in written)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_what_is_no_ordinary_file_is_not_read(kept: Conversations) -> None:
    kept.folder.mkdir()
    os.mkfifo(kept.folder / "pipe.json")
    (kept.folder / "folder.json").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(FileError, match="not an ordinary file"):
            kept.load(name)
        with pytest.raises(FileError, match="not an ordinary file"):
            kept.save(Conversation(name, "tiny", [], created="", changed=""))
    assert kept.names() == []


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        kept = Conversations(folder)
        with pytest.raises(FileError, match="can't be listed: Not a directory"):
            kept.names()
        with pytest.raises(FileError, match="can't be kept") as error:
            kept.save(Conversation("a", "tiny", [], created="", changed=""))
        assert len(str(error.value).splitlines()) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> None:
    with suppress(OSError), (folder / "filler").open("ab", buffering=0) as filler:
        while True:
            filler.write(bytes(1000))


@pytest.mark.parametrize("length", [100, 15_000])
def test_a_full_disk_loses_nothing(small_disk: Path, length: int) -> None:
    kept = Conversations(small_disk / "conversations")
    conversation = talk(kept, "a", "x" * length)
    saved = list(conversation.messages)
    fill(small_disk)
    conversation.answer("y" * length)
    with pytest.raises(FileError, match="No space left"):
        kept.save(conversation)
    assert kept.load("a").messages == saved
    assert [path.name for path in files(kept)] == ["a.json"]
    (small_disk / "filler").unlink()
    kept.save(conversation)
    assert kept.load("a") == conversation


WRITER = """
import sys
from pathlib import Path
from lcspec.conversations import Conversations
kept = Conversations(Path(sys.argv[1]))
conversation = kept.begin("tiny", "a")
conversation.ask("q")
kept.save(conversation)
print("begun", flush=True)
n = 0
while True:
    n += 1
    conversation.answer("word " * (200 * n))
    kept.save(conversation)
    conversation.ask("q")
    kept.save(conversation)
"""


def test_a_kill_leaves_the_old_or_the_new_one(tmp_path: Path) -> None:
    chance = random.Random(1)
    for i in range(6):
        folder = tmp_path / str(i)
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        kept = Conversations(folder)
        conversation = kept.latest()
        assert conversation is not None
        answers = [message["content"] for message in conversation.messages if message["role"] == "assistant"]
        assert answers == ["word " * (200 * (n + 1)) for n in range(len(answers))]
        kept.save(conversation)
        assert kept.names() == ["a"]
