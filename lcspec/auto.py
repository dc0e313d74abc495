"""The drafter 'auto': whoever pays, as much as pays."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from lcspec.drafters import NO_DRAFT, Draft, LookupDrafter, Propose, StepwiseDrafter, voted
from lcspec.followed import Followed, FollowedDrafts
from lcspec.planner import PLAIN, Explanation, Planner

_LATEST = 0.1  # weight of the latest look in what looks take


class AutoDrafter:
    """Proposes what a planner chooses, and tells it what came of it.

    What lookup proposes is compared with the text also where it is not used, so that the planner learns for free
    how good its drafts are. The draft model is not even given the prompt before it is expected to pay.

    For free as far as the target is concerned: a small one's passes take a few milliseconds and leave nothing of the
    interpreter in the processor's caches, so that looking for drafts and learning of a pass take one or two per cent
    of the time. Where no draft has come of it for a while, the planner lets some passes go by in between, which are
    caught up with at the next look.

    Args:
        planner: chooses.
        lookup: costs nothing; should propose as much as it can.
        model: a draft model or head, which costs something for each token; None without one.
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
        self._by_model = NO_DRAFT  # what the model drafted for this pass, verified or not
        self._is_dumb = False  # whether the model has nothing to propose that is allowed in this generation
        self._drafting_seconds: float | None = None  # of the draft that is out; None before the first
        self._followed = FollowedDrafts()
        self._tokens: list[int] = []  # that came since the last look, and what their passes took
        self._seconds = 0.0
        self._learning_seconds = 0.0
        self._look_seconds = 0.0  # of a look and learning what came since the one before
        self._in_vain = 0  # looks since the last draft
        self._pause = 0  # passes before the next look

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Start a generation with each drafter."""
        self._tokens, self._seconds = [], 0.0
        self._in_vain = self._pause = 0
        self._n_committed = len(prompt)
        self._plan, self._draft, self._by_model, self._followed = PLAIN, NO_DRAFT, NO_DRAFT, FollowedDrafts()
        self._drafting_seconds = None
        self._is_dumb = False
        self.planner.begin(len(prompt))
        self._lookup.begin(prompt, propose)
        if self._model is not None:
            self._model.begin(prompt, propose)

    def propose(self, limit: int) -> Draft:
        """Return the draft from which most is expected, none where none pays."""
        if self._pause:
            self._pause -= 1
            return self._draft  # none, as before
        started = self._clock()
        if self._length is not None:
            limit = min(limit, self._length)
        depth = self._n_committed - 1
        offers = self._lookup.offers(min(limit, self.planner.longest(depth))) if self._lookup.has_offers else []
        self._followed.propose(offers)
        behind = None if self._model is None or self._is_dumb else self._model.n_behind
        moving = 0.0 if self._model is None else self._model.moving_seconds
        self._plan = self.planner.plan([offer.kinds for offer in offers], depth, limit, behind, moving)
        if self._plan.drafter in ("model", "head"):
            draft = self._draft_with_model(offers, depth, limit)
        else:
            draft = offers[self._plan.offer] if offers else NO_DRAFT
        draft = draft.first(self._plan.width - 1)
        self._draft = padded(draft, self._plan.width - 1) if draft.tokens else NO_DRAFT
        self._drafting_seconds = self._clock() - started
        self._look_seconds += _LATEST * (self._drafting_seconds + self._learning_seconds - self._look_seconds)
        self._in_vain = 0 if self._draft.tokens else self._in_vain + 1
        self._pause = self.planner.pause(self._in_vain, depth, self._look_seconds)
        return self._draft

    def _draft_with_model(self, offers: Sequence[Draft], depth: int, limit: int) -> Draft:
        """Let the model draft, or go on with a draft of lookup's if the model begins like that."""
        assert self._model is not None
        behind = self._model.n_behind or 1
        started = self._clock()
        instead = None

        def goes_on(draft: Draft) -> bool:
            nonlocal instead
            draft = voted(draft, offers)
            if len(draft.tokens) == 1:
                same = [offer.kinds if offer.tokens[0] == draft.tokens[0] else () for offer in offers]
                instead = self.planner.instead(same, draft.kinds[0], depth, limit)
            return instead is None and self.planner.goes_on(draft.kinds, depth, limit)

        draft = self._model.propose(limit, goes_on)
        if not draft.tokens:
            self._is_dumb, self._plan = True, PLAIN
            return NO_DRAFT
        draft = voted(draft, offers)
        seconds = self._clock() - started
        self.planner.record_drafting(behind, len(draft.tokens), depth, seconds, self._model.moved_seconds)
        self._by_model = draft
        if instead is not None:
            self._plan = instead
            offer = offers[instead.offer]
            return replace(offer, distributions=draft.distributions + (None,) * (len(offer.tokens) - 1))
        is_drawn = any(one is not None for one in draft.distributions)
        self._plan = self.planner.cut(self._plan, draft.kinds, depth, limit, is_drawn)
        return draft.first(self._plan.length)

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        """Tell the planner what a pass took and which draft tokens were right, at once or before the next look."""
        self._tokens += tokens
        self._seconds += seconds
        if not self._pause:
            self._learn()

    def _learn(self) -> None:
        started = self._clock()
        tokens, seconds = self._tokens, self._seconds
        self._tokens, self._seconds = [], 0.0
        width = 1 + len(self._draft.tokens)
        depth = self._n_committed - 1
        if self._drafting_seconds is not None:
            self.planner.record_pass(self._plan, width, depth, len(tokens), seconds, self._drafting_seconds)
        if self._by_model.tokens:
            Followed(self._by_model).follow(tokens, self.planner)
            self._by_model = NO_DRAFT
        self._followed.commit(tokens, self.planner)
        self._n_committed += len(tokens)
        self._lookup.commit(tokens)
        if self._model is not None:
            self._model.commit(tokens, seconds)
        self._learning_seconds = self._clock() - started

    def explain(self) -> Explanation:
        """Say what was chosen in this generation, and why."""
        if self._tokens:
            self._learn()
        return self.planner.explain(self._n_committed)

    def close(self) -> None:
        """Close each drafter."""
        self._lookup.close()
        if self._model is not None:
            self._model.close()


def padded(draft: Draft, n: int) -> Draft:
    """Fill a draft up to `n` tokens: a wider pass is cheaper on this machine."""
    missing = n - len(draft.tokens)
    if missing <= 0 or draft.drafter != "lookup":
        return draft
    distributions = draft.distributions and draft.distributions + (None,) * missing
    return replace(draft, tokens=draft.tokens + draft.tokens[-1:] * missing, distributions=distributions)
