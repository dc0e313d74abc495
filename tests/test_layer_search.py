"""The search for blocks that a draft can do without: bounded, repeatable, resumable, and better than no search."""

import itertools
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from lcspec.draft_measuring import acceptance_by_depth
from lcspec.errors import FileError, ModelError, PromptError
from lcspec.gguf_edit import keep_layers, read_gguf, write_gguf
from lcspec.layer_search import (
    Budget,
    CutCosts,
    Found,
    KeptScores,
    Sample,
    Score,
    Scorer,
    SwitchedBlocks,
    Texts,
    agreed_tokens,
    check_likeness,
    frontier_of,
    search,
    text_digest,
)
from lcspec.llama import Context, Header, Model, read_header, take_blocks
from lcspec.planner import MACHINES, curve_of

LAYERS = 6
TOKENS = list(b"some tokens to evaluate")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Header:
    return read_header(tiny.write_model(tmp_path_factory.mktemp("model") / "m.gguf", layers=LAYERS))


# switching blocks off and on


def test_blocks_that_were_switched_off_come_back_to_the_bit(target: Header, tmp_path: Path) -> None:
    before = target.files[0].read_bytes()
    with SwitchedBlocks(target, 64, 1, tmp_path) as blocks:
        whole = blocks.context.prefill(TOKENS).copy()
        for skipped in ([0], [0, 1, 2], [5], range(LAYERS)):
            blocks.skip(skipped)
            blocks.context.clear()
            assert not np.array_equal(blocks.context.prefill(TOKENS), whole)
        blocks.skip(())
        blocks.context.clear()
        assert np.array_equal(blocks.context.prefill(TOKENS), whole)
    assert target.files[0].read_bytes() == before


def test_the_copy_leaves_nothing_behind_even_while_it_is_used(target: Header, tmp_path: Path) -> None:
    with SwitchedBlocks(target, 64, 1, tmp_path):
        assert list(tmp_path.iterdir()) == []


def test_the_copy_of_a_process_that_was_killed_goes(target: Header, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    for number in (process.pid, os.getpid()):
        (tmp_path / f".search-{number}-abc").mkdir()
    with SwitchedBlocks(target, 64, 1, tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [f".search-{os.getpid()}-abc"]


def test_where_switching_does_not_show_no_search_is_possible(
    target: Header, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SwitchedBlocks, "skip", lambda self, blocks: None)
    with pytest.raises(ModelError, match="can't be searched here"):
        SwitchedBlocks(target, 64, 1, tmp_path)


def test_a_full_disk_is_told_before_anything_is_copied(
    target: Header, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(1000))
    with pytest.raises(FileError, match="a copy of the model of 0 MB is needed, and 0 MB are free on the disk of"):
        SwitchedBlocks(target, 64, 1, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [kind for kind in gguf.GGMLQuantizationType if kind in gguf.quants._type_traits])
def test_zero_bytes_are_zeros_in_every_type(kind: gguf.GGMLQuantizationType) -> None:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    assert not gguf.quants.dequantize(np.zeros((2, size), dtype=np.uint8), kind).any()
    assert block > 0


# blocks that depend on their number


def test_blocks_of_an_architecture_that_is_not_known_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a Gemma 2 model, of whose windows we pretend not to know, blocks at other places do something else."""
    path = tiny.write_model(tmp_path / "gemma.gguf", "gemma2", layers=4)
    header = read_header(path)
    check_likeness(header, [0, 1], 1, tmp_path)
    check_likeness(header, [0, 3], 1, tmp_path)
    monkeypatch.setattr("lcspec.gguf_edit.layers._check_windows", lambda *_: None)
    with pytest.raises(ModelError, match="what a block does in a gemma2 model depends on its number"):
        check_likeness(header, [0, 2], 1, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["gemma.gguf"]


# scores


def test_the_whole_target_foretells_itself(target: Header, tmp_path: Path) -> None:
    samples = Texts(target, (), 1).searched
    with SwitchedBlocks(target, 300, 1, tmp_path) as blocks, Scorer(blocks, samples, 1) as score:
        assert score([]).agreement > 0.95, "another width of a pass rounds differently, and tiny models are undecided"
        assert score([3]).agreement < 0.8
        assert score([]) == score([]), "a score leaves nothing behind"
        deep = np.concatenate(score.right([], 4))
        assert deep.mean() > 0.95
        assert len(deep) == sum(len(sample.written) - 3 for sample in samples)


def test_a_set_is_scored_as_a_file_without_these_blocks_drafts(target: Header, tmp_path: Path) -> None:
    """From each place on, such a file is given the target's keys and values of all before, and drafts."""
    samples = Texts(target, (), 1).judged[:2]
    skipped, kept = {1, 4}, [0, 2, 3, 5]
    with SwitchedBlocks(target, 300, 1, tmp_path) as blocks, Scorer(blocks, samples, 1) as score:
        found = score.right(skipped, 3)
    path = tmp_path / "cut.gguf"
    with path.open("wb") as file:
        write_gguf(file, keep_layers(read_gguf(target), kept))
    with (
        Model(target, repack=False) as model,
        Model(path, repack=False) as cut,
        Context(model, 300, threads=1) as whole,
        Context(cut, 300, threads=1) as context,
    ):
        expected = []
        for sample in samples:
            text = [*sample.prompt, *sample.written]
            whole.clear()
            whole.prefill(text)
            cells = take_blocks(whole.save(), LAYERS, kept)
            for place in range(len(sample.prompt) - 1, len(text) - 3):
                context.restore(cells)
                context.truncate(place)
                rows = context.evaluate(text[place : place + 3])
                expected.append(rows.argmax(axis=1) == text[place + 1 : place + 4])
    assert np.mean(np.concatenate(found) == np.array(expected)) > 0.97, "passes of other widths round differently"


def test_what_a_target_writes_is_remembered(target: Header, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Texts(target, ["word " * 200], 1)
    assert first.searched
    assert text_digest(first.searched) != text_digest(first.judged)
    monkeypatch.setattr("lcspec.layer_search.calibration.SpeculativeLM", None)
    again = Texts(target, ["word " * 200], 1)
    assert (again.searched, again.judged) == (first.searched, first.judged)


def test_a_text_of_a_few_words_is_too_little(target: Header) -> None:
    with pytest.raises(PromptError, match="the texts have 5 tokens, too few to search by: 64 are the least"):
        _ = Texts(target, ["a few"], 1).searched


def test_samples_longer_than_a_pass_are_judged_to_their_ends(target: Header, tmp_path: Path) -> None:
    text = tuple(range(32, 232))
    with SwitchedBlocks(target, 300, 1, tmp_path) as blocks:
        blocks.context.prefill(TOKENS[:-1])
        assert len(agreed_tokens(blocks.context, Sample(tuple(TOKENS), text))) == 200
        with Scorer(blocks, [Sample(tuple(TOKENS), text)], 1) as score:
            assert score.right([2], 1)[0].shape == (200, 1)


@settings(max_examples=200)
@given(st.lists(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=9), min_size=1, max_size=4))
def test_acceptance_by_depth_is_that_of_drafts_that_were_right_before(texts: list[list[list[bool]]]) -> None:
    found = acceptance_by_depth([np.array(text, dtype=bool).reshape(-1, 3) for text in texts])
    drafts = [draft for text in texts for draft in text]
    for depth in range(3):
        reached = [draft for draft in drafts if all(draft[:depth])]
        if not reached:
            assert len(found) == depth
            return
        assert found[depth] == pytest.approx(sum(draft[depth] for draft in reached) / len(reached))


# the search


class Blocks:
    """Blocks of which each is missed by so much, and neighbours together by more; counts how often it is asked."""

    def __init__(self, n: int = 16, seed: int = 0) -> None:
        self.n = n
        self.asked = 0
        self.missed = np.random.default_rng(seed).uniform(0.01, 0.2, n)

    def __call__(self, skipped: frozenset[int]) -> Score:
        self.asked += 1
        together = sum(0.05 for block in skipped if block + 1 in skipped)
        value = max(0.0, 1.0 - float(self.missed[sorted(skipped)].sum()) - together)
        return Score(value, value)


def test_a_search_finds_better_sets_than_every_second_block() -> None:
    for seed in range(5):
        blocks = Blocks(seed=seed)
        found = search(blocks.n, blocks, known={}, budget=Budget(200))
        for count, (skipped, score) in found.best.items():
            assert len(skipped) == count
            if count:
                evenly = frozenset(int((i + 0.5) * blocks.n / count) for i in range(count))
                assert score.value >= Blocks(seed=seed)(evenly).value


def test_a_search_of_few_blocks_finds_the_best_sets_there_are() -> None:
    blocks = Blocks(7)
    found = search(7, blocks, known={}, budget=Budget(127))
    for count in range(1, 4):
        best = max(blocks(frozenset(some)).value for some in itertools.combinations(range(7), count))
        assert found.best[count][1].value == pytest.approx(best)


@pytest.mark.parametrize("sets", [1, 2, 16, 17, 60, 200])
def test_a_search_tries_no_more_sets_than_it_may(sets: int) -> None:
    blocks = Blocks()
    assert search(16, blocks, known={}, budget=Budget(sets)).tried == blocks.asked == sets


def test_a_search_ends_where_there_is_nothing_more_to_try() -> None:
    blocks = Blocks(3)
    assert search(3, blocks, known={}, budget=Budget(10_000)).tried <= 8


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 119), st.integers(0, 5))
def test_a_search_that_was_ended_goes_on_as_if_it_had_not_been(asked: int, seed: int) -> None:
    class Ended(Exception):
        pass

    def until(skipped: frozenset[int]) -> Score:
        if first.asked == asked:
            raise Ended
        return first(skipped)

    whole, first, rest = Blocks(), Blocks(), Blocks()
    expected = search(16, whole, known={}, budget=Budget(120), seed=seed)
    known: dict[frozenset[int], Score] = {}
    with pytest.raises(Ended):
        search(16, until, known=known, budget=Budget(120), seed=seed)
    again = search(16, rest, known=known, budget=Budget(120), seed=seed)
    assert again.best == expected.best
    assert first.asked + rest.asked == whole.asked


def test_other_seeds_try_other_sets() -> None:
    tried = []
    for seed in (1, 1, 2):
        known: dict[frozenset[int], Score] = {}
        search(16, Blocks(), known=known, budget=Budget(150), seed=seed)
        tried.append(list(known))
    assert tried[0] == tried[1] != tried[2]


def test_a_wanted_number_of_blocks_is_reached_however_small_the_budget() -> None:
    for sets in (1, 5, 20, 100):
        found = search(16, Blocks(), known={}, budget=Budget(sets), wanted=9)
        assert len(found.best[9][0]) == 9
        assert max(found.best) == 9


def test_time_ends_a_search() -> None:
    found = search(16, Blocks(), known={}, budget=Budget(None, 1e-9), wanted=4)
    assert (found.tried, list(found.best)) == (0, [4])


def test_scores_are_kept() -> None:
    samples = [Sample((1, 2), (3, 4))]
    kept = KeptScores("target", samples)
    kept.scores[frozenset()] = Score(1.0, 0.5)
    kept.scores[frozenset([3, 11])] = Score(0.25, 0.125)
    kept.keep()
    assert KeptScores("target", samples).scores == kept.scores
    assert KeptScores("another", samples).scores == {}
    assert KeptScores("target", [Sample((1, 2), (3, 5))]).scores == {}


# the frontier


def test_the_point_that_brings_most_depends_on_what_passes_cost() -> None:
    found = Found()
    for count, agreement in enumerate([1.0, 0.95, 0.9, 0.85, 0.6, 0.5, 0.45, 0.4, 0.35]):
        found.record(frozenset(range(count)), Score(agreement, agreement))
    costs = CutCosts(0.1, 0.9 / 10)
    chosen = {
        name: frontier_of(found, 10, costs, curve_of(MACHINES[name][0])).best for name in ("2-cores-avx512", "gpu")
    }
    assert not chosen["2-cores-avx512"].gain.pays
    assert chosen["gpu"].gain.speed > chosen["2-cores-avx512"].gain.speed
    assert all(point.cost == pytest.approx(0.1 + 0.09 * len(point.kept)) for point in chosen.values())


def test_a_budget_for_nothing_is_told() -> None:
    with pytest.raises(PromptError, match="the budget is too small to leave out a single block"):
        frontier_of(search(16, Blocks(), known={}, budget=Budget(1)), 16, CutCosts(0, 0.1), curve_of({1: 1.0}))
