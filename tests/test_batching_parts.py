"""The parts of batching that need no model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec.batching.packing import longest, together
from lcspec.batching.prediction import Prediction
from lcspec.planner import CostCurve

CURVE = CostCurve({1: 0.008, 2: 0.012, 8: 0.031, 16: 0.058, 64: 0.2, 128: 0.4})


@given(st.integers(1, 8), st.integers(0, 2000))
def test_drafts_let_nobody_wait_for_long(n_texts: int, depth: int) -> None:
    width = longest(CURVE, depth, n_texts, 128)
    assert width == n_texts or CURVE.seconds(width, depth) < 0.2
    assert n_texts <= width < 128
    assert CURVE.seconds(width + 1, depth) > 0.12, "but no shorter than that"
    assert longest(CURVE, depth, n_texts, 10) <= 10
    several = longest(CURVE, depth, 1, 128, turns=n_texts)
    assert several == 1 or n_texts * CURVE.seconds(several, depth) < 0.2
    assert longest(CostCurve(), depth, n_texts, 128) == 128


def test_texts_of_a_slow_model_get_drafts_too() -> None:
    slow = CostCurve({1: 0.3, 128: 9.0})
    assert longest(slow, 100, 2, 128) > 20


@pytest.mark.parametrize(
    ("seconds", "n_texts", "expected"),
    [
        ({1: 6.0, 2: 11.0, 4: 19.0, 8: 32.0}, 8, 8),
        ({1: 6.0, 2: 13.0, 4: 19.0, 8: 32.0}, 2, 1),
        ({1: 6.0, 2: 13.0, 4: 19.0, 8: 32.0}, 4, 4),
        ({1: 6.0, 2: 11.0, 4: 19.0, 5: 29.0, 8: 48.0}, 7, 4),
        ({1: 6.0, 2: 12.0, 4: 24.2, 8: 48.5}, 8, 8),
    ],
)
def test_as_many_texts_go_on_together_as_is_fastest(seconds: dict[int, float], n_texts: int, expected: int) -> None:
    assert together(CostCurve(seconds), 0, n_texts) == expected


def test_before_anything_is_known_of_costs_all_texts_go_on_together() -> None:
    assert together(CostCurve(), 0, 20) == 20


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
