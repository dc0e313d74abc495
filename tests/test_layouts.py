"""Two weight layouts of one file: the sequence moves, and the text stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lcspec import SpeculativeLM
from lcspec.errors import ModelError
from lcspec.layouts import TwoLayouts
from lcspec.llama import Context, Model
from lcspec.planner import BATCH, CostCurve, LayoutChoice

N_CTX = 1024
PROMPT = [(7 * i) % 97 + 300 for i in range(700)]


@pytest.fixture(scope="module")
def engines(smollm2_q4_k_m: Path) -> Iterator[tuple[SpeculativeLM, SpeculativeLM]]:
    """One with a single layout, one with two."""
    with (
        SpeculativeLM(smollm2_q4_k_m, n_ctx=N_CTX, one_layout=True) as one,
        SpeculativeLM(smollm2_q4_k_m, n_ctx=N_CTX) as two,
    ):
        yield one, two


def knowing(other_is_faster: bool, choice: LayoutChoice | None = None) -> LayoutChoice:
    choice = choice or LayoutChoice((CostCurve(), None))
    choice.curves = CostCurve({1: 0.05, 128: 3.0}), None
    for _ in range(5):
        choice.record_batch(0, BATCH, 10.0)
        choice.record_batch(1, BATCH, 5.0 if other_is_faster else 10.0)
        choice.record_move(choice.here, BATCH, 0.01)
    choice.record_loading(0.1)
    return choice


def two_layouts(lm: SpeculativeLM) -> TwoLayouts:
    context = lm._loaded.context
    assert isinstance(context, TwoLayouts)
    return context


@pytest.mark.real
def test_a_long_prompt_is_evaluated_in_the_other_layout_and_the_text_is_the_same(
    engines: tuple[SpeculativeLM, SpeculativeLM],
) -> None:
    one, two = engines
    context = two_layouts(two)
    assert isinstance(one._loaded.context, Context)
    expected = one.generate(PROMPT, max_tokens=24, drafter="lookup")
    knowing(True, context.choice)
    found = two.generate(PROMPT, max_tokens=24)
    assert found.tokens == expected.tokens
    assert found.stats.plan is not None
    assert any(
        "700 tokens of the prompt evaluated with the weights as the file has them" in reason
        for reason in found.stats.plan.reasons
    )
    assert context.layout == 0, "the text is decoded in the first layout"
    assert found.stats.exact == 0, "which is another way of rounding"
    again = two.generate([*PROMPT, *found.tokens[:10]], max_tokens=8)
    assert again.stats.cached_tokens >= len(PROMPT)
    assert again.tokens == expected.tokens[10:18]
    two.clear()


@pytest.mark.real
def test_a_short_prompt_and_a_layout_that_gains_nothing_stay(engines: tuple[SpeculativeLM, SpeculativeLM]) -> None:
    _, two = engines
    context = two_layouts(two)
    two.clear()
    knowing(False, context.choice)
    two.generate(PROMPT, max_tokens=2)
    assert not context.is_mixed
    knowing(True, context.choice)
    for _ in range(5):
        context.choice.record_move(0, 10, 100.0)
    two.clear()
    two.generate(PROMPT[:20], max_tokens=2)
    assert not context.is_mixed


@pytest.mark.real
def test_a_text_moves_where_its_passes_are_cheaper(engines: tuple[SpeculativeLM, SpeculativeLM]) -> None:
    one, two = engines
    expected = one.generate(PROMPT[:300], max_tokens=24, drafter="none")
    context = two_layouts(two)
    two.clear()
    knowing(False, context.choice)
    context.choice.curves = CostCurve({1: 0.05, 128: 3.0}), CostCurve({1: 0.01, 128: 0.5})
    assert two.generate(PROMPT[:300], max_tokens=24, drafter="none").tokens == expected.tokens
    assert context.layout == 0, "only the planner moves a text"
    found = two.generate(PROMPT[:300], max_tokens=24)
    assert found.tokens == expected.tokens
    assert context.layout == 1
    assert "moved between weight layouts" in context.reason()
    two.clear()
    assert context.layout == 0


@pytest.mark.real
def test_without_memory_for_both_there_is_one(
    engines: tuple[SpeculativeLM, SpeculativeLM], smollm2_q4_k_m: Path
) -> None:
    def refuse() -> Context:
        raise ModelError("no memory")

    one, _ = engines
    expected = one.generate(PROMPT, max_tokens=4, drafter="none").tokens
    with Model(smollm2_q4_k_m) as model:
        for load in (refuse, lambda: None):
            context = TwoLayouts(Context(model, N_CTX), load, knowing(other_is_faster=True))
            logits = context.prefill(PROMPT)
            assert int(logits.argmax()) == expected[0]
            assert not context.is_mixed


def test_files_that_are_not_laid_out_anew_have_one_layout(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, threads=1) as lm:
        assert isinstance(lm._loaded.context, Context)


def test_a_sliding_window_has_one_layout(tiny_sliding: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As what is moved could not be truncated like what is there."""
    monkeypatch.setattr("lcspec.llama.model.log.said_repacked", lambda: True)
    with SpeculativeLM(tiny_sliding, n_ctx=200, measure=False) as engine:
        assert not isinstance(engine._loaded.context, TwoLayouts)
    with SpeculativeLM(tiny_sliding, n_ctx=16, measure=False) as engine:
        assert isinstance(engine._loaded.context, TwoLayouts)
