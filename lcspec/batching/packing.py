"""What goes into the next pass over texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.served import Served
from lcspec.llama import MAX_WIDTH, PREFILL_BATCH
from lcspec.planner import CostCurve, Division, Share, Wish, divide

_STALL = 0.15  # seconds from one token of a text to the next, under 0.2 as passes vary,
_STALL_TOKENS = 10  # or that so many tokens alone take, where that is more

_ABOUT_AS_FAST = 0.97  # in tokens a second, where more texts go on together


@dataclass(frozen=True)
class Part:
    """What a pass evaluates of a text: the next token, and a draft; or the rest of its prompt.

    Attributes:
        served: the text.
        tokens: the tokens.
        n_logits: for how many of the last of them logits are wanted: all, or one of a rest.
    """

    served: Served
    tokens: Sequence[int]
    n_logits: int


@dataclass(frozen=True)
class Ended:
    """A request that ended.

    Attributes:
        served: the request.
        error: why it failed; None where it did not.
    """

    served: Served
    error: Exception | None = None


def pack(
    ready: Sequence[Served],
    rests: Mapping[Served, Sequence[int]],
    costs: CostCurve,
    depth: int,
    room: tuple[int, int],
    failed: list[Ended],
    *,
    alone: bool,
) -> list[Part]:
    """Return the next token of each text, and drafts as far as they pay, and as the others may wait for them.

    Args:
        ready: the texts; those that waited longest go on, if a pass has no room for all.
        rests: what has to be evaluated first, the next token with it, of those that have a rest of a prompt.
        costs: what passes cost.
        depth: tokens of context, on average.
        room: tokens that a pass may have, and that fit into the cache.
        failed: is given those that fail, which ends them only.
        alone: whether nobody waits for the pass but the text that it is for.
    """
    most = min(*room, MAX_WIDTH)
    texts = sorted(ready, key=lambda one: one.last_step)[: together(costs, depth, min(len(ready), most))]
    turns = len(ready) / max(1, len(texts))
    if any(one in rests for one in texts):
        return _with_rests(texts, rests, longest(costs, depth, 1, min(room[1], PREFILL_BATCH), turns=turns))
    wishes = _wishes(texts, costs, depth, failed)
    if not alone:
        most = longest(costs, depth, len(texts), most, turns=turns)
    return _parts(wishes, costs, depth, most)


def _with_rests(texts: Sequence[Served], rests: Mapping[Served, Sequence[int]], most: int) -> list[Part]:
    """Return the rests of prompts and the next tokens of other texts, as many as make `most` tokens; at least one."""
    parts: list[Part] = []
    n = 0
    for one in texts:
        tokens = rests[one] if one in rests else one.writing.propose(0)
        if not parts or n + len(tokens) <= most:
            parts.append(Part(one, tokens, 1))
            n += len(tokens)
    return parts


def together(costs: CostCurve, depth: int, n_texts: int) -> int:
    """Return how many of some texts should go on in one pass, for most tokens a second.

    Mostly all. But one token is bound by memory and several by arithmetic: where that is scarce, a pass over two may
    take longer than two over one.
    """
    if n_texts < 2 or not costs.has_scale:
        return n_texts
    seconds, _ = costs.padded(depth)
    n = min(n_texts, len(seconds) - 1)
    rates = np.arange(1, n + 1) / seconds[1 : n + 1]
    return int(np.flatnonzero(rates >= _ABOUT_AS_FAST * rates.max())[-1]) + 1


def longest(costs: CostCurve, depth: int, least: int, most: int, *, turns: float = 1.0) -> int:
    """Return how many tokens a pass may have with the drafts of its texts, for which each of them waits.

    Args:
        costs: what passes cost.
        depth: tokens of context, on average.
        least: tokens that it has without drafts.
        most: most tokens.
        turns: passes until each of them has had one.
    """
    if not costs.has_scale:
        return most
    allowed = max(_STALL, _STALL_TOKENS * costs.seconds(1, depth)) / turns
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        if costs.seconds(middle, depth) <= allowed:
            low = middle
        else:
            high = middle - 1
    return low


def _wishes(texts: Sequence[Served], costs: CostCurve, depth: int, failed: list[Ended]) -> dict[Served, Wish]:
    """Return what texts could use of a pass; what fails ends that text only."""
    wishes = {}
    for one in texts:
        try:
            wishes[one] = one.wish(len(texts), depth, costs)
        except Exception as error:
            failed.append(Ended(one, error))
    return wishes


def _parts(wishes: dict[Served, Wish], costs: CostCurve, depth: int, most: int) -> list[Part]:
    """Return the next token of each text, and drafts as far as they pay in a pass of `most` tokens."""
    base = len(wishes)
    division = Division((Share(),) * base, base)
    if costs.has_scale and most > base and any(wish.offers for wish in wishes.values()):
        division = divide(list(wishes.values()), *costs.padded(depth), most)
    padding = division.width - base - sum(share.length for share in division.shares)
    longest_draft = max((share.length for share in division.shares), default=0)
    parts = []
    for one, share in zip(wishes, division.shares, strict=True):
        padded, padding = (padding, 0) if share.length == longest_draft else (0, padding)
        if isinstance(one.drafter, SharedDrafter):
            one.drafter.take(share, padded)
        tokens = one.writing.propose(most)
        parts.append(Part(one, tokens, len(tokens)))
    return parts
