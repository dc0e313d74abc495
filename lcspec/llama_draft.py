"""Lookup for apps that stay with llama-cpp-python."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcspec.checks import check_whole
from lcspec.drafters import LookupDrafter
from lcspec.llama import MAX_WIDTH, LlamaDraftModel


class LookupDraftModel(LlamaDraftModel):  # type: ignore[misc]
    """Drafts for `llama_cpp.Llama(..., draft_model=LookupDraftModel(), logits_all=True)` what lookup finds.

    A suffix automaton of prompt and text grows with them, so that the longest match is found at once, where
    `LlamaPromptLookupDecoding` searches all of the text for each draft. Belongs to one `Llama`.

    Args:
        num_pred_tokens: tokens of a draft at the most; a draft is half as long as what matched.
        min_match: tokens that have to match, at least 2.

    Raises:
        PromptError: an argument is out of range.
    """

    def __init__(self, num_pred_tokens: int = 10, min_match: int = 4) -> None:
        self._most = check_whole("num_pred_tokens", num_pred_tokens, 1, MAX_WIDTH - 1)
        self._shortest = check_whole("min_match", min_match, 2, 1024)
        self._forget()

    def _forget(self) -> None:
        shortest = self._shortest
        self._lookup = LookupDrafter(_never_ends, min_match=shortest, max_match=max(32, shortest), align=False)
        self._read = np.empty(0, dtype=np.intc)

    def __call__(self, input_ids: NDArray[np.intc], /, **kwargs: Any) -> NDArray[np.intc]:
        """Return tokens that may follow `input_ids`, which are prompt and text so far, shape (n,)."""
        n = len(self._read)
        if not np.array_equal(input_ids[:n], self._read):
            self._forget()
            n = 0
        self._lookup.commit(input_ids[n:].tolist())
        self._read = input_ids.copy()
        return np.array(self._lookup.propose(self._most).tokens, dtype=np.intc)


def _never_ends(token: int) -> bool:
    """Tell nothing: `Llama` itself stops at a token that ends a generation."""
    return False
