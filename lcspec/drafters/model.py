"""A draft model: a smaller GGUF that guesses what the target will write."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lcspec.drafters.base import NO_DRAFT, Draft, Propose
from lcspec.drafters.shared_prompt import SharedPrompt
from lcspec.errors import EvaluationError
from lcspec.llama import Context, common_prefix_length

_PROBABILITIES = (0.0, 0.3, 0.5, 0.7, 0.85, 0.95, 0.99)
_DEPTHS = (0, 1, 3)

_VOTES = ("seconded", "opposed")  # what lookup says of the first token

_KINDS = {(probability, depth): f"{probability} {depth}" for probability in _PROBABILITIES for depth in _DEPTHS}
MODEL_KINDS = frozenset(
    [*_KINDS.values(), *(f"{_KINDS[probability, 0]} {vote}" for probability in _PROBABILITIES for vote in _VOTES)]
)
"""The kinds of tokens by the least that the draft model gives them, how deep in a draft they are, and by vote."""


class ModelDrafter:
    """Proposes how a smaller model with the target's vocabulary goes on.

    The draft model's KV cache follows the committed tokens lazily: at each proposal what was
    rejected is truncated and what is new is evaluated. So a prompt is only prefilled when a
    draft is wanted, and the last token of an accepted draft, which the draft model has proposed but
    not evaluated, needs no special care. (Leviathan et al. 2023, "Fast Inference from Transformers
    via Speculative Decoding"; Chen et al. 2023.)

    Args:
        context: a context of the draft model, closed together with the drafter.
        n_vocab: size of the target's vocabulary; padding ids beyond it are never proposed.
        length: most tokens of a draft.
        shared: moves the target's keys and values to a draft model that is made of its blocks; None for any other.
    """

    name = "model"

    def __init__(self, context: Context, n_vocab: int, length: int, shared: SharedPrompt | None = None) -> None:
        self._context = context
        self._n_vocab = n_vocab
        self._length = length
        self._shared = shared
        self.moved_seconds = 0.0
        """Seconds of the last draft that went into moving many of the target's keys and values."""
        self._committed: list[int] = []
        self._propose: Propose
        self._understands = True
        self._agreed = 0  # leading tokens of the cache that are known to be the committed ones

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Follow `prompt` from now on; nothing is evaluated yet."""
        self._propose = propose
        self._committed = list(prompt)
        self._understands = self._knows(prompt)
        self._agreed = common_prefix_length(self._context.tokens, self._committed)

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        """Append `tokens` to what the cache has to follow."""
        self._committed += tokens
        self._understands = self._understands and self._knows(tokens)
        self._agreed = common_prefix_length(self._context.tokens, self._committed, self._agreed)

    @property
    def n_behind(self) -> int | None:
        """Committed tokens that the draft model has to evaluate before it drafts; None if it does not know them all."""
        if not self._understands:
            return None
        n_cells = len(self._committed) - 1
        shares = self._shared is not None and self._shared.has(n_cells)
        return 1 if shares else n_cells + 1 - min(self._agreed, n_cells)

    @property
    def moving_seconds(self) -> float:
        """About the seconds that moving the target's keys and values takes before; 0 where these are few, or none."""
        n_cells = len(self._committed) - 1
        if self._shared is None or not self._shared.has(n_cells):
            return 0.0
        return self._shared.seconds(n_cells, self._agreed)

    def propose(self, limit: int, goes_on: Callable[[Draft], bool] = lambda _: True) -> Draft:
        """Return up to `limit` tokens, one evaluation of the draft model each; none behind the end of a generation.

        Args:
            limit: most tokens.
            goes_on: given the draft so far, tells whether one more token is worth an evaluation.
        """
        length = min(limit, self._length)
        if length <= 0 or not self._understands:
            return NO_DRAFT
        self.moved_seconds = 0.0
        if self._shared is not None and self._shared.has(len(self._committed) - 1):
            self.moved_seconds = self._shared.move(self._context, self._committed[:-1], self._agreed)
            known = min(self._agreed, len(self._context.tokens))
            self._agreed = common_prefix_length(self._context.tokens, self._committed, known)
        keep = min(self._agreed, len(self._committed) - 1)
        self._context.truncate(keep)
        logits = self._context.prefill(self._committed[keep:])
        self._agreed = len(self._committed)
        history = list(self._committed)
        draft = Draft((), self.name)
        while True:
            logits = logits[: self._n_vocab]
            try:
                token, drawn_from = self._propose(logits, history)
            except EvaluationError:  # all that it can propose is forbidden
                return draft if draft.tokens else NO_DRAFT
            history.append(token)
            kind = kind_of(_probability(logits, token), len(draft.tokens))
            draft = Draft((*draft.tokens, token), self.name, (*draft.distributions, drawn_from), (*draft.kinds, kind))
            if len(draft.tokens) == length or self._context.is_eog(token) or not goes_on(draft):
                return draft
            logits = self._context.prefill([token])

    def _knows(self, tokens: Sequence[int]) -> bool:
        """Tell whether the draft model has these tokens; the target's padding may go on longer."""
        return max(tokens, default=0) < self._context.n_vocab

    def close(self) -> None:
        """Close the context and its model."""
        self._context.model.close()


def kind_of(probability: float, depth: int) -> str:
    """Return the kind of a token to which the draft model gives `probability`, behind `depth` others of its draft."""
    floor = _PROBABILITIES[bisect_right(_PROBABILITIES, probability) - 1]
    return _KINDS[floor, _DEPTHS[bisect_right(_DEPTHS, depth) - 1]]


def voted(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return the draft with the kind of its first token saying whether other drafts begin with that token, too."""
    first = [other.tokens[0] for other in others if other.tokens]
    if not first:
        return draft
    vote = "seconded" if draft.tokens[0] in first else "opposed"
    return replace(draft, kinds=(f"{draft.kinds[0]} {vote}", *draft.kinds[1:]))


def _probability(logits: NDArray[np.float32], token: int) -> float:
    powers = np.exp(logits - logits.max())
    return float(powers[token] / powers.sum())
