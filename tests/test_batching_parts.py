"""The parts of batching that need no model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.batching.prediction import Prediction
from lcspec.batching.prefill import MixedPasses, fair_parts
from lcspec.planner import CostCurve

CURVE = CostCurve({1: 0.008, 2: 0.012, 8: 0.031, 16: 0.058, 64: 0.2, 128: 0.4})


@given(st.lists(st.integers(1, 600), min_size=1, max_size=9), st.integers(0, 512))
def test_prompts_get_equal_parts_or_all_that_they_want(wanted: list[int], n: int) -> None:
    parts = fair_parts(wanted, n)
    assert sum(parts) == min(n, sum(wanted))
    assert all(0 <= part <= want for part, want in zip(parts, wanted, strict=True))
    least = min((part for part, want in zip(parts, wanted, strict=True) if part < want), default=None)
    if least is not None:
        assert max(parts) <= least + 1, "who gets less than is wanted gets as much as anybody"


@given(st.integers(1, 64))
def test_no_pass_that_texts_wait_for_takes_long(n_texts: int) -> None:
    width = MixedPasses().longest(CURVE, 100, n_texts, 512)
    assert width >= n_texts
    assert width == n_texts or CURVE.seconds(width, 100) < 0.2
    assert width < 128


@given(st.floats(0.4, 3.0))
def test_how_long_passes_take_is_learned_from_them(proportion: float) -> None:
    passes = MixedPasses()
    for _ in range(60):
        width = passes.longest(CURVE, 0, 2, 512)
        passes.record(CURVE, width, 0, proportion * CURVE.seconds(width))
    assert 0.12 < proportion * CURVE.seconds(passes.longest(CURVE, 0, 2, 512)) < 0.2


def test_before_anything_is_known_of_costs_prompts_come_in_small_parts() -> None:
    assert MixedPasses().longest(CostCurve(), 0, 3, 512) == 32
    learned = CostCurve()
    learned.record(1, 0, 0.008)
    assert 16 <= MixedPasses().longest(learned, 0, 3, 512) <= 40


def test_a_slow_model_still_gets_on_with_its_prompts() -> None:
    slow = CostCurve({1: 0.3, 128: 9.0})
    assert MixedPasses().longest(slow, 0, 2, 512) > 20


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
