"""The store of earlier texts, and `lcspec store`."""

import json
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pexpect
import pytest
import tiny
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec.cli import main
from lcspec.errors import ClosedError, LcspecError, StoreError
from lcspec.llama import Model
from lcspec.store import LONGEST_MATCH, Continuation, N, NgramStore, default_path, repair, vocabulary_digest

PAGE, TABLE_LEAF = 4096, 13  # of SQLite's file format
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store.sqlite"


def text(seed: int, n: int = 400, words: int = 1000) -> list[int]:
    return random.Random(seed).choices(range(words), k=n)


def filled(path: Path, n: int = 40) -> Path:
    """Return a store of `n` documents, closed."""
    with NgramStore(path) as store:
        for i in range(n):
            store.add("v", f"text {i}", text(i))
    return path


def names(path: Path) -> list[str]:
    with NgramStore(path) as store:
        return [document.name for document in store.documents()]


# finding


class Shelf:
    """What a store should do, in the plainest way."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.documents: list[tuple[str, str, list[int]]] = []

    def add(self, vocabulary: str, name: str, tokens: list[int]) -> None:
        self.documents = [one for one in self.documents if one[:2] != (vocabulary, name)]
        if len(tokens) > N:
            self.documents.append((vocabulary, name, tokens))
        while sum(len(tokens) - N for *_, tokens in self.documents) > self.limit:
            del self.documents[0]

    def remove(self, name: str) -> None:
        self.documents = [one for one in self.documents if one[1] != name]

    def find(self, vocabulary: str, suffix: Sequence[int], limit: int) -> Continuation | None:
        for its_vocabulary, _, tokens in reversed(self.documents):
            for position in range(len(tokens) - 1, N - 1, -1):
                if its_vocabulary == vocabulary and tokens[position - N : position] == suffix[-N:]:
                    return Continuation(
                        tuple(tokens[position : position + limit]), common_end(tokens, position, suffix)
                    )
        return None


def common_end(tokens: Sequence[int], position: int, suffix: Sequence[int]) -> int:
    n = 0
    while n < min(position, len(suffix), LONGEST_MATCH) and tokens[position - n - 1] == suffix[-n - 1]:
        n += 1
    return n


VOCABULARIES, NAMES = st.sampled_from("vw"), st.sampled_from("abcde")
TOKENS = st.lists(st.integers(0, 2), max_size=30) | st.integers(60, 90).map(lambda n: [0, 1] * (n // 2))
STEPS = st.lists(st.tuples(st.sampled_from(["add"] * 4 + ["remove"]), VOCABULARIES, NAMES, TOKENS), max_size=12)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.lists(st.tuples(VOCABULARIES, TOKENS, st.integers(0, 9)), max_size=8))
def test_what_is_found_is_the_latest_occurrence(
    steps: list[tuple[str, str, str, list[int]]], questions: list[tuple[str, list[int], int]]
) -> None:
    shelf = Shelf(limit=100)
    with TemporaryDirectory() as folder, NgramStore(Path(folder) / "store.sqlite", limit=100) as store:
        for step, vocabulary, name, tokens in steps:
            if step == "add":
                store.add(vocabulary, name, tokens)
                shelf.add(vocabulary, name, tokens)
            else:
                store.remove(name)
                shelf.remove(name)
            assert [(one.vocabulary, one.name) for one in store.documents()] == [one[:2] for one in shelf.documents]
            for its_vocabulary, suffix, limit in [(vocabulary, tokens[: len(tokens) // 2], 5), *questions]:
                expected = shelf.find(its_vocabulary, suffix, limit) if len(suffix) >= N and limit else None
                assert store.find(its_vocabulary, suffix, limit) == expected


def test_a_store_is_there_for_the_next_process(path: Path) -> None:
    filled(path)
    with NgramStore(path) as store:
        tokens = text(7)
        assert store.find("v", tokens[:100], 20) == (tuple(tokens[100:120]), LONGEST_MATCH)
        assert store.find("v", tokens[94:100], 1000) == (tuple(tokens[100:]), 6)
        assert store.find("another", tokens[:100], 20) is None


def test_a_document_too_long_for_the_store_changes_nothing(path: Path) -> None:
    with NgramStore(path, limit=50) as store:
        store.add("v", "short", text(1, 40))
        with pytest.raises(StoreError, match="long has 100 tokens, more than the 50 that the store holds"):
            store.add("v", "long", text(2, 100))
        assert [document.name for document in store.documents()] == ["short"]


def test_the_oldest_documents_make_room(path: Path) -> None:
    with NgramStore(path, limit=100) as store:
        for i in range(4):
            evicted = store.add("v", f"{i}", text(i, 24 + N)).evicted
            assert evicted == ()
        store.add("v", "0", text(0, 24 + N))  # again: now the latest
        assert store.add("v", "4", text(4, 40 + N)).evicted == ("1", "2")
        stats = store.stats()
        assert (stats.documents, stats.ngrams, stats.tokens) == (3, 88, 100)
        assert stats.vocabularies["v"].ngrams == 88
        assert store.find("v", text(1, 28)[:10], 5) is None
        assert store.find("v", text(3, 28)[:10], 5) is not None


def test_a_hash_that_two_ngrams_share_gives_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with NgramStore(path) as store:
        store.add("v", "a", [1, 2, 3, 4, 5])
        hashes = sqlite3.connect(path).execute("SELECT hash FROM ngrams").fetchone()
        monkeypatch.setattr("lcspec.store.store.ngram_hashes", lambda *_: hashes)
        assert store.find("v", [1, 2, 3, 4], 5) == ((5,), 4)
        assert store.find("v", [1, 2, 3, 9], 5) is None
        assert store.find("w", [1, 2, 3, 4], 5) is None


def test_documents_are_removed_by_name_and_by_id(path: Path) -> None:
    with NgramStore(path) as store:
        for vocabulary in ("v", "w"):
            for name in ("a", "b"):
                store.add(vocabulary, name, text(1), kind="output")
        assert [one.vocabulary for one in store.remove("a")] == ["v", "w"]
        first, second = store.documents()
        assert (first.kind, first.n_tokens) == ("output", 400)
        assert store.remove(first.id) == [first]
        assert store.remove(first.id) == []
        assert store.documents() == [second]
        store.clear()
        assert store.documents() == []
        assert store.find("w", text(1)[:10], 5) is None


def test_nothing_of_a_removed_text_stays_on_the_disk(path: Path) -> None:
    tokens = text(1, 5000, words=2**32)
    piece = b"".join(token.to_bytes(4, "little") for token in tokens[1000:1004])
    with NgramStore(path) as store:
        store.add("v", "secret", tokens)
        store.add("v", "other", text(2))
        assert any(piece in file.read_bytes() for file in path.parent.iterdir())
        store.remove("secret")
        assert not any(piece in file.read_bytes() for file in path.parent.iterdir())


def test_a_store_is_for_its_owner_alone(path: Path) -> None:
    with NgramStore(path) as store:
        store.add("v", "a", text(1))
        assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_closed_store_says_so(path: Path) -> None:
    store = NgramStore(path)
    store.close()
    store.close()
    with pytest.raises(ClosedError):
        store.documents()


# processes


def add_some(path: Path, name: str, n: int) -> None:
    with NgramStore(path) as store:
        for i in range(n):
            store.add("v", f"{name} {i}", text(i))


def test_processes_add_at_once(path: Path) -> None:
    processes = [FORK.Process(target=add_some, args=(path, name, 30)) for name in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sorted(names(path)) == sorted(f"{name} {i}" for name in "abc" for i in range(30))


def test_another_process_is_waited_for_and_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.store.database._BUSY_SECONDS", 0.01)
    with NgramStore(filled(path)) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is busy"):
            store.add("v", "a", text(1))
        assert store.find("v", text(1)[:10], 5) is not None, "reading goes on"
        other.execute("ROLLBACK")
        store.add("v", "a", text(1))


def add_forever(path: Path) -> None:
    with NgramStore(path, limit=5000) as store:
        for i in range(1_000_000):
            store.add("v", f"{i % 30}", text(i))


def test_a_process_that_is_killed_leaves_whole_documents(path: Path) -> None:
    moments = random.Random(1)
    for _ in range(10):
        process = FORK.Process(target=add_forever, args=(path,))
        process.start()
        time.sleep(moments.uniform(0.02, 0.3))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with NgramStore(path, limit=5000) as store:
            documents = store.documents()  # which raises where one is not whole
            assert sum(document.n_ngrams for document in documents) <= 5000
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            n_lost = "SELECT count(*) FROM ngrams WHERE document NOT IN (SELECT id FROM documents)"
            assert connection.execute(n_lost).fetchone() == (0,)
    assert len(documents) == 12


# damage


def use(path: Path) -> None:
    """Do all that can be done with a store."""
    with NgramStore(path) as store:
        store.stats()
        store.add("v", "new", text(99))
        for i in range(40):
            found = store.find("v", text(i)[:10], 5)
            assert found is None or found.tokens == tuple(text(i)[10:15])
        store.remove("text 3")


def overwrite(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


DAMAGED = r"is damaged: `lcspec store repair` rebuilds it$"


@pytest.mark.parametrize("length", [1, 50, 100, 1000, 4096, 10_000, -4096, -100])
def test_a_store_that_is_cut_short_is_refused_and_repaired(path: Path, length: int) -> None:
    os.truncate(filled(path), length if length > 0 else path.stat().st_size + length)
    with pytest.raises(StoreError, match=DAMAGED):
        use(path)
    assert repair(path) == len(names(path))
    use(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("a letter" * 1000)
    with pytest.raises(StoreError, match=DAMAGED):
        NgramStore(path)
    assert repair(path) == 0
    use(path)


@pytest.mark.parametrize("seed", range(25))
def test_bytes_that_are_overwritten_never_give_a_wrong_text(path: Path, seed: int) -> None:
    choice = random.Random(seed)
    start = choice.randrange(filled(path).stat().st_size)
    overwrite(path, start, choice.randbytes(choice.choice([1, 8, 300])))
    try:
        use(path)
    except StoreError as error:
        assert re.search(DAMAGED, str(error)) or "newer lcspec" in str(error)  # noqa: PT017
        if "newer lcspec" not in str(error):
            repair(path)
            use(path)


def root_of(path: Path, table: str) -> int:
    """Return where the root page of a table is."""
    with sqlite3.connect(path) as connection:
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return int(root - 1) * PAGE


def leaf_with(path: Path, content: bytes) -> int:
    """Return where the page is that has a row with this content."""
    whole = path.read_bytes()
    starts = range(0, len(whole), PAGE)
    return next(start for start in starts if whole[start] == TABLE_LEAF and content in whole[start : start + PAGE])


def test_a_generation_goes_on_without_a_store_that_gets_damaged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = root_of(filled(path), "ngrams")
    with NgramStore(path) as store:
        overwrite(path, root, b"\xff" * PAGE)
        assert store.find("v", text(1)[:10], 5) is None
        assert store.find("v", text(2)[:10], 5) is None
    (record,) = caplog.records
    assert "is not used any more" in record.message
    with pytest.raises(StoreError, match=DAMAGED):
        use(path)
    assert repair(path) == 40
    use(path)


def test_a_text_that_is_not_as_it_was_written_is_not_drafted(path: Path) -> None:
    tokens = text(1, 50_000)
    with NgramStore(path) as store:
        store.add("v", "a", tokens)
        store.add("v", "b", text(2))
    middle = b"".join(token.to_bytes(4, "little") for token in tokens[20_000:20_010])
    overwrite(path, path.read_bytes().index(middle), b"\xff\xff\xff\xff")
    with NgramStore(path) as store:
        assert store.find("v", tokens[100:110], 5) is None
    with NgramStore(path) as store, pytest.raises(StoreError, match=DAMAGED):
        store.documents()
    assert repair(path) == 1
    assert names(path) == ["b"]


def test_documents_behind_a_damaged_page_are_saved_as_they_were(path: Path) -> None:
    filled(path)
    with NgramStore(path) as store:
        store.add("w", "the last", text(50), kind="output")
        before = {document.name: document for document in store.documents()}
    overwrite(path, leaf_with(path, b"text 20"), b"\xff" * PAGE)
    with NgramStore(path) as store, pytest.raises(StoreError, match=DAMAGED):
        store.documents()
    saved = repair(path)
    assert 30 <= saved <= 40
    with NgramStore(path) as store:
        after = store.documents()
        assert len(after) == saved
        for document in after:
            earlier = before[document.name]
            assert (document.added, document.kind) == (earlier.added, earlier.kind)
        assert store.find("w", text(50)[:10], 5) == (tuple(text(50)[10:15]), 10)


def test_a_newer_store_is_left_alone(path: Path) -> None:
    with sqlite3.connect(filled(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    for use_it in (NgramStore, repair):
        with pytest.raises(StoreError, match=r"was written by a newer lcspec \(version 2\): upgrade this one"):
            use_it(path)


def test_another_database_is_not_written_to(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE documents (letter TEXT)")
    for use_it in (NgramStore, repair):
        with pytest.raises(StoreError, match="is a database of something else"):
            use_it(path)


@pytest.mark.parametrize(
    ("place", "problem"),
    [("folder", "is a folder"), ("file/store.sqlite", "can't be made: Not a directory"), ("fifo", "ordinary file")],
)
def test_a_place_where_no_store_can_be_is_named(tmp_path: Path, place: str, problem: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StoreError, match=problem):
        NgramStore(tmp_path / place)
    with pytest.raises(StoreError, match="there is no store to repair"):
        repair(tmp_path / place)


# vocabularies


def digest_of(path: Path) -> str:
    with Model(path, vocabulary_only=True) as model:
        return vocabulary_digest(model)


def test_models_of_one_vocabulary_have_one_digest(tiny_llama: Path, tiny_draft: Path, tmp_path: Path) -> None:
    assert digest_of(tiny_llama) == digest_of(tiny_draft), "but for padding"
    assert digest_of(tiny_llama) != digest_of(tiny.write_model(tmp_path / "words.gguf", changed_token=5))
    assert digest_of(tiny_llama) != digest_of(tiny.write_model(tmp_path / "pre.gguf", pre_tokenizer="default"))


@pytest.mark.real
def test_quantization_does_not_change_the_digest(smollm2: Path, smollm2_q2_k: Path, tiny_llama: Path) -> None:
    assert digest_of(smollm2) == digest_of(smollm2_q2_k) != digest_of(tiny_llama)


# the command


def lcspec(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ("store", *arguments))
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.stderr
    return result


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and an empty store of one's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def add(home: Path, tiny_llama: Path) -> Callable[..., Result]:
    def run(*files: str, status: int = 0) -> Result:
        return lcspec("add", "-m", str(tiny_llama), *files, status=status)

    return run


def test_files_are_kept_listed_and_removed(home: Path, add: Callable[..., Result], tiny_llama: Path) -> None:
    assert "the store is empty" in lcspec("list").stderr
    (home / "a.txt").write_text("Once upon a time")
    (home / "b.txt").write_text("there was")
    assert "a.txt is kept: 16 tokens" in add("a.txt", "b.txt").stderr
    (home / "a.txt").write_text("Once upon a time, again")
    add("a.txt")
    head, *rows = lcspec("list").stdout.splitlines()
    assert head.split() == ["id", "name", "kind", "tokens", "vocabulary", "added"]
    assert [row.split()[1:4] for row in rows] == [
        [str(home / "b.txt"), "file", "9"],
        [str(home / "a.txt"), "file", "23"],
    ]
    first, second = json.loads(lcspec("list", "--json").stdout)
    assert first["vocabulary"] == second["vocabulary"] == digest_of(tiny_llama)
    with NgramStore() as store:
        assert store.find(digest_of(tiny_llama), list(b"Once upon"), 4) == (tuple(b" a t"), 9)
    assert "b.txt is removed" in lcspec("remove", "b.txt").stderr
    assert "nothing.txt is not in the store" in lcspec("remove", "nothing.txt", status=1).stderr
    assert "a.txt is removed" in lcspec("remove", str(second["id"])).stderr
    assert json.loads(lcspec("list", "--json").stdout) == []


def test_statistics_say_how_much_and_where(home: Path, add: Callable[..., Result]) -> None:
    (home / "a.txt").write_text("Once upon a time")
    add("a.txt")
    _, vocabulary, total, where = lcspec("stats").stdout.splitlines()
    assert vocabulary.split()[1:] == total.split()[1:] == ["1", "16", "12"]
    assert str(default_path()) in where
    found = json.loads(lcspec("stats", "--json").stdout)
    assert (found["documents"], found["path"]) == (1, str(default_path()))
    assert found["n_bytes"] >= default_path().stat().st_size


def test_files_that_are_no_text_are_named_and_the_others_kept(home: Path, add: Callable[..., Result]) -> None:
    (home / "binary").write_bytes(b"a\0b" * 100)
    (home / "latin").write_bytes(b"caf\xe9" * 100)
    (home / "folder").mkdir()
    os.mkfifo(home / "fifo")
    (home / "short").write_text("abc")
    (home / "good").write_text("Once upon a time")
    with (home / "large").open("wb") as file:
        file.truncate(1 << 30)
    result = add("absent", "binary", "latin", "folder", "fifo", "large", "short", "good", status=1)
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert errors == [
        "Error: absent can't be read: No such file or directory",
        "Error: binary is a binary file",
        "Error: latin is no text in UTF-8",
        "Error: folder is a folder; name the files in it",
        "Error: fifo is not an ordinary file",
        "Error: large is larger than all that the store holds",
    ]
    assert "short is too short to draft from" in result.stderr
    assert names(default_path()) == [str(home / "good")]


def test_clearing_is_asked_for_on_a_terminal(home: Path, add: Callable[..., Result]) -> None:
    (home / "a.txt").write_text("Once upon a time")
    add("a.txt")
    assert "give --yes" in lcspec("clear", status=2).stderr
    child = pexpect.spawn(sys.executable, ["-m", "lcspec", "store", "clear"], encoding="utf-8")
    child.expect("Remove all documents from")
    child.sendline("n")
    child.expect(pexpect.EOF)
    assert len(names(default_path())) == 1
    assert "the store is empty" in lcspec("clear", "--yes").stderr
    assert names(default_path()) == []


def test_a_damaged_store_is_one_line_and_repaired(home: Path, add: Callable[..., Result]) -> None:
    assert "there is no store to repair" in lcspec("repair", status=1).stderr
    default_path().parent.mkdir(parents=True)
    default_path().write_text("no database")
    for arguments in (["list"], ["stats"], ["remove", "a"], ["clear", "--yes"]):
        result = lcspec(*arguments, status=1)
        assert result.stderr.count("\n") == 1
        assert re.search(DAMAGED, result.stderr.strip())
    assert "the store is rebuilt, with 0 documents" in lcspec("repair").stderr
    lcspec("list")


def test_its_errors_are_those_of_lcspec() -> None:
    assert issubclass(StoreError, LcspecError)


@pytest.mark.real
def test_a_file_of_a_real_model_is_found_again(home: Path, smollm2: Path) -> None:
    (home / "a.txt").write_text("Once upon a time there was a princess <|im_end|> in a tower.\n" * 3)
    lcspec("add", "-m", str(smollm2), "a.txt")
    with Model(smollm2, vocabulary_only=True) as model, NgramStore() as store:
        found = store.find(vocabulary_digest(model), model.tokenize("tale: Once upon a time there was a"), 3)
        assert found is not None
        assert found.match >= 5
        assert model.detokenize(found.tokens) == b" princess <|"
