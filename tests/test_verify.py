import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec import EvaluationError
from lcspec.verify import Verdict, greedy

VOCABULARY = 12


def logits_for(choices: list[int], seed: int = 0) -> np.ndarray:
    """Return random logits whose largest entry in row i is choices[i]."""
    rows = np.random.default_rng(seed).normal(size=(len(choices), VOCABULARY)).astype(np.float32)
    rows[np.arange(len(choices)), choices] = rows.max() + 1
    return rows


tokens = st.integers(0, VOCABULARY - 1)


@given(choices=st.lists(tokens, min_size=1, max_size=10), seed=st.integers(0, 999), data=st.data())
def test_greedy_emits_what_the_target_alone_would(choices: list[int], seed: int, data: st.DataObject) -> None:
    draft = data.draw(st.lists(tokens, min_size=len(choices) - 1, max_size=len(choices) - 1))
    verdict = greedy(logits_for(choices, seed), draft)
    assert draft[: verdict.accepted] == choices[: verdict.accepted]
    assert verdict.token == choices[verdict.accepted]
    assert verdict.accepted == len(draft) or draft[verdict.accepted] != choices[verdict.accepted]


def test_greedy_accepts_a_draft_that_is_right_and_adds_a_token() -> None:
    assert greedy(logits_for([3, 1, 4]), [3, 1]) == Verdict(accepted=2, token=4)


def test_greedy_corrects_the_first_wrong_token_though_later_ones_are_right() -> None:
    assert greedy(logits_for([3, 1, 4]), [5, 1]) == Verdict(accepted=0, token=3)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_of_equal_logits_the_first_counts(size: int) -> None:
    rows = np.zeros((2, size), dtype=np.float32)
    assert greedy(rows, [0]) == Verdict(accepted=1, token=0)
    for later in range(1, size):
        assert greedy(rows, [later]) == Verdict(accepted=0, token=0)


@pytest.mark.parametrize("position", [0, 3, 7, 11])
@pytest.mark.parametrize("draft", [[], [3]])
def test_greedy_refuses_logits_that_are_no_numbers(position: int, draft: list[int]) -> None:
    rows = logits_for([3, 5])
    rows[0, position] = np.nan
    with pytest.raises(EvaluationError, match="not numbers"):
        greedy(rows, draft)
