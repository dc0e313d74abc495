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


def test_greedy_takes_the_first_of_equal_logits() -> None:
    assert greedy(np.zeros((1, VOCABULARY), dtype=np.float32), []).token == 0


def test_greedy_refuses_logits_that_are_no_numbers() -> None:
    rows = logits_for([3])
    rows[0, 7] = np.nan
    with pytest.raises(EvaluationError, match="not numbers"):
        greedy(rows, [])
