"""A draft head at work: what it foresees, by numpy alone."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from lcspec.draft_head.followers import Followers
from lcspec.draft_head.head import Head
from lcspec.draft_head.rows import TargetRows

CANDIDATES = 128
"""Tokens whose exact logits are computed."""

_NOWHERE = -1
_limiting = threading.Lock()  # as limits are the process's, and end with what was before
_KNOWN_TOKENS = 4096  # whose part of a step is remembered
_MEMORY = 1024  # positions at the most; the oldest half is forgotten when they are more

Vector = NDArray[np.float32]


class HeadReader:
    """Follows a sequence's hidden states, and foresees the states to come from the tokens drafted so far.

    A state and the token behind it give the next state, which the target's output matrix turns into logits as it
    does with the target's own. So tokens are drafted one by one, each in view of those before it (Ankner et al. 2024,
    "Hydra"; Li et al. 2024, "EAGLE"). What followed similar states before in this sequence is looked up by attention.
    Only tokens whose logits are likely to be large by a projection of low rank get exact logits, and those that
    followed the last token earlier. These gain for each time that they did, and more where they followed the last two
    tokens, as texts repeat what they had (after See et al. 2017, "Get To The Point").

    Args:
        head: the weights.
        rows: of the target.
    """

    def __init__(self, head: Head, rows: TargetRows) -> None:
        self._head = head
        self._rows = rows
        self._output_rows = rows.output(head.ids)
        self._hidden = head.output.shape[1]
        self._parts = head.fading.size
        size = head.keys.shape[0] // self._parts
        self._scale = np.float32(size**-0.5)
        self._keys = np.empty((_MEMORY, self._parts, size), dtype=np.float32)
        self._values = np.empty_like(self._keys)
        self._n_known = 0
        self._of_state, self._of_token = (np.ascontiguousarray(half) for half in np.hsplit(head.input, 2))
        self._known_tokens: dict[int, Vector] = {}
        self._last: Vector | None = None  # the state behind the last token but one
        self._depth = 0
        self._followers = Followers()
        self._place = np.full(rows.n_vocab, _NOWHERE)  # of tokens among the candidates, while these are looked at
        self._blas = ThreadpoolController().select(user_api="blas")

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """Let numpy use one thread: those of its BLAS wait busily, and llama.cpp's need the processors at once."""
        with _limiting, self._blas.limit(limits=1):
            yield

    @property
    def size(self) -> int:
        """Bytes of the weights that a step reads behind a token that is known."""
        head = self._head
        used = self._of_state, head.recall, head.output, head.preview, head.projection
        return sum(weights.nbytes for weights in used)

    @property
    def knows_state(self) -> bool:
        """Whether there is a state to go on from."""
        return self._last is not None

    def clear(self) -> None:
        """Forget the sequence."""
        self.forget_states()
        self._followers.clear()

    def forget_states(self) -> None:
        """Forget the sequence's states; its tokens are still known."""
        self._n_known, self._last = 0, None

    def read(self, tokens: Sequence[int]) -> None:
        """Take the sequence's next tokens, with states or without."""
        self._followers.append(tokens)

    def follow(self, states: NDArray[np.float32], tokens: Sequence[int]) -> None:
        """Take the target's hidden states of the sequence's next positions.

        Args:
            states: shape (n, n_embd); row i is behind tokens[i].
            tokens: of these positions. The token behind the last of them is given to `step`.
        """
        before = states[:-1]
        after, embedded = states[1:], tokens[1:]
        if self._last is not None:
            before, after, embedded = np.vstack((self._last[None], before)), states, tokens
        if len(embedded):
            pairs = np.hstack((before, np.stack([self._rows.embedding(token) for token in embedded])))
            self._make_room(len(pairs))
            end = self._n_known + len(pairs)
            shape = (len(pairs), *self._keys.shape[1:])
            self._keys[self._n_known : end] = (pairs @ self._head.keys.T).reshape(shape)
            self._values[self._n_known : end] = (after @ self._head.values.T).reshape(shape)
            self._n_known = end
        self._last = states[-1].copy()

    def _make_room(self, n: int) -> None:
        if self._n_known + n > _MEMORY:
            kept = _MEMORY // 2
            for memory in self._keys, self._values:
                memory[:kept] = memory[self._n_known - kept : self._n_known].copy()
            self._n_known = kept

    def start(self) -> Vector:
        """Return the state from which a draft begins."""
        assert self._last is not None
        self._depth = 0
        return self._last

    def step(self, state: Vector, token: int) -> Vector:
        """Return the state that is foreseen behind `token`, which comes behind `state`: shape (n_embd,)."""
        head, m = self._head, self._hidden
        projected = self._of_state @ state + self._projected(token)
        value, gate = projected[:m], projected[m : 2 * m]
        if self._n_known:
            value += head.recall @ self._recalled(projected[2 * m : -state.size])
        self._depth += 1
        foreseen: Vector = head.output @ (value * gate / (1 + np.exp(-gate))) + projected[-state.size :]
        foreseen += head.output_bias
        return foreseen

    def _projected(self, token: int) -> Vector:
        """Return what a token's embedding contributes to a step, which for frequent tokens is known already."""
        found = self._known_tokens.get(token)
        if found is None:
            if len(self._known_tokens) >= _KNOWN_TOKENS:
                self._known_tokens.clear()
            found = self._of_token @ self._rows.embedding(token)
            found[: 2 * self._hidden] += self._head.input_bias
            self._known_tokens[token] = found
        return found

    def _recalled(self, query: Vector) -> Vector:
        """Return what is remembered of similar positions: attention, with a place for nothing."""
        head, n = self._head, self._n_known
        keys, values = self._keys[:n], self._values[:n]
        query = (query * self._scale).reshape(self._parts, -1)
        scores = np.einsum("nhk,hk->hn", keys, query)
        back = np.arange(n - 1 + self._depth, self._depth - 1, -1, dtype=np.float32)
        scores -= head.fading[:, None] * back
        most = np.maximum(scores.max(axis=1), head.nothing)[:, None]
        weights = np.exp(scores - most)
        weights /= weights.sum(axis=1, keepdims=True) + np.exp(head.nothing[:, None] - most)
        recalled: Vector = np.einsum("hn,nhk->hk", weights, values).reshape(-1)
        return recalled

    def logits(self, state: Vector, context: Sequence[int] = ()) -> tuple[NDArray[np.int32], Vector]:
        """Return the tokens that may come by a foreseen state, and their logits: shapes (n,).

        Args:
            state: what is foreseen.
            context: the tokens before, of which the last two tell what followed them earlier in the sequence.
        """
        ids, own, places, counted = self._candidates(state, context)
        weights = self._head.copying
        logits: Vector = weights[0] * own
        if places:
            logits[places] += np.log1p(counted) @ weights[1:]
        return ids, logits

    def candidates(
        self, state: Vector, context: Sequence[int] = ()
    ) -> tuple[NDArray[np.int32], Vector, NDArray[np.float32]]:
        """Return tokens that may come, their logits by the state alone, and what `Followers` counted of them.

        Shapes (n,), (n,) and (n, 2).
        """
        ids, own, places, counted = self._candidates(state, context)
        counts = np.zeros((len(ids), 2), dtype=np.float32)
        counts[places] = counted
        return ids, own, counts

    def _candidates(
        self, state: Vector, context: Sequence[int]
    ) -> tuple[NDArray[np.int32], Vector, list[int], NDArray[np.float32]]:
        """Return tokens, their own logits, at which places those are that `Followers` counted, and the counts."""
        ids, own = self._likeliest(state)
        before, last = (-1, -1, *context)[-2:]
        tokens, counted = self._followers.after(before, last)
        self._place[ids] = np.arange(len(ids))
        places = self._place[tokens].tolist()
        self._place[ids] = _NOWHERE
        others = [i for i, place in enumerate(places) if place == _NOWHERE]
        if others:
            rows = np.stack([self._rows.output_row(tokens[i]) for i in others])
            own = np.append(own, rows @ state)
            for place, i in enumerate(others, len(ids)):
                places[i] = place
            ids = np.append(ids, np.array([tokens[i] for i in others], dtype=np.int32))
        return ids, own, places, counted

    def _likeliest(self, state: Vector) -> tuple[NDArray[np.int32], Vector]:
        head = self._head
        rows = self._output_rows
        if len(rows) <= CANDIDATES:
            return head.ids, rows @ state
        preview = head.preview @ (head.projection @ state)
        best = np.argpartition(preview, len(preview) - CANDIDATES)[len(preview) - CANDIDATES :]
        return head.ids[best], rows[best] @ state
