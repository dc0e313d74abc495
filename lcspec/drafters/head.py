"""A draft head: guesses from the target's own hidden states."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lcspec.draft_head.reader import HeadReader
from lcspec.drafters.base import NO_DRAFT, Draft, Propose
from lcspec.drafters.model import kind_of
from lcspec.errors import EvaluationError


class HeadDrafter:
    """Proposes what a draft head foresees.

    It needs no prefill and is never behind: with each pass come the hidden states of the tokens that were committed.
    A prefill gives none, so the first draft of a text is made behind its second token.

    Args:
        reader: the head.
        hidden: gives the target's final hidden states of the last pass, None where they are not known.
        n_vocab: size of the target's vocabulary.
        is_eog: tells tokens that end a generation.
        length: most tokens of a draft.
    """

    name = "head"
    moving_seconds = moved_seconds = 0.0  # nothing is moved to it

    def __init__(
        self,
        reader: HeadReader,
        hidden: Callable[[], NDArray[np.float32] | None],
        n_vocab: int,
        is_eog: Callable[[int], bool],
        length: int,
    ) -> None:
        self._reader = reader
        self._hidden = hidden
        self._is_eog = is_eog
        self._length = length
        self._logits = np.full(n_vocab, -np.inf, dtype=np.float32)
        self._committed: list[int] = []
        self._propose: Propose

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Follow `prompt` from now on."""
        self._propose = propose
        self._committed = list(prompt)
        self._reader.clear()
        self._reader.read(prompt)

    def commit(self, tokens: Sequence[int], seconds: float = 0.0) -> None:
        """Take the hidden states of what was evaluated: all that is committed now but the last token."""
        states = self._hidden()
        if states is None:
            self._reader.forget_states()
        else:
            with self._reader.one_thread():
                self._reader.follow(states[: len(tokens)], [self._committed[-1], *tokens[:-1]])
        self._reader.read(tokens)
        self._committed += tokens

    @property
    def n_behind(self) -> int | None:
        """1, the token that its first step is for; None without hidden states."""
        return 1 if self._reader.knows_state else None

    def propose(self, limit: int, goes_on: Callable[[Draft], bool] = lambda _: True) -> Draft:
        """Return up to `limit` tokens, one step of the head each; none behind the end of a generation.

        Args:
            limit: most tokens.
            goes_on: given the draft so far, tells whether one more token is worth a step.
        """
        length = min(limit, self._length)
        if length <= 0 or not self._reader.knows_state:
            return NO_DRAFT
        with self._reader.one_thread():
            return self._foreseen(length, goes_on)

    def _foreseen(self, length: int, goes_on: Callable[[Draft], bool]) -> Draft:
        history = list(self._committed)
        draft = Draft((), self.name)
        state = self._reader.start()
        while True:
            state = self._reader.step(state, history[-1])
            ids, logits = self._reader.logits(state, history[-2:])
            self._logits[ids] = logits
            try:
                token, drawn_from = self._propose(self._logits, history)
            except EvaluationError:  # all that it can propose is forbidden
                return draft if draft.tokens else NO_DRAFT
            finally:
                self._logits[ids] = -np.inf
            history.append(token)
            kind = kind_of(_probability(ids, logits, token), len(draft.tokens))
            draft = Draft((*draft.tokens, token), self.name, (*draft.distributions, drawn_from), (*draft.kinds, kind))
            if len(draft.tokens) == length or self._is_eog(token) or not goes_on(draft):
                return draft

    def close(self) -> None:
        """Do nothing: the hidden states are the target's."""


def _probability(ids: NDArray[np.int32], logits: NDArray[np.float32], token: int) -> float:
    powers = np.exp(logits - logits.max())
    return float(powers[ids == token].sum() / powers.sum())
