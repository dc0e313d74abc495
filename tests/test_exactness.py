"""Bit for bit the text of plain decoding: how wide passes may be, what is remembered, and what is said."""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lcspec import GREEDY, LcspecWarning, ModelError, SamplingParams, SpeculativeLM
from lcspec.drafters import NO_DRAFT, Draft
from lcspec.exactness import ExactCells, LoadOptions, exact_widths, fastest_exact_options, known_widths
from lcspec.llama import NOT_PROBED, Context, ExactWidths, Model, probe_exact_widths, read_header
from lcspec.loop import Pass
from lcspec.measurements import Measurements

STORY = "The fox ran to the river. The fox ran to the river. The fox"


@pytest.fixture(autouse=True)
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of measurements, empty."""
    monkeypatch.setattr("lcspec.measurements.user_cache_path", lambda name: tmp_path)
    return tmp_path / "measured"


# probing


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_sliding"])
def test_with_a_batch_invariant_cache_a_q8_0_model_is_exact_at_any_depth(
    request: pytest.FixtureRequest, name: str
) -> None:
    with Model(request.getfixturevalue(name)) as model:
        widths = probe_exact_widths(model, threads=1, batch_invariant=True, seconds=0)
    assert widths.deep >= 16
    assert widths.shallow >= 16


def test_a_model_that_cannot_be_truncated_is_not_probed(tiny_recurrent: Path) -> None:
    with Model(tiny_recurrent) as model:
        assert probe_exact_widths(model, threads=1) == NOT_PROBED


@pytest.mark.real
def test_with_the_default_cache_a_lone_token_differs_beyond_256_tokens(smollm2: Path) -> None:
    """The probe can see: llama.cpp takes another path for one token once the cache is longer."""
    with Model(smollm2) as model:
        widths = probe_exact_widths(model, seconds=0)
        assert widths.shallow >= 16
        assert widths.deep == 1
        tokens = model.tokenize(STORY * 30)[:310]
        with Context(model, 400) as context:
            context.prefill(tokens[:300])
            alone = np.stack([context.evaluate([token])[0].copy() for token in tokens[300:304]])
            context.truncate(300)
            assert not np.array_equal(context.evaluate(tokens[300:304]), alone)


@pytest.mark.real
def test_copies_of_a_cache_count_as_a_deep_context(smollm2: Path) -> None:
    with Model(smollm2) as model, Context(model, 400, repeatable=True) as context:
        tokens = model.tokenize(STORY * 10)[:100]
        context.prefill(tokens)
        assert context.repeat(2)
        assert context.tokens == tokens * 3
        assert context.n_tokens == 300
        copied = context.evaluate([tokens[0]])[0].copy()
        context.clear()
        context.prefill(tokens * 3)
        evaluated = context.evaluate([tokens[0]])[0]
        assert np.corrcoef(copied, evaluated)[0, 1] > 0.9, "copies saw less than what they repeat, but alike"


# which cells are exact


def a_pass(reused: int, drafted: int, evaluated: int | None = None) -> Pass:
    draft = Draft((0,) * drafted, "lookup") if drafted else NO_DRAFT
    return Pass(draft, 0, (0,), (), reused, evaluated or drafted + 1, 0.0)


def test_passes_within_the_widths_are_exact() -> None:
    cells = ExactCells(ExactWidths(shallow=4, deep=2))
    assert cells.record(a_pass(0, 0, evaluated=200))  # a prompt
    assert cells.record(a_pass(200, 3))
    assert cells.record(a_pass(252, 3))
    assert cells.record(a_pass(256, 1))
    assert cells.record(a_pass(300, 0))


def test_what_follows_a_pass_that_was_too_wide_is_not_exact() -> None:
    cells = ExactCells(ExactWidths(shallow=4, deep=2))
    cells.record(a_pass(0, 0, evaluated=200))
    assert not cells.record(a_pass(200, 4))
    assert not cells.record(a_pass(201, 0))
    assert not cells.record(a_pass(201, 0, evaluated=50)), "a prompt that keeps such a cell"
    assert cells.record(a_pass(200, 0, evaluated=50)), "and one that does not"
    assert not cells.record(a_pass(253, 3)), "a pass that ends beyond the shallow context"


# what is remembered


def test_widths_are_probed_once(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, measured: Path) -> None:
    options = LoadOptions(repack=True, batch_invariant=True, threads=1)
    header = read_header(tiny_llama)
    assert known_widths(header, options) == NOT_PROBED
    with Model(header) as model:
        widths = exact_widths(model, options)
        monkeypatch.setattr("lcspec.exactness.probe_exact_widths", lambda *_, **__: pytest.fail("probed again"))
        assert exact_widths(model, options) == known_widths(header, options) == widths
        for other in (
            replace(options, threads=2),
            replace(options, repack=False),
            replace(options, batch_invariant=False),
        ):
            assert known_widths(header, other) == NOT_PROBED
    (file,) = measured.iterdir()
    whole = json.loads(file.read_text())
    results = [None, [], "x", {}, {"shallow": 3}, {"shallow": "3", "deep": "3"}, {"shallow": 0, "deep": 3}]
    results += [{"shallow": 3, "deep": 500}, {"shallow": 3.5, "deep": 3}, {"shallow": True, "deep": 3}]
    contents = [json.dumps(whole | {"result": result}).encode() for result in results]
    for broken in (b"", b"{", b"[]", b"[" * 200_000, b'{"conditions": 1, "result": 2}', b"\xff", *contents):
        file.write_bytes(broken)
        assert known_widths(header, options) == NOT_PROBED


def test_another_file_has_widths_of_its_own(tiny_llama: Path, tiny_draft: Path) -> None:
    options = LoadOptions(repack=True, batch_invariant=True, threads=1)
    with Model(tiny_llama) as model:
        exact_widths(model, options)
    assert known_widths(read_header(tiny_draft), options) == NOT_PROBED


def test_what_cannot_be_kept_is_measured_again(tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    measurements = Measurements({"file": "x"}, blocked / "below")
    measurements.keep("kind", 1)
    assert measurements.recall("kind") is None


def test_measurements_are_told_apart_by_kind_and_conditions(tmp_path: Path) -> None:
    measurements = Measurements({"file": "x"}, tmp_path)
    measurements.keep("kind", {"a": [1, 2.5]}, threads=2)
    assert measurements.recall("kind", threads=2) == {"a": [1, 2.5]}
    assert measurements.recall("kind", threads=3) is None
    assert measurements.recall("other", threads=2) is None
    assert Measurements({"file": "y"}, tmp_path).recall("kind", threads=2) is None


def test_threads_can_keep_the_same_measurement(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measurements = Measurements({"file": "x"}, tmp_path)
    measurements.keep("kind", 1)
    found: list[Any] = []

    def keep_and_recall() -> None:
        for _ in range(100):
            measurements.keep("kind", 1)
            found.append(measurements.recall("kind"))

    threads = [threading.Thread(target=keep_and_recall) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {1}
    assert caplog.text == ""
    assert len(list(tmp_path.iterdir())) == 1


def test_that_only_lone_tokens_are_exact_is_remembered_too(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = LoadOptions(repack=True, batch_invariant=True, threads=1)
    monkeypatch.setattr("lcspec.exactness.probe_exact_widths", lambda *_, **__: ExactWidths(1, 1))
    with Model(tiny_llama) as model:
        exact_widths(model, options)
        monkeypatch.setattr("lcspec.exactness.probe_exact_widths", lambda *_, **__: pytest.fail("probed again"))
        assert exact_widths(model, options) == ExactWidths(1, 1)


def test_without_memory_for_both_layouts_one_is_taken(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bool:
        raise ModelError("no memory")

    monkeypatch.setattr("lcspec.exactness._is_faster_repacked", fail)
    assert fastest_exact_options(read_header(tiny_llama), 1).repack
    monkeypatch.undo()


def test_load_options_are_chosen_once(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = read_header(tiny_llama)
    chosen = fastest_exact_options(header, 1)
    assert chosen.batch_invariant
    monkeypatch.setattr("lcspec.exactness.Model", lambda *_, **__: pytest.fail("loaded again"))
    assert fastest_exact_options(header, 1) == chosen


# engines


def test_an_engine_says_from_where_a_text_is_not_known_to_be_exact(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, threads=1) as lm:
        plain = lm.generate(STORY, max_tokens=60, drafter="none")
        assert plain.stats.exact is True
        drafted = lm.generate(STORY, max_tokens=60, drafter="lookup")
        first_wide = drafted.stats.exact
        assert first_wide is not True, "nothing was probed"
        assert drafted.tokens == plain.tokens
        assert lm.generate(STORY, max_tokens=3, drafter="none").stats.exact is True, "the inexact cells are gone"


def test_an_engine_knows_what_was_probed_before(tiny_llama: Path) -> None:
    options = LoadOptions(repack=True, batch_invariant=False, threads=1)
    with Model(tiny_llama) as model:
        exact_widths(model, options)
    with SpeculativeLM(tiny_llama, drafter="lookup", threads=1, draft_tokens=6) as lm:
        completion = lm.generate(STORY, max_tokens=60)
        assert completion.stats.drafted > 0
        assert completion.stats.exact is True
    with SpeculativeLM(tiny_llama, drafter="lookup", threads=2, draft_tokens=6) as lm:
        assert lm.generate(STORY, max_tokens=60).stats.exact is not True, "with other threads it is another matter"


def test_an_exact_engine_stays_within_the_probed_width(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.exactness.probe_exact_widths", lambda *_, **__: ExactWidths(5, 3))
    with SpeculativeLM(tiny_llama, drafter="lookup", exact=True, draft_tokens=9) as lm:
        completion = lm.generate(STORY, max_tokens=60)
    assert completion.stats.exact is True
    assert completion.stats.drafted > 0
    assert all(share.drafted <= 2 * share.drafts for share in completion.stats.drafters.values())


def test_where_only_lone_tokens_are_exact_speculation_is_off(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.exactness.probe_exact_widths", lambda *_, **__: NOT_PROBED)
    with pytest.warns(LcspecWarning, match="gives the same bits one token at a time only: exact means no drafts"):
        lm = SpeculativeLM(tiny_llama, exact=True)
    with lm:
        stats = lm.generate(STORY, max_tokens=40).stats
    assert stats.drafted == 0
    assert stats.exact is True


# the same text, again and again

SAMPLINGS = [
    GREEDY,
    SamplingParams(temperature=0.0, repeat_penalty=1.3, presence_penalty=0.5),
    SamplingParams(temperature=0.7, top_p=0.9, top_k=0, min_p=0.0, seed=1),
    SamplingParams(temperature=1.2, repeat_penalty=1.1, frequency_penalty=0.2, logit_bias={32: -2.0}, seed=2),
]


@pytest.fixture(scope="module")
def exact_tiny(tiny_llama: Path, tiny_draft: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpeculativeLM]:
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("measured")
    patch.setattr("lcspec.measurements.user_cache_path", lambda name: folder)
    with SpeculativeLM(tiny_llama, tiny_draft, n_ctx=512, exact=True, threads=1) as lm:
        yield lm
    patch.undo()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "penalties", "0.7", "1.2"])
def test_one_seed_gives_one_text_whoever_drafts(exact_tiny: SpeculativeLM, sampling: SamplingParams) -> None:
    for number in range(15):
        prompt = STORY + "x" * number
        texts = []
        for drafter in exact_tiny._loaded.drafters:
            exact_tiny.clear()
            completion = exact_tiny.generate(prompt, max_tokens=50, sampling=sampling, drafter=drafter, logprobs=3)
            assert completion.stats.exact is True
            texts.append((completion.tokens, completion.logprobs))
        assert all(text == texts[0] for text in texts)


def conversation(lm: SpeculativeLM, drafter: Any, stop: list[str], read: int | None) -> list[tuple[int, ...]]:
    """Three turns on one cache, each with the text before it; `read` pieces of each if not all."""
    lm.clear()
    history = lm.target.tokenize(STORY)
    texts = []
    for turn in range(3):
        with lm.stream(history, max_tokens=40, stop=stop, drafter=drafter) as stream:
            tokens: list[int] = []
            for piece in stream:
                tokens += piece.tokens
                if read is not None and len(tokens) >= read:
                    break
            if read is None:
                tokens = list(stream.completion.tokens)
        texts.append(tuple(tokens[:read]))
        history = [*history, *tokens[:read], *lm.target.tokenize(f" and then {turn} ")]
    return texts


@pytest.mark.parametrize("stop", [[], ["e"], ["q", "z"]])
def test_later_turns_on_a_reused_cache_are_the_same(exact_tiny: SpeculativeLM, stop: list[str]) -> None:
    plain = conversation(exact_tiny, "none", stop, None)
    for drafter in ("lookup", "model", "auto"):
        assert conversation(exact_tiny, drafter, stop, None) == plain
