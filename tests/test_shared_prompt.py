"""A draft made of the target's blocks is given the target's keys and values in place of a prefill."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
import tiny
from drafts import write_draft
from prompts import questions

from lcspec import GREEDY, SamplingParams, SpeculativeLM
from lcspec.drafters import ModelDrafter, SharedPrompt
from lcspec.errors import EvaluationError
from lcspec.layouts import TwoLayouts
from lcspec.llama import Context, Model, take_blocks
from lcspec.planner import CostCurve, LayoutChoice, Planner, shipped_priors
from lcspec.rules import RuleName
from lcspec.stats import Stats

N_CTX = 256
PROMPT = list(b"a prompt that the draft model need not evaluate itself, as the target has done that")
LAYERS = 5
ALL = tuple(range(LAYERS))
SAMPLINGS: list[tuple[SamplingParams, RuleName | None]] = [
    (GREEDY, None),
    (SamplingParams(temperature=0.9, seed=3), None),
    (SamplingParams(temperature=1.3, top_k=0, top_p=0.9, repeat_penalty=1.2, seed=4), "coupled"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target."""
    return tiny.write_model(tmp_path_factory.mktemp("targets") / "target.gguf", layers=LAYERS)


@pytest.fixture(scope="module", params=[ALL, (0, 1), (0, 2, 4), (3,)], ids=["all blocks", "the first", "some", "one"])
def layers(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def draft(model: Path, tmp_path_factory: pytest.TempPathFactory, layers: tuple[int, ...]) -> Path:
    return write_draft(model, tmp_path_factory.mktemp("drafts") / "draft.gguf", layers)


class Pair:
    """The contexts of a target, which has evaluated a prompt, and of a draft model, and a drafter."""

    def __init__(self, target: Path, draft: Path) -> None:
        self.target = Context(Model(target), N_CTX, threads=1, repeatable=True)
        self.context = Context(Model(draft), N_CTX, threads=1, repeatable=True)
        shared = SharedPrompt.between(self.target.model.header, self.context.model.header)
        assert shared is not None
        self.shared = shared
        self.shared.source = self.target
        self.drafter = ModelDrafter(self.context, self.target.model.n_vocab, 3, self.shared)
        self.target.prefill(PROMPT[:-1])
        self.drafter.begin(PROMPT, lambda logits, history: (int(np.argmax(logits)), None))

    def close(self) -> None:
        self.target.model.close()
        self.context.model.close()


@pytest.fixture
def pair(model: Path, draft: Path) -> Iterator[Pair]:
    pair = Pair(model, draft)
    yield pair
    pair.close()


def prefilled(draft: Path, tokens: Sequence[int]) -> np.ndarray:
    """Return the cells that a draft model computes itself."""
    with Model(draft) as loaded, Context(loaded, N_CTX, threads=1) as context:
        context.prefill(tokens)
        return context.save().cells


def test_cells_that_need_no_other_block_are_those_of_a_prefill(
    pair: Pair, draft: Path, layers: tuple[int, ...]
) -> None:
    """All blocks, or the first, compute what they computed in the target; others do not."""
    assert pair.drafter.n_behind == 1
    pair.drafter.propose(1)
    assert pair.context.tokens == PROMPT
    pair.context.truncate(len(PROMPT) - 1)
    assert np.array_equal(pair.context.save().cells, prefilled(draft, PROMPT[:-1])) == (layers == ALL[: len(layers)])


def test_a_draft_of_all_blocks_has_the_targets_logits(model: Path, tmp_path: Path) -> None:
    pair = Pair(model, write_draft(model, tmp_path / "all.gguf", ALL))
    pair.shared.move(pair.context, PROMPT[:-1], 0)
    for token in (PROMPT[-1], 5, 200):
        assert np.array_equal(pair.context.evaluate([token]), pair.target.evaluate([token]))
    pair.close()


def test_a_prompt_is_not_evaluated_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[int] = []
    decode = Context._decode

    def counting(self: Context, tokens: Sequence[int], n_logits: int) -> None:
        evaluated.append(len(tokens))
        decode(self, tokens, n_logits)

    monkeypatch.setattr(Context, "_decode", counting)
    draft = pair.drafter.propose(3)
    assert evaluated == [1] * len(draft.tokens)
    assert pair.drafter.moved_seconds > 0


def test_tokens_behind_the_prompt_are_moved_too(pair: Pair) -> None:
    """However few, accepted or not: what the draft model computed itself gives way."""
    committed = list(PROMPT)
    for more in ([1, 2, 3], [7] * 30, [9]):
        drafted = pair.drafter.propose(3).tokens
        emitted = [*drafted[:2], *more]
        pair.target.prefill([committed[-1], *emitted[:-1]])
        committed += emitted
        pair.drafter.commit(emitted)
        assert pair.drafter.n_behind == 1
    pair.drafter.propose(1)
    assert pair.context.tokens == committed
    pair.context.truncate(len(committed) - 1)
    expected = take_blocks(pair.target.save(), LAYERS, pair.shared._blocks)
    assert np.array_equal(pair.context.save().cells, expected.cells)


def test_either_weight_layout_is_moved_from(model: Path, pair: Pair) -> None:
    """Where the sequence is when a draft is wanted."""
    with Model(model) as loaded:
        other = Context(loaded, N_CTX, threads=1, repeatable=True)
        both = TwoLayouts(pair.target, lambda: other, LayoutChoice((CostCurve(), CostCurve())))
        pair.shared.source = both
        committed = list(PROMPT)
        for layout in (0, 1, 1, 0):
            pair.drafter.propose(2)
            both.choice.wanted = layout
            both.evaluate([committed[-1]])
            assert both.layout == layout
            committed.append(7)
            pair.drafter.commit([7])
        pair.drafter.propose(1)
        pair.context.truncate(len(committed) - 1)
        expected = take_blocks(both.save(), LAYERS, pair.shared._blocks)
        assert np.array_equal(pair.context.save().cells, expected.cells)


def test_a_target_that_is_not_where_the_text_is_is_not_moved_from(pair: Pair) -> None:
    pair.target.truncate(5)
    assert pair.drafter.n_behind == len(PROMPT)
    pair.drafter.propose(1)
    assert pair.context.tokens == PROMPT


def test_a_state_of_another_text_is_left_alone(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.target.truncate(len(PROMPT) - 2)
    pair.target.evaluate([0])
    with caplog.at_level(logging.WARNING):
        assert len(pair.drafter.propose(2).tokens) == 2
    assert "evaluates all texts itself: the target's cache holds another text" in caplog.text
    assert pair.context.tokens[: len(PROMPT)] == PROMPT


def test_another_library_makes_the_draft_model_evaluate(
    pair: Pair, draft: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(llama_cpp, "__version__", "9.9.9")
    with caplog.at_level(logging.WARNING):
        pair.drafter.propose(1)
    assert "evaluates all texts itself: the state format of llama-cpp-python 9.9.9 is not known" in caplog.text
    pair.context.truncate(len(PROMPT) - 1)
    assert np.array_equal(pair.context.save().cells, prefilled(draft, PROMPT[:-1]))
    assert pair.drafter.moving_seconds == 0


@pytest.mark.parametrize("damage", ["cut", "noise"])
def test_a_damaged_state_makes_the_draft_model_evaluate(
    pair: Pair, draft: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    whole = pair.target.save()
    noise = np.random.default_rng(0).integers(0, 256, whole.cells.size, dtype=np.uint8)
    state = replace(whole, cells=whole.cells[:-1] if damage == "cut" else noise)
    monkeypatch.setattr(pair.target, "save", lambda start=0: state)
    pair.drafter.propose(1)
    pair.context.truncate(len(PROMPT) - 1)
    assert np.array_equal(pair.context.save().cells, prefilled(draft, PROMPT[:-1]))


def test_cells_of_another_type_are_not_moved(model: Path, draft: Path) -> None:
    with Model(model) as target, Model(draft) as loaded:
        shared = SharedPrompt.between(target.header, loaded.header)
        assert shared is not None
        exact = Context(target, N_CTX, threads=1, batch_invariant=True, repeatable=True)
        assert not shared.works(exact, Context(loaded, N_CTX, threads=1, repeatable=True))
        assert shared.works(exact, Context(loaded, N_CTX, threads=1, batch_invariant=True, repeatable=True))
        assert exact.n_tokens == 0


def test_a_part_of_a_cache_is_appended_to_another(model: Path) -> None:
    with Model(model) as loaded:
        whole, other = (Context(loaded, N_CTX, threads=1, repeatable=True) for _ in range(2))
        whole.prefill(PROMPT)
        for start, end in ((0, 10), (10, 11), (11, 40), (40, len(PROMPT))):
            whole.truncate(end)
            other.append(whole.save(start))
            whole.prefill(PROMPT[end:] or [0])
        assert other.tokens == PROMPT
        whole.truncate(len(PROMPT))
        assert np.array_equal(other.evaluate([5]), whole.evaluate([5]))
        with pytest.raises(EvaluationError, match="does not fit behind 84 others"):
            other.append(whole.save(10))
        assert other.tokens == []
        assert other.n_tokens == 0
        with pytest.raises(EvaluationError, match="has no room for a second sequence"):
            Context(loaded, N_CTX, threads=1).append(whole.save())


def test_a_part_does_not_fit_a_smaller_cache(model: Path) -> None:
    with Model(model) as loaded:
        whole, small = (Context(loaded, n, threads=1, repeatable=True) for n in (N_CTX, 50))
        whole.prefill(PROMPT)
        small.prefill(PROMPT[:10])
        with pytest.raises(EvaluationError, match="does not fit behind 10 others"):
            small.append(whole.save(10))
        assert small.n_tokens == 0


def test_only_a_draft_of_this_very_target_shares(model: Path, tiny_draft: Path, tmp_path: Path) -> None:
    with Model(model) as target, Model(tiny_draft) as other:
        assert SharedPrompt.between(target.header, other.header) is None
        with Model(write_draft(model, tmp_path / "of.gguf", [0], of="0" * 64)) as foreign:
            assert SharedPrompt.between(target.header, foreign.header) is None


def test_a_sliding_window_makes_the_draft_model_evaluate(tiny_sliding: Path, tmp_path: Path) -> None:
    """Its state has two caches."""
    draft = write_draft(tiny_sliding, tmp_path / "sliding.gguf", (0, 1))
    with SpeculativeLM(tiny_sliding, draft, n_ctx=N_CTX, threads=1) as lm:
        assert lm._loaded.draft.shared is None
        plain = lm.generate("some text", max_tokens=40, drafter="none")
        assert lm.generate("some text", max_tokens=40, drafter="model").tokens == plain.tokens


@pytest.mark.parametrize("exact", [False, True])
def test_the_text_is_the_same_in_every_rule(model: Path, draft: Path, exact: bool) -> None:
    with SpeculativeLM(model, draft, n_ctx=N_CTX, threads=1, exact=exact) as lm:
        assert lm._loaded.draft.shared is not None
        for sampling, rule in SAMPLINGS:
            prompt = bytes(PROMPT).decode()
            lm.clear()
            plain = lm.generate(prompt, max_tokens=60, sampling=sampling, drafter="none", logprobs=1)
            for drafter in ("model", "auto"):
                lm.clear()
                found = lm.generate(
                    prompt,
                    max_tokens=60,
                    sampling=sampling,
                    rule=rule,
                    drafter=drafter,
                    logprobs=1,  # type: ignore[arg-type]
                )
                assert found.tokens == plain.tokens
                assert not exact or (found.logprobs == plain.logprobs and found.stats.exact)


def test_a_draft_of_all_blocks_is_always_right(model: Path, tmp_path: Path) -> None:
    """By rejection, too: the draft's distribution is the target's."""
    draft = write_draft(model, tmp_path / "all.gguf", ALL)
    with SpeculativeLM(model, draft, n_ctx=N_CTX, threads=1) as lm:
        for sampling, rule in ((GREEDY, None), (SamplingParams(temperature=0.9, seed=5), "rejection")):
            lm.clear()
            found = lm.generate(
                bytes(PROMPT).decode(),
                max_tokens=60,
                sampling=sampling,
                rule=rule,
                drafter="model",  # type: ignore[arg-type]
            )
            assert found.stats.accepted == found.stats.drafted > 0


def test_a_later_turn_is_moved_too(model: Path, draft: Path) -> None:
    with SpeculativeLM(model, draft, n_ctx=N_CTX, threads=1, measure=False) as lm:
        first = lm.generate(PROMPT, max_tokens=30, drafter="none")
        lm.generate([*PROMPT, *first.tokens, *PROMPT[:40]], max_tokens=10, drafter="model")
        assert lm._loaded.draft.shared is not None
        assert len(lm._loaded.draft.shared._per_cell) > 1, "it was measured"


def test_the_planner_counts_what_moving_takes() -> None:
    """A model that is given its cells need not be worth a prefill."""
    target, draft = CostCurve({1: 0.02, 16: 0.03}), CostCurve({1: 0.002, 128: 0.2})

    def first(behind: int, moving: float) -> str:
        planner = Planner(target, shipped_priors(), draft)
        planner.begin()
        return planner.plan([], 4000, 60, behind, moving).drafter

    assert first(4000, 0.0) == "none"
    assert first(1, 0.001) == "model"
    assert first(1, 10.0) == "none"


def test_what_moving_took_is_no_cost_of_the_draft_models_passes() -> None:
    planner = Planner(CostCurve({1: 0.02, 16: 0.03}), shipped_priors(), CostCurve({1: 0.002, 128: 0.2}))
    planner.begin()
    for _ in range(20):
        planner.record_drafting(1, 2, 1000, 0.504, 0.5)
    assert planner.model is not None
    assert planner.model.seconds(1, 1000, planner.target) == pytest.approx(0.002)
    assert planner.model.take_invested() == pytest.approx(0.5)


@pytest.mark.real
def test_smollm2_without_some_blocks_is_more_often_right_behind_a_shared_prompt(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [block for block in range(30) if block not in (10, 14, 18, 22)]
    draft = write_draft(smollm2, tmp_path / "blocks.gguf", kept)
    rates = {}
    for shares in (True, False):
        if not shares:
            monkeypatch.setattr(SharedPrompt, "between", lambda *_: None)
        with SpeculativeLM(smollm2, draft, n_ctx=1024, measure=False) as lm:
            total = Stats()
            for question in questions(6):
                prompt = lm.chat_prompt([{"role": "user", "content": question}])
                total += lm.generate(prompt, max_tokens=32, drafter="model").stats
            rates[shares] = total.acceptance_rate
    assert rates[True] >= rates[False]
