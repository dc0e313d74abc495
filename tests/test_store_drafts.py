"""Drafts from the store of earlier texts."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from lcspec import SpeculativeLM
from lcspec.cli import main
from lcspec.drafters import LOOKUP_KINDS, LookupDrafter
from lcspec.errors import PromptError, StoreError
from lcspec.planner import MACHINES, curve_of
from lcspec.store import NgramStore

EOG = 9


class Continuation(NamedTuple):
    tokens: tuple[int, ...]
    match: int


class OneText:
    """A store that holds one text and remembers what it was asked."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens
        self.asked: list[list[int]] = []

    def find(self, suffix: Sequence[int], limit: int) -> Continuation:
        self.asked.append(list(suffix))
        return Continuation(self.tokens[:limit], 5)


def drafter(store: OneText, prompt: Sequence[int], max_match: int = 8) -> LookupDrafter:
    found = LookupDrafter(lambda token: token == EOG, 20, min_match=3, max_match=max_match, store=store)
    found.begin(prompt, lambda *_: (0, None))
    return found


def test_the_store_offers_what_followed_in_it() -> None:
    store = OneText(1, 2, 3, EOG, 4)
    offers = drafter(store, range(100, 120)).offers(20)
    assert [draft.tokens for draft in offers] == [(1, 2, 3)], "up to the end of a generation"
    assert store.asked == [list(range(112, 120))], "no more than is told apart"
    assert all(kind in LOOKUP_KINDS for kind in offers[0].kinds)
    assert drafter(store, range(100, 120)).offers(2)[0].tokens == (1, 2)


def test_what_followed_here_and_in_the_store_vote() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 1, 2, 3]
    here, stored = drafter(OneText(4, 5, 7, 8), prompt).offers(4)
    assert (here.tokens, stored.tokens) == ((4, 5, 6, 1), (4, 5, 7, 8))
    assert [kind.split()[3] for kind in stored.kinds] == ["seconded", "seconded", "opposed", "alone"]
    assert here.kinds[:2] == stored.kinds[:2], "one token has one chance"
    assert len(drafter(OneText(4, 5), prompt).offers(4)) == 1, "the same once"


@pytest.fixture
def store(tmp_path: Path) -> NgramStore:
    return NgramStore(tmp_path / "store.sqlite")


@pytest.fixture
def pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let drafts pay at first; whether they do on the machine of the test is another question."""
    monkeypatch.setattr("lcspec.loaded.known_costs", lambda *_: curve_of(MACHINES["gpu"][0]))


@pytest.mark.real
@pytest.mark.usefixtures("pays")
def test_what_was_written_before_is_drafted(smollm2: Path, store: NgramStore) -> None:
    question = [{"role": "user", "content": "How do plants make sugar from light?"}]
    with SpeculativeLM(smollm2, n_ctx=512, exact=True, store=store, learn=True) as lm:
        first = lm.chat(question, max_tokens=160)
    [document] = store.documents()
    assert (document.kind, document.n_tokens) == ("output", len(first.tokens))
    with SpeculativeLM(smollm2, n_ctx=512, exact=True, store=store) as lm:
        again = lm.chat(question, max_tokens=160)
        plain = lm.chat(question, max_tokens=160, drafter="none")
    assert again.tokens == plain.tokens
    assert again.stats.accepted > first.stats.accepted + 10
    assert len(store.documents()) == 1, "nothing is learned without being asked for"


@pytest.mark.real
def test_each_text_that_was_written_is_learned(smollm2: Path, store: NgramStore) -> None:
    with SpeculativeLM(smollm2, n_ctx=256, store=store, learn=True) as lm:
        done = lm.generate("One, two, three,", max_tokens=12)
        with lm.stream("The capital of France", max_tokens=60) as stream:
            taken = "".join(next(stream).text for _ in range(10))
        lm.generate("Yes", max_tokens=2)  # too short
        texts = [lm.target.detokenize(store_tokens(store, i)) for i in range(2)]
    assert texts[0].decode() == done.text
    assert texts[1].decode().startswith(taken), "also where it was ended from outside"
    assert len(store.documents()) == 2


def store_tokens(store: NgramStore, index: int) -> list[int]:
    with closing(sqlite3.connect(store.path)) as database:
        (blob,) = database.execute("SELECT tokens FROM documents ORDER BY id LIMIT 1 OFFSET ?", (index,)).fetchone()
    return [int.from_bytes(blob[i : i + 4], "little") for i in range(0, len(blob), 4)]


def test_learning_needs_a_store(tiny_llama: Path) -> None:
    with pytest.raises(PromptError, match="no store"):
        SpeculativeLM(tiny_llama, threads=1, learn=True)


def test_a_text_is_written_also_where_it_can_not_be_learned(tiny_llama: Path, store: NgramStore) -> None:
    with SpeculativeLM(tiny_llama, threads=1, store=store, learn=True) as lm:
        expected = lm.generate([3, 4, 5], max_tokens=20).tokens
        store.close()
        assert lm.generate([3, 4, 5], max_tokens=20).tokens == expected


@pytest.mark.real
@pytest.mark.usefixtures("pays")
def test_the_command_line_learns_and_drafts(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    command = ["generate", "-m", str(smollm2), "-c", "256", "-n", "100", "--json", "Why do cats purr?"]
    passes = []
    for option in ("--learn", "--store"):
        result = CliRunner().invoke(main, [*command, option])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        passes.append(answer["stats"]["target_passes"])
    assert passes[1] < 0.9 * passes[0]
    assert json.loads(CliRunner().invoke(main, ["store", "stats", "--json"]).stdout)["documents"] == 1


def test_a_damaged_store_is_refused(tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database at all, but long enough to be one" * 100)
    with pytest.raises(StoreError, match="lcspec store repair"):
        NgramStore(tmp_path / "store.sqlite")
