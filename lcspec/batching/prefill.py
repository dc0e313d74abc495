"""How much of the prompts that wait goes into a pass."""

from collections.abc import Sequence

from lcspec.planner import CostCurve

_STALL = 0.14  # seconds that a pass may take beside texts that go on, well under 0.2 as passes vary,
_STALL_TOKENS = 10  # or that so many tokens alone take, where that is more
_LEAST_PROPORTION, _MOST_PROPORTION = 0.3, 4.0
_SLOWER_WEIGHT, _FASTER_WEIGHT = 0.5, 0.1  # of a pass: one that takes long is believed at once
_UNKNOWN = 32  # tokens, while nothing is known of what passes cost


class MixedPasses:
    """Knows how many tokens a pass may have in which prompts are beside texts, which wait for it.

    Tokens of a prompt need no logits, so that such a pass takes less than one of as many tokens that do: how much less
    is learned, and what is wrong in the costs with it.
    """

    def __init__(self) -> None:
        self._proportion = 1.0  # of what such passes take to what is known of others

    def longest(self, costs: CostCurve, depth: int, least: int, most: int) -> int:
        """Return how many tokens the next one may have.

        Args:
            costs: what passes cost whose tokens all get logits.
            depth: tokens of context, on average.
            least: tokens that it has at least.
            most: and at the most.
        """
        if not costs.has_scale:
            return max(least, min(_UNKNOWN, most))
        allowed = max(_STALL, _STALL_TOKENS * costs.seconds(1, depth)) / self._proportion
        low, high = least, max(least, most)
        while low < high:
            middle = (low + high + 1) // 2
            if costs.seconds(middle, depth) <= allowed:
                low = middle
            else:
                high = middle - 1
        return low

    def record(self, costs: CostCurve, width: int, depth: int, seconds: float) -> None:
        """Learn from one that took `seconds`."""
        proportion = min(max(seconds / costs.seconds(width, depth), _LEAST_PROPORTION), _MOST_PROPORTION)
        weight = _SLOWER_WEIGHT if proportion > self._proportion else _FASTER_WEIGHT
        self._proportion += weight * (proportion - self._proportion)


def fair_parts(wanted: Sequence[int], n: int) -> list[int]:
    """Divide `n` tokens: everybody gets the same, or all that is wanted where that is less."""
    parts = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for place, i in enumerate(order):
        parts[i] = min(wanted[i], n // (len(order) - place))
        n -= parts[i]
    return parts
