"""How much of the prompts that wait goes into a pass."""

from collections.abc import Sequence

from lcspec.planner import CostCurve

_STALL = 0.16  # seconds that a pass may take beside texts that go on, well under 0.2 as passes vary,
_STALL_TOKENS = 10  # or that so many tokens alone take, where that is more
_UNKNOWN = 32  # tokens, while nothing is known of what passes cost


def longest_pass(costs: CostCurve, depth: int, least: int, most: int) -> int:
    """Return how many tokens a pass may have that texts wait for.

    Args:
        costs: what passes cost.
        depth: tokens of context, on average.
        least: tokens that it has at least.
        most: and at the most.
    """
    if not costs.has_scale:
        return max(least, min(_UNKNOWN, most))
    allowed = max(_STALL, _STALL_TOKENS * costs.seconds(1, depth))
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        if costs.seconds(middle, depth) <= allowed:
            low = middle
        else:
            high = middle - 1
    return low


def fair_parts(wanted: Sequence[int], n: int) -> list[int]:
    """Divide `n` tokens: everybody gets the same, or all that is wanted where that is less."""
    parts = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for place, i in enumerate(order):
        parts[i] = min(wanted[i], n // (len(order) - place))
        n -= parts[i]
    return parts
