"""Why passes were planned as they were, in words and as data."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lcspec.planner.cost import CostCurve

_SHOWN_WIDTHS = (2, 4, 8, 16, 32, 64)


@dataclass
class Explanation:
    """What a planner knew at the end of a request, and what it chose in it.

    Attributes:
        reasons: in plain words, a sentence each.
        passes: passes by what was planned for them: 'none', 'lookup', 'model' or 'head'.
        exploring: how many of them were not expected to pay, but to teach something.
        pass_costs: by width, what a pass costs in passes over one token.
        measured: whether that was measured, or only seen in passing.
        draft_token_cost: what a draft model's or head's token costs, in target passes over one token; None without one.
        draft_chance: how likely its next token is to be accepted; None without one.
    """

    reasons: list[str] = field(default_factory=list)
    passes: dict[str, int] = field(default_factory=dict)
    exploring: int = 0
    pass_costs: dict[int, float] = field(default_factory=dict)
    measured: bool = False
    draft_token_cost: float | None = None
    draft_chance: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        return {**vars(self), "pass_costs": {str(width): cost for width, cost in self.pass_costs.items()}}


@dataclass
class Chosen:
    """Counts of what a planner chose in one request.

    Attributes:
        passes: by drafter.
        exploring: passes that were to teach something.
        offers: passes for which lookup had a draft.
        longest: the longest draft that was planned.
    """

    passes: Counter[str] = field(default_factory=Counter)
    exploring: int = 0
    offers: int = 0
    longest: int = 0

    def record(self, drafter: str, length: int, exploring: bool, passes: int = 1) -> None:
        """Count passes."""
        self.passes[drafter] += passes
        self.exploring += exploring
        self.longest = max(self.longest, length)


def explain(
    target: CostCurve,
    chosen: Chosen,
    depth: int,
    draft_token_cost: float | None,
    draft_chance: float | None,
    drafter: str = "model",
) -> Explanation:
    """Explain a request.

    Args:
        target: what passes of the target cost.
        chosen: what was chosen.
        depth: tokens of context at its end.
        draft_token_cost: seconds of a draft model's token; None without one.
        draft_chance: how likely its next token is to be accepted.
        drafter: who drafts with it: 'model' or 'head'.
    """
    alone = target.seconds(1, depth)
    costs = {width: round(target.seconds(width, depth) / alone, 2) for width in _SHOWN_WIDTHS}
    ratio = None if draft_token_cost is None else round(draft_token_cost / alone, 2)
    reasons = [_of_lookup(chosen, costs)]
    if ratio is not None and draft_chance is not None:
        reasons.append(_of_model(chosen, ratio, draft_chance, drafter))
    if not target.is_measured and target.has_scale:
        reasons.append("pass costs are only known from passes so far: lcspec tune measures them")
    return Explanation(
        reasons,
        dict(chosen.passes),
        chosen.exploring,
        costs if target.has_scale else {},
        target.is_measured,
        ratio,
        None if draft_chance is None else round(draft_chance, 3),
    )


def _of_lookup(chosen: Chosen, costs: dict[int, float]) -> str:
    total = chosen.passes.total()
    used = chosen.passes["lookup"]
    prices = f"a pass over 4 tokens costs {costs[4]:.1f} single ones, over 16 {costs[16]:.1f}"
    if used:
        return f"lookup drafted for {used:,} of {total:,} passes, up to {chosen.longest:,} tokens: {prices}"
    if chosen.offers:
        return f"lookup off: its {chosen.offers:,} drafts were too unlikely to be right, as {prices}"
    return "lookup off: nothing in the text repeated"


def _of_model(chosen: Chosen, ratio: float, chance: float, drafter: str) -> str:
    used, total = chosen.passes[drafter], chosen.passes.total()
    price = f"a draft token costs {ratio:.2f} of a target pass"
    if used > chosen.exploring:
        passes = f"{used:,} of {total:,} passes"
        return f"draft {drafter} drafted for {passes}: {price}, and {chance:.0%} are expected to be right"
    return f"draft {drafter} off: {price}, too much where {chance:.0%} should be right"
