"""The acceptance rules: which draft tokens the target would have written itself.

A rule is a pure function of the target's logits and the draft tokens. It returns how many of the
draft's leading tokens it accepts and the token that the target puts behind them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError


@dataclass(frozen=True)
class Verdict:
    """What the target makes of a draft.

    Attributes:
        accepted: number of leading draft tokens that are accepted.
        token: the target's own next token: the correction of the first rejected draft token, or one
            more token when all were accepted.
    """

    accepted: int
    token: int


Rule: TypeAlias = Callable[[NDArray[np.float32], Sequence[int]], Verdict]
"""Logits of shape (k + 1, n_vocab) and k draft tokens to a verdict. Row i of the logits is the
target's prediction for draft token i; row k is for the token behind the draft."""


def greedy(logits: NDArray[np.float32], draft: Sequence[int]) -> Verdict:
    """Accept draft tokens while each is the target's most likely one.

    The text is that of greedy decoding, whatever the draft (Stern et al. 2018, "Blockwise Parallel
    Decoding for Deep Autoregressive Models").

    Raises:
        EvaluationError: the logits are not numbers, as with damaged weights.
    """
    accepted = 0
    while accepted < len(draft) and _is_most_likely(draft[accepted], logits[accepted]):
        accepted += 1
    return Verdict(accepted, token=_most_likely(logits[accepted]))


def _is_most_likely(token: int, row: NDArray[np.float32]) -> bool:
    """Tell whether `_most_likely` would choose `token`, in two thirds of the time; false if there is a NaN."""
    before, after = row[:token], row[token + 1 :]
    beats_earlier = not before.size or bool(before.max() < row[token])
    return beats_earlier and (not after.size or bool(after.max() <= row[token]))


def _most_likely(row: NDArray[np.float32]) -> int:
    choice = int(row.argmax())
    if np.isnan(row[choice]):
        raise EvaluationError("the target's logits are not numbers; its file is damaged or unsupported")
    return choice
