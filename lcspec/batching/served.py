"""A request whose text is being written."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.prediction import Prediction
from lcspec.batching.request import Finished, Listener, Timings
from lcspec.batching.ticket import Ticket
from lcspec.drafters import NO_DRAFT, Drafter
from lcspec.loop import Pass, Writing
from lcspec.planner import CostCurve, Wish
from lcspec.rules import Rule
from lcspec.stream import Completion, FinishReason, Piece, Pieces

NO_SLOT = -1
"""The slot of a request that waits."""

_NO_WISH = Wish([], 0)


class Served:
    """A request, from its arrival to its end.

    Args:
        ticket: what its caller has.
        listener: is told of its pieces.
        writing: the text.
        pieces: makes pieces of it.
        drafter: drafts for it; a `SharedDrafter` where there are drafts at all.
        rule: the acceptance rule.
        seed: gives the text again; None where it does not depend on one.
    """

    def __init__(
        self,
        ticket: Ticket,
        listener: Listener,
        writing: Writing,
        pieces: Pieces,
        drafter: Drafter,
        rule: Rule,
        seed: int | None,
    ) -> None:
        self.ticket = ticket
        self.writing = writing
        self.drafter = drafter
        self.slot = NO_SLOT
        """Its sequence of the cache."""
        self.last_step = 0
        """Number of the pass that it was in last."""
        self.waits_since = 0
        """How many tokens of prompts had been read when its own began to wait."""
        self._listener = listener
        self._pieces = pieces
        self._rule = rule
        self._seed = seed
        self._prediction = Prediction(ticket.request.prediction)
        self._arrived = self._since = time.perf_counter()
        self._started: float | None = None
        self._first: float | None = None
        self._parts: list[Piece] = []

    @property
    def prompt(self) -> tuple[int, ...]:
        """Its prompt."""
        return self.ticket.request.prompt

    @property
    def began(self) -> bool:
        """Whether it has had a slot before."""
        return self._started is not None

    @property
    def is_finished(self) -> bool:
        """Whether the text has come to its end."""
        return self._pieces.finish_reason is not None

    @property
    def new_tokens(self) -> Sequence[int]:
        """What was written."""
        return self.writing.committed[len(self.prompt) :]

    def begin(self, slot: int, n_cached: int) -> None:
        """Start, or go on, in a sequence of the cache that holds the first `n_cached` tokens."""
        self.slot = slot
        self.writing.draft = NO_DRAFT  # one that was made before it had to wait is not verified
        if self._started is None:
            self._started = self._since = time.perf_counter()
            self._pieces.stats.cached_tokens = n_cached
            self.drafter.begin(self.prompt, self._rule.propose)

    def wish(self, base: int, depth: int, costs: CostCurve) -> Wish:
        """Return what it could use of a pass over `base` other tokens, behind `depth` tokens on average."""
        if not isinstance(self.drafter, SharedDrafter):
            return _NO_WISH
        return self.drafter.wish(self.writing.longest_draft, base, depth, costs)

    def advance(self, logits: NDArray[np.float32], drafting_seconds: float, *, exact: bool) -> Pass:
        """Verify what was drafted, commit what comes of it, and tell the listener.

        Args:
            logits: as of `Writing.verify`.
            drafting_seconds: that drafting took.
            exact: whether the logits are those of the sequence alone.
        """
        depth = len(self.writing.committed) - 1
        verified = self.writing.verify(logits)
        now = time.perf_counter()
        done = Pass(
            self.writing.draft,
            verified.accepted,
            verified.emitted,
            verified.scores,
            depth,
            len(logits) if self._first is not None else len(self.prompt) - self._pieces.stats.cached_tokens,
            now - self._since,
            drafting_seconds,
            exact,
        )
        self._since = now
        self._first = self._first or now - self._arrived
        self._prediction.follow(done.emitted)
        if not self.writing.is_over:
            self.drafter.commit(done.emitted, done.seconds)
        for piece in self._pieces.add(done):
            self._tell(piece)
        return done

    def _tell(self, piece: Piece) -> None:
        self._parts.append(piece)
        self._listener(piece)

    def finish(self, reason: FinishReason = "cancelled", error: Exception | None = None) -> Finished:
        """End the request, for the reason given unless its text came to its end; tell the listener."""
        if error is None and self._pieces.finish_reason is None and reason != "cancelled":
            try:
                for piece in self._pieces.finish(reason):
                    self._tell(piece)
            except Exception as failed:
                error = failed
        finished = Finished(self._completion(reason, error), self.timings(), error)
        self.ticket.finish(finished)
        return finished

    def announce(self, finished: Finished) -> None:
        """Tell the listener of the end."""
        self._listener(finished)

    def timings(self) -> Timings:
        """Return what it took so far."""
        stats = self._pieces.stats
        now = time.perf_counter()
        return Timings(
            prompt_tokens=len(self.prompt),
            cached_tokens=stats.cached_tokens,
            tokens=stats.tokens,
            queued_seconds=(self._started or now) - self._arrived,
            prompt_seconds=stats.prefill_seconds,
            decode_seconds=stats.decode_seconds,
            first_token_seconds=self._first,
            draft_n=stats.drafted,
            draft_n_accepted=stats.accepted,
            prediction_accepted=self._prediction.accepted,
            prediction_rejected=self._prediction.rejected,
        )

    def _completion(self, reason: FinishReason, error: Exception | None) -> Completion:
        tokens: list[int] = []
        for piece in self._parts:
            tokens += piece.tokens
        return Completion(
            "".join(piece.text for piece in self._parts),
            tuple(tokens),
            "cancelled" if error is not None else self._pieces.finish_reason or reason,
            replace(self._pieces.stats),
            self._seed,
            tuple(one for piece in self._parts for one in piece.logprobs),
        )
