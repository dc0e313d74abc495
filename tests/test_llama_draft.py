"""Lookup as a draft model of the real llama_cpp.Llama."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding
from prompts import PROMPTS

from lcspec import PromptError
from lcspec.llama_draft import LookupDraftModel

CTX = 256
REPEATED = "The rain in Spain stays mainly in the plain. The snow in Oslo falls softly on the fjord. "


class CountingLlama(llama_cpp.Llama):
    evaluations = 0

    def eval(self, tokens: Sequence[int]) -> None:
        self.evaluations += 1
        super().eval(tokens)


def load(model: Path, drafter: LlamaDraftModel | None) -> CountingLlama:
    return CountingLlama(
        str(model),
        draft_model=drafter,
        n_ctx=CTX,
        logits_all=True,
        flash_attn=True,
        verbose=False,
        n_threads=1,
        n_threads_batch=1,
    )


def text(llama: llama_cpp.Llama, prompt: str) -> str:
    answer: Any = llama.create_completion(prompt, max_tokens=40, temperature=0)
    written: str = answer["choices"][0]["text"]
    return written


def ids(tokens: Sequence[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.intc)


@pytest.mark.real
def test_the_text_is_the_same_in_fewer_evaluations(smollm2: Path) -> None:
    prompts = [REPEATED * 4, *PROMPTS[:6:2], REPEATED * 4]
    plain, drafting = load(smollm2, None), load(smollm2, LookupDraftModel())
    try:
        for i, prompt in enumerate(prompts):
            plain.evaluations = drafting.evaluations = 0
            assert text(drafting, prompt) == text(plain, prompt)
            assert drafting.evaluations <= plain.evaluations
            if i in (0, len(prompts) - 1):
                assert drafting.evaluations < plain.evaluations / 3
    finally:
        plain.close()
        drafting.close()


def test_it_is_a_draft_model_and_gives_what_one_gives() -> None:
    drafter = LookupDraftModel()
    assert isinstance(drafter, LlamaDraftModel)
    text = ids([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4])
    draft = drafter(text)
    theirs = LlamaPromptLookupDecoding()(text)
    assert draft.dtype == theirs.dtype == np.intc
    assert draft.tolist() == [5, 6] == theirs.tolist()[:2]
    assert drafter(ids([1, 2, 3, 4])).shape == (0,)


def test_a_draft_is_half_as_long_as_the_match_and_no_longer_than_wanted() -> None:
    text = ids([*range(100), *range(60)])
    assert LookupDraftModel()(text).tolist() == list(range(60, 70))
    assert LookupDraftModel(num_pred_tokens=3)(text).tolist() == [60, 61, 62]
    assert LookupDraftModel()(text[:110]).tolist() == list(range(10, 15))
    assert LookupDraftModel(min_match=20)(text[:110]).shape == (0,)
    assert LookupDraftModel(min_match=2)(text[:102]).tolist() == [2]


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.lists(st.integers(0, 3), max_size=12)),
        max_size=12,
    )
)
def test_whatever_came_before_a_text_gives_the_draft_of_a_new_drafter(changes: list[tuple[int, list[int]]]) -> None:
    drafter = LookupDraftModel()
    text: list[int] = []
    for kept, added in changes:  # texts that grow, and that are taken back
        text = [*text[:kept], *added]
        assert drafter(ids(text)).tolist() == LookupDraftModel()(ids(text)).tolist()


def test_the_caller_may_write_into_its_array_afterwards() -> None:
    drafter = LookupDraftModel()
    text = ids([1, 2, 3, 4, 5, 6, 7, 8])
    drafter(text)
    text[:] = [9, 1, 2, 3, 4, 7, 7, 7]
    assert drafter(np.append(text, ids([9, 1, 2, 3, 4]))).tolist() == [7, 7]


@pytest.mark.parametrize("arguments", [{"num_pred_tokens": 0}, {"num_pred_tokens": 128}, {"min_match": 1}])
def test_arguments_out_of_range_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(PromptError, match=next(iter(arguments))):
        LookupDraftModel(**arguments)
