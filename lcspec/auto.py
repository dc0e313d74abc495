"""The drafter 'auto': whoever pays, as much as pays."""

import time
from collections.abc import Callable, Hashable, Sequence

from lcspec.drafters import NO_DRAFT, Draft, LookupDrafter, Propose, StepwiseDrafter
from lcspec.planner import PLAIN, Explanation, Planner


class AutoDrafter:
    """Proposes what a planner chooses, and tells it what came of it.

    What lookup proposes is compared with the text also where it is not used, so that the planner learns for free
    how good its drafts are. The draft model is not even given the prompt before it is expected to pay.

    Args:
        planner: chooses.
        lookup: costs nothing; should propose as much as it can.
        model: costs an evaluation for each token; None without a draft model.
        length: most tokens of a draft; None where the planner alone decides.
        clock: gives seconds.
    """

    name = "auto"

    def __init__(
        self,
        planner: Planner,
        lookup: LookupDrafter,
        model: StepwiseDrafter | None = None,
        length: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.planner = planner
        """The planner, which also says what it expects."""
        self._lookup = lookup
        self._model = model
        self._length = length
        self._clock = clock
        self._n_committed = 0
        self._plan = PLAIN
        self._draft = NO_DRAFT
        self._drafting_seconds: float | None = None  # of the draft that is out; None before the first
        self._followed: list[_Followed] = []

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Start a generation with each drafter."""
        self._n_committed = len(prompt)
        self._plan, self._draft, self._followed = PLAIN, NO_DRAFT, []
        self._drafting_seconds = None
        self.planner.begin()
        self._lookup.begin(prompt, propose)
        if self._model is not None:
            self._model.begin(prompt, propose)

    def propose(self, limit: int) -> Draft:
        """Return the draft from which most is expected, none where none pays."""
        started = self._clock()
        if self._length is not None:
            limit = min(limit, self._length)
        depth = self._n_committed - 1
        offers = self._lookup.offers(min(limit, self.planner.longest(depth)))
        self._follow(offers)
        behind = None if self._model is None else self._model.n_behind
        self._plan = self.planner.plan([offer.kinds for offer in offers], depth, limit, behind)
        if self._plan.drafter == "model":
            draft = self._draft_with_model(depth, limit)
        else:
            draft = offers[self._plan.offer] if offers else NO_DRAFT
        draft = draft.first(self._plan.width - 1)
        self._draft = _padded(draft, self._plan.width - 1) if draft.tokens else NO_DRAFT
        self._drafting_seconds = self._clock() - started
        return self._draft

    def _follow(self, offers: Sequence[Draft]) -> None:
        """Follow each offer, in place of an earlier one that is over."""
        for i, offer in enumerate(offers):
            if i == len(self._followed):
                self._followed.append(_Followed(offer))
            elif self._followed[i].is_over:
                self._followed[i] = _Followed(offer)

    def _draft_with_model(self, depth: int, limit: int) -> Draft:
        assert self._model is not None
        behind = self._model.n_behind or 1
        started = self._clock()
        draft = self._model.propose(limit, lambda kinds: self.planner.goes_on(kinds, depth, limit))
        self.planner.record_drafting(behind, len(draft.tokens), depth, self._clock() - started)
        self._plan = self.planner.cut(self._plan, draft.kinds, depth, limit)
        return draft.first(self._plan.length)

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        """Tell the planner what a pass took and which draft tokens were right."""
        width = 1 + len(self._draft.tokens)
        depth = self._n_committed - 1
        if self._drafting_seconds is not None:
            self.planner.record_pass(self._plan, width, depth, len(tokens), seconds, self._drafting_seconds)
        if self._draft.drafter == "model":
            _Followed(self._draft).follow(tokens, self.planner)
        for followed in self._followed:
            followed.follow(tokens, self.planner)
        self._n_committed += len(tokens)
        self._lookup.commit(tokens)
        if self._model is not None:
            self._model.commit(tokens, seconds)

    def explain(self) -> Explanation:
        """Say what was chosen in this generation, and why."""
        return self.planner.explain(self._n_committed)

    def close(self) -> None:
        """Close each drafter."""
        self._lookup.close()
        if self._model is not None:
            self._model.close()


class _Followed:
    """A draft that is compared with the text as that goes on, whether it was verified or not."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._n_right = 0
        self.is_over = not draft.tokens

    def follow(self, tokens: Sequence[int], planner: Planner) -> None:
        """Compare with the next tokens of the text, and tell the planner how many were right."""
        if self.is_over:
            return
        expected = self._draft.tokens[self._n_right : self._n_right + len(tokens)]
        right = next((i for i, token in enumerate(expected) if token != tokens[i]), len(expected))
        kinds: tuple[Hashable, ...] = self._draft.kinds[self._n_right : self._n_right + len(expected)]
        planner.record_draft(self._draft.drafter, kinds, right)
        self._n_right += right
        self.is_over = right < len(expected) or self._n_right >= len(self._draft.kinds)


def _padded(draft: Draft, n: int) -> Draft:
    """Fill a draft up to `n` tokens: a wider pass is cheaper on this machine."""
    missing = n - len(draft.tokens)
    if missing <= 0 or draft.drafter != "lookup":
        return draft
    return Draft(draft.tokens + draft.tokens[-1:] * missing, draft.drafter, kinds=draft.kinds)
