"""The planner: who drafts for the next pass, and how much."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lcspec.planner.acceptance import AcceptanceTable
from lcspec.planner.choice import Length, best_length
from lcspec.planner.cost import CostCurve
from lcspec.planner.draft_model import DraftModel
from lcspec.planner.explanation import Chosen, Explanation, explain
from lcspec.planner.layout import LayoutChoice
from lcspec.planner.priors import Priors

_EXPLORING = 0.002  # of the time, at the most, for drafts that are not expected to pay
_LEAST_EXPLORED = 0.1  # passes over one token, below which it is not worth looking what could be explored
CREDIT = 1.0  # passes over one token that drafts may lose in a request,
TRIED = 4  # or, where that is more, what a pass over so many takes: these pay where two cost as much as twice one
CREDIT_SHARE = 0.01  # and on top of that this share of the time,
CREDIT_PER_TOKEN = 0.05  # and so many passes for each lookup token that was right, also in drafts that were not used
CREDIT_PER_PROMPT_TOKEN = 0.01  # and so many for each token of a prompt, as a long one has more that can be repeated,
MOST_FOR_PROMPT = 4.0  # at the most
_MOST_OWED = 3.0  # passes over one token that drafts of earlier requests lost and later ones have to make up for
_MARGIN = 1.1  # times the speed of plain decoding that has to be expected: the best of several guesses is a lucky one
LOOK_AHEAD = 8  # tokens of a draft that are compared with the text even if fewer may be verified
_LOOKING = 0.01  # of the time, for looking for drafts where none was worth verifying
_PATIENCE = 8  # times; but not at the price of more than
_LONGEST_PAUSE = 2  # passes without a look
_USUAL_OF_HEAD = 0.45  # how likely a draft head's next token is to be accepted, before any was seen


@dataclass(frozen=True)
class Plan:
    """What to draft for a pass.

    Attributes:
        drafter: 'lookup', 'model' or 'none'.
        length: draft tokens to verify; a draft model's are still to be drafted, `Planner.goes_on` says how many.
        width: tokens of the pass. More than `length` + 1 where a wider pass is cheaper.
        exploring: whether this is not expected to pay, but to teach something.
        offer: which of lookup's drafts.
    """

    drafter: str
    length: int
    width: int
    exploring: bool = False
    offer: int = 0


PLAIN = Plan("none", 0, 1)


class Planner:
    """Chooses drafter and length for each pass, so that most tokens a second are expected.

    Numbers in, choices out: it knows neither models nor tokens. Lookup drafts cost nothing to make, so their kinds
    are known when they are planned; how a draft model is planned for, `DraftModel` says.

    However promising a draft is, it may not put at risk more than a small credit and what drafts have gained in the
    request so far. So an estimate that is wrong, of costs or of chances, can't make a request much slower; and where
    drafts lose in request after request, the credit gets smaller.

    Where the target is loaded in two weight layouts, a pass is planned for both, and `layouts` weighs what moving
    would save.

    Args:
        target: what passes of the target cost where it decodes.
        priors: by drafter, the chance of each kind of its tokens.
        draft: what passes of the draft model cost, if there is one.
        draft_ratio: what its passes cost in proportion to the target's, before any was seen.
        drafter: who drafts with it: 'model', or 'head' for a draft head.
        usual: how likely its tokens are to be accepted; None where that was not measured.
    """

    def __init__(
        self,
        target: CostCurve,
        priors: Priors,
        draft: CostCurve | None = None,
        draft_ratio: float = 1.0,
        drafter: str = "model",
        usual: float | None = None,
    ) -> None:
        self.layouts = LayoutChoice((target, None))
        """In which layout the target evaluates."""
        self.model: DraftModel | None = None
        """The draft model, as far as it matters here."""
        if draft is not None:
            if usual is None:
                usual = _USUAL_OF_HEAD if drafter == "head" else float(np.mean(list(priors["model"].values())))
            self.model = DraftModel(AcceptanceTable(priors["model"]), usual, draft, draft_ratio)
        self._drafter = drafter
        self._lookup = AcceptanceTable(priors["lookup"])
        self._budget = 0.0  # seconds that may be lost by exploring
        self._emitted = 0  # tokens of this request
        self._gained = 0.0  # seconds, against plain decoding, and what may be lost on top
        self._for_prompt = 0.0  # passes over one token that may be lost on top
        self._was_wide = False  # the pass before
        self._widest = 0  # most draft tokens that a pass of this request could have
        self._chosen = Chosen()

    @property
    def target(self) -> CostCurve:
        """What passes of the target cost, in the layout that is wanted for the next one."""
        return self.layouts.costs

    def begin(self, n_prompt: int = 0) -> None:
        """Start a request with a prompt of so many tokens."""
        self.layouts.stay()
        self._lookup.begin()
        if self.model is not None:
            self.model.begin(self._emitted)
        self._emitted = 0
        self._gained = -min(max(0.0, -self._gained), _MOST_OWED * self._alone(0))
        self._for_prompt = credit_for(n_prompt)
        self._was_wide = False
        self._widest = 0
        self._chosen = Chosen()

    def plan(
        self,
        offers: Sequence[Sequence[str]],
        depth: int,
        limit: int,
        behind: int | None = None,
        moving: float = 0.0,
    ) -> Plan:
        """Return what to draft.

        Args:
            offers: kinds of the tokens of each draft that lookup proposes.
            depth: tokens of context.
            limit: most draft tokens.
            behind: tokens that the draft model has still to evaluate before it drafts; None where it can't.
            moving: seconds that it takes before that, to be given cells of the target's.
        """
        self._chosen.offers += bool(offers)
        if limit <= 0 or not self.target.has_scale:
            return PLAIN
        if not offers and self.model is None and not self.layouts.wanted:  # as with most tokens of most texts
            return PLAIN
        self._widest = max(self._widest, limit)
        rest = limit if limit < self._widest else None  # where passes get narrower, the text is near its end
        chances = [[self._lookup.chance(kind) for kind in offer[:limit]] for offer in offers]
        offer, free, affordable = self._best_lookup(chances, depth)
        limit = min(limit, affordable)
        if limit <= 0:
            return PLAIN
        if self.model is not None and behind is not None:
            dear = self.model.length(self.target, depth, limit)
            catching_up = self.model.catching_up(self.target, depth, behind, moving)
            if self.model.is_worth(dear, free, catching_up, self._emitted, rest):
                return self._plan(self._drafter, dear.tokens, depth, limit)
        if free.tokens:
            return self._plan("lookup", free.tokens, depth, limit, offer=offer)
        return self._explore(chances, depth, limit, behind, moving)

    def pause(self, in_vain: int, depth: int, looking: float) -> int:
        """Return for how many passes not to look for drafts.

        Args:
            in_vain: looks since the last draft.
            depth: tokens of context.
            looking: seconds that a look takes.
        """
        if in_vain < _PATIENCE or self.model is not None or self.layouts.wanted or not self.target.has_scale:
            return 0
        return min(int(looking / (_LOOKING * self._alone(depth))), _LONGEST_PAUSE)

    def longest(self, depth: int) -> int:
        """Return the most tokens of a draft that can be worth looking at now."""
        there = self.layouts.alternative
        affordable = self._affordable(self.target, depth)
        return max(LOOK_AHEAD, affordable, 0 if there is None else self._affordable(there, depth))

    def instead(self, offers: Sequence[Sequence[str]], first: str, depth: int, limit: int) -> Plan | None:
        """Return which lookup draft to verify rather than let the draft model go on behind its first token.

        Args:
            offers: kinds of the tokens of each lookup draft that begins with the model's token; nothing for others.
            first: the kind of the model's token.
            depth: tokens of context.
            limit: most draft tokens.
        """
        assert self.model is not None
        limit = min(limit, self._affordable(self.target, depth))
        if limit <= 0 or not any(offers):
            return None
        chance = self.model.chance_of(first)
        chances = [[chance, *map(self._lookup.chance, offer[1:limit])] for offer in offers if offer]
        best, length = _best(chances, self.target, depth, limit, shortest=1)
        if length.rate <= self.model.rate_behind(chance, self.target, depth, limit):
            return None
        offer = [i for i, kinds in enumerate(offers) if kinds][best]
        return self._plan("lookup", length.tokens, depth, limit, offer=offer)

    def goes_on(self, kinds: Sequence[str], depth: int, limit: int) -> bool:
        """Tell whether the draft model should draft another token.

        Args:
            kinds: of the tokens drafted so far.
            depth: tokens of context.
            limit: most draft tokens.
        """
        return self.model is not None and self.model.goes_on(kinds, self.target, depth, limit)

    def cut(self, plan: Plan, kinds: Sequence[str], depth: int, limit: int, is_drawn: bool = False) -> Plan:
        """Return how much of what the draft model drafted by `plan` is worth verifying.

        All of it is verified where its tokens were drawn at random and the acceptance rule makes up for that: were
        some left out for being what they are, the text would have less of them.
        """
        assert self.model is not None
        length = len(kinds) if is_drawn else self.model.cut(kinds, self.target, depth)
        return self._plan(self._drafter, max(length, int(plan.exploring)), depth, limit, plan.exploring)

    def record_draft(self, drafter: str, kinds: Sequence[str], accepted: int) -> None:
        """Learn how many tokens of a draft were right, whether it was verified or not."""
        if drafter == "lookup":
            self._lookup.record(kinds, accepted)
            self._gained += accepted * CREDIT_PER_TOKEN * self._alone(0)
        elif self.model is not None:
            self.model.record_draft(kinds, accepted)

    def record_drafting(self, behind: int, drafted: int, depth: int, seconds: float, moving: float = 0.0) -> None:
        """Learn what it took the draft model to evaluate `behind` tokens and to draft some; moving cells included."""
        assert self.model is not None
        self.model.record_drafting(behind, drafted, self.target, depth, seconds, moving)

    def record_pass(self, plan: Plan, width: int, depth: int, emitted: int, seconds: float, drafting: float) -> None:
        """Learn what a pass brought and took, or several over one token each.

        Args:
            plan: what it was made by.
            width: tokens that were evaluated.
            depth: tokens of context before it.
            emitted: tokens that came of it; of several passes, one each.
            seconds: of evaluation and verification.
            drafting: seconds of drafting before.
        """
        passes = emitted if width == 1 else 1
        self._chosen.record(plan.drafter, plan.length, plan.exploring, passes)
        self.target.record(width, depth, (seconds - self.layouts.moving_seconds) / passes)
        self.layouts.moving_seconds = 0.0
        self._emitted += emitted
        taken = seconds + drafting
        invested = 0.0 if self.model is None else self.model.take_invested()
        self._gained += CREDIT_SHARE * taken
        if width > 1 or self._was_wide or self.layouts.here:  # else what it takes beyond the usual is no loss of drafts
            self._gained += emitted * self._alone(depth) - taken + invested
        self._was_wide = width > 1
        self._budget += _EXPLORING * taken
        if plan.exploring:
            self._budget -= max(0.0, taken - emitted * self._alone(depth))

    def plain_seconds(self, width: int, depth: int, emitted: int, seconds: float) -> float | None:
        """Return about what plain decoding would have taken for a pass's tokens, before the pass is recorded.

        Args:
            width: tokens that were evaluated; one alone is plain decoding itself.
            depth: tokens of context before it.
            emitted: tokens that came of it.
            seconds: of evaluation and verification.

        Returns:
            None while nothing is known of the layout that decodes.
        """
        seconds -= self.layouts.moving_seconds
        costs = self.layouts.curves[0]
        if self.layouts.here == 0:
            return seconds if width == 1 else emitted * costs.alone_beside(width, depth, seconds)
        return emitted * self._alone(depth) if costs.has_scale else None

    def explain(self, depth: int) -> Explanation:
        """Say what was chosen in this request, which ends behind `depth` tokens, and why."""
        costs = self.layouts.curves[0]
        if self.model is None:
            return explain(costs, self._chosen, depth, None, None)
        cost, chance = self.model.seconds(1, depth, costs), self.model.chance
        return explain(costs, self._chosen, depth, cost, chance, self._drafter)

    def _alone(self, depth: int) -> float:
        """Return the seconds of a token of plain decoding."""
        return self.layouts.curves[0].seconds(1, depth)

    def _affordable(self, costs: CostCurve, depth: int, moving: float = 0.0) -> int:
        """Return the most draft tokens whose pass may be lost."""
        proportions, single = costs.proportions(depth), costs.seconds(1, depth)
        alone = self._alone(depth)
        credit = max(alone * (1 + CREDIT), proportions[TRIED] * single) + alone * self._for_prompt
        return max(0, bisect_right(proportions, (credit + self._gained - moving) / single) - 2)

    def _best_lookup(self, offers: Sequence[Sequence[float]], depth: int) -> tuple[int, Length, int]:
        """Return which lookup draft to verify, how much of it, and what is affordable, in the layout that pays most."""
        affordable = self._affordable(self.target, depth)
        here = *_best(offers, self.target, depth, affordable), affordable
        if (other := self.layouts.alternative) is None:
            return here
        moving = self.layouts.moving(depth, 1 - self.layouts.wanted)
        there = _best(offers, other, depth, self._affordable(other, depth, moving))
        if not self.layouts.weigh(here[1], there[1], depth):
            return here
        return *there, self._affordable(other, depth)

    def _explore(
        self, offers: Sequence[Sequence[float]], depth: int, limit: int, behind: int | None, moving: float
    ) -> Plan:
        """Return the draft that is nearest to paying, where its loss is covered by what may be spent on learning."""
        alone = self._alone(depth)
        if self._budget < _LEAST_EXPLORED * alone:
            return PLAIN
        options: list[tuple[float, str, int, int]] = []
        if any(map(len, offers)):
            offer, length = _best(offers, self.target, depth, limit, shortest=1)
            options.append((length.seconds * (1 - length.rate * alone), "lookup", length.tokens, offer))
        if self.model is not None and behind is not None:
            length = self.model.length(self.target, depth, limit, shortest=1)
            catching_up = self.model.catching_up(self.target, depth, behind, moving)
            options.append((length.seconds * (1 - length.rate * alone) + catching_up, self._drafter, length.tokens, 0))
            self.model.try_out(1 / alone)
        if not options or min(options)[0] >= self._budget:
            return PLAIN
        _, drafter, tokens, offer = min(options)
        return self._plan(drafter, tokens, depth, limit, exploring=True, offer=offer)

    def _plan(self, drafter: str, length: int, depth: int, limit: int, exploring: bool = False, offer: int = 0) -> Plan:
        _, widths = self.target.padded(depth)
        return Plan(drafter, length, min(int(widths[length + 1]), limit + 1), exploring, offer)


def credit_for(n_prompt: int) -> float:
    """Return how much more may be lost behind a prompt of so many tokens, in passes over one token."""
    return min(CREDIT_PER_PROMPT_TOKEN * n_prompt, MOST_FOR_PROMPT)


def _best(
    offers: Sequence[Sequence[float]], costs: CostCurve, depth: int, limit: int, shortest: int = 0
) -> tuple[int, Length]:
    """Return which draft pays most, given the chances of the tokens of each, and how many of its tokens."""
    proportions, single = costs.proportions(depth)[1:], costs.seconds(1, depth)
    lengths = [best_length(chances[:limit], proportions, shortest) for chances in offers or [()]]
    best = max(range(len(lengths)), key=lambda i: lengths[i].rate)
    tokens, rate, passes = lengths[best]
    if rate < _MARGIN and not shortest:
        tokens, rate, passes = 0, 1.0, 1.0
    return best, Length(tokens, rate / single, passes * single)
