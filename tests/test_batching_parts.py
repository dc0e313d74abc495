"""The parts of batching that need no model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.batching.prediction import Prediction
from lcspec.batching.prefill import PromptPasses, PromptPlan, longest_with_drafts
from lcspec.planner import CostCurve

CURVE = CostCurve({1: 0.008, 2: 0.012, 8: 0.031, 16: 0.058, 64: 0.2, 128: 0.4})


@given(st.integers(1, 64))
def test_no_pass_that_texts_wait_for_takes_long(n_texts: int) -> None:
    width = PromptPasses().longest(CURVE, 100, n_texts, 512)
    assert width >= n_texts
    assert width == n_texts or CURVE.seconds(width, 100) < 0.2
    assert width < 128


@given(st.floats(0.4, 3.0))
def test_how_long_passes_take_is_learned_from_them(proportion: float) -> None:
    passes = PromptPasses()
    for _ in range(60):
        width = passes.longest(CURVE, 0, 2, 512)
        passes.record(CURVE, width, 0, proportion * CURVE.seconds(width))
    assert 0.12 < proportion * CURVE.seconds(passes.longest(CURVE, 0, 2, 512)) < 0.2


def test_before_anything_is_known_of_costs_prompts_come_in_small_parts() -> None:
    assert PromptPasses().longest(CostCurve(), 0, 3, 512) == 32
    learned = CostCurve()
    learned.record(1, 0, 0.008)
    assert 16 <= PromptPasses().longest(learned, 0, 3, 512) <= 40


def test_a_slow_model_still_gets_on_with_its_prompts() -> None:
    slow = CostCurve({1: 0.3, 128: 9.0})
    assert PromptPasses().longest(slow, 0, 2, 512) > 20


@given(st.floats(0.4, 3.0))
def test_whole_tiles_are_taken_where_they_take_about_as_long(proportion: float) -> None:
    passes = PromptPasses()
    for _ in range(60):
        width = passes.longest_in_tiles(CURVE, 0, 512, 0.03)
        passes.record(CURVE, width, 0, proportion * CURVE.seconds(width))
    width = passes.longest_in_tiles(CURVE, 0, 512, 0.03)
    assert width % 64 == 0 or width < 64
    assert 0.03 + proportion * CURVE.seconds(width) < 0.2
    assert passes.longest_in_tiles(CURVE, 0, 40, 0.03) <= 40


@pytest.mark.parametrize(("beside", "is_mixed"), [(1.0, True), (1.6, False)])
def test_prompts_are_beside_texts_or_alone_as_is_faster(beside: float, is_mixed: bool) -> None:
    plan, chosen = PromptPlan(), []
    for _ in range(200):
        n, mixed = plan.n_tokens(CURVE, 0, 6, 10_000, (512, 512))
        chosen.append(mixed)
        if mixed:
            plan.beside.record(CURVE, n + 6, 0, beside * CURVE.seconds(n + 6))
        else:
            plan.alone.record(CURVE, n, 0, CURVE.seconds(n))
    assert chosen[0], "which reads the weights once"
    assert chosen.count(is_mixed) > 180
    assert len(set(chosen)) == (1 if is_mixed else 2), "what was slower is tried again, now and then"


@given(st.integers(1, 8), st.floats(0, 0.15))
def test_drafts_let_nobody_wait_for_long(n_texts: int, waited: float) -> None:
    width = longest_with_drafts(CURVE, 100, n_texts, waited, 128)
    assert width == n_texts or waited + CURVE.seconds(width, 100) < 0.2
    assert width < 128
    assert longest_with_drafts(CURVE, 100, n_texts, waited, 10) <= 10
    assert longest_with_drafts(CostCurve(), 100, n_texts, waited, 128) == 128


def test_no_more_of_prompts_is_planned_than_there_is() -> None:
    assert PromptPlan().n_tokens(CURVE, 0, 3, 5, (512, 512)) == (5, True)


PREDICTED = list(range(100))


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        (PREDICTED, 100),
        (PREDICTED[:40], 40),
        ([*PREDICTED[:40], 777, 778, *PREDICTED[40:]], 100),
        ([*PREDICTED[:40], 777, *PREDICTED[45:]], 95),
        ([*PREDICTED[:40], *PREDICTED[60:]], 80),
        ([900, 901, 902], 0),
        ([], 0),
    ],
)
def test_tokens_of_a_prediction_are_counted_where_the_text_has_them(text: list[int], accepted: int) -> None:
    prediction = Prediction(PREDICTED)
    for start in range(0, len(text), 7):
        prediction.follow(text[start : start + 7])
    assert (prediction.accepted, prediction.rejected) == (accepted, 100 - accepted)


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_never_more_tokens_are_accepted_than_there_are(predicted: list[int], text: list[int]) -> None:
    prediction = Prediction(predicted)
    prediction.follow(text)
    assert 0 <= prediction.accepted <= min(len(predicted), len(text))
    assert prediction.rejected == len(predicted) - prediction.accepted
