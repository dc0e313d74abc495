"""How long texts may wait: for prompts, beside them or in a pass before theirs, and for drafts."""

from lcspec.planner import CostCurve

_STALL = 0.17  # seconds from one token of a text to the next, under 0.2 as passes vary,
_STALL_TOKENS = 10  # or that so many tokens alone take, where that is more
_LEAST_SHARE = 0.4  # of that for prompts, however many texts there are
_UNSURE = 1.3  # what a pass may take more than expected, as long as none of its kind was seen lately
_LEAST_PROPORTION, _MOST_PROPORTION = 0.3, 4.0
_SLOWER_WEIGHT, _FASTER_WEIGHT = 0.5, 0.1  # of a pass: one that takes long is believed at once
_FORGOTTEN = 0.01  # of what is known of one kind of pass, whenever the other is chosen, so that it is tried again
_UNKNOWN = 32  # tokens, while nothing is known of what passes cost
_TILE = 64  # so many tokens of one text, or more, share llama.cpp's work of attention
_NEARLY = 1.1  # what may be exceeded for a whole tile


class PromptPasses:
    """Knows how long passes with prompts take, and so how many tokens one may have for which texts wait.

    Tokens of a prompt need no logits, so that such a pass takes less than one of as many tokens that do: how much less
    is learned, and what is wrong in the costs with it.
    """

    def __init__(self) -> None:
        self._proportion = 1.0  # of what such passes take to what is known of others
        self._margin = _UNSURE

    def seconds(self, costs: CostCurve, width: int, depth: int) -> float:
        """Return about how long a pass over `width` tokens takes."""
        return costs.seconds(width, depth) * self._proportion

    def longest(self, costs: CostCurve, depth: int, least: int, most: int, waited: float = 0.0) -> int:
        """Return how many tokens the next one may have.

        Args:
            costs: what passes cost whose tokens all get logits.
            depth: tokens of context, on average.
            least: tokens that it has at least.
            most: and at the most.
            waited: seconds that texts wait besides.
        """
        if not costs.has_scale:
            return max(least, min(_UNKNOWN, most))
        return _widest(costs, depth, self._allowed(costs, depth, waited), least, most)

    def longest_in_tiles(self, costs: CostCurve, depth: int, most: int, waited: float) -> int:
        """Return how many tokens of one prompt the next one may have: whole tiles of attention, if about so many."""
        n = self.longest(costs, depth, 1, most, waited)
        tiles = max(_TILE, n // _TILE * _TILE)
        if costs.has_scale and tiles <= most:
            nearly = _NEARLY * self._allowed(costs, depth, waited)
            return tiles if costs.seconds(tiles, depth) <= nearly else n
        return n

    def _allowed(self, costs: CostCurve, depth: int, waited: float) -> float:
        """Return the seconds of a pass whose tokens all get logits that takes as long as this one may."""
        allowed = _allowed(costs, depth)
        return max(allowed - waited, _LEAST_SHARE * allowed) / self._proportion / self._margin

    def record(self, costs: CostCurve, width: int, depth: int, seconds: float) -> None:
        """Learn from one that took `seconds`."""
        proportion = min(max(seconds / costs.seconds(width, depth), _LEAST_PROPORTION), _MOST_PROPORTION)
        weight = _SLOWER_WEIGHT if proportion > self._proportion else _FASTER_WEIGHT
        self._proportion += weight * (proportion - self._proportion)
        self._margin = 1.0

    def forget(self) -> None:
        """Trust a little less in what was learned, as that was a pass ago."""
        self._proportion += _FORGOTTEN * (1.0 - self._proportion)
        self._margin = _UNSURE


class PromptPlan:
    """Decides how prompts that wait and texts that go on share the time.

    Either both are in one pass, which reads the weights once; or a pass has a part of one prompt, and the next one the
    texts. That is faster where weights are not what takes time, as attention goes over a part of one prompt faster than
    over tokens of several texts.
    """

    def __init__(self) -> None:
        self.beside = PromptPasses()
        """Passes with texts."""
        self.alone = PromptPasses()
        """Passes without."""

    def n_tokens(
        self, costs: CostCurve, depth: int, n_texts: int, wanted: int, widest: tuple[int, int]
    ) -> tuple[int, bool]:
        """Return how many tokens of prompts are next, and whether texts go on beside them.

        Args:
            costs: what passes cost.
            depth: tokens of context, on average.
            n_texts: texts that go on, at least one.
            wanted: tokens of all prompts.
            widest: most tokens of a pass with texts, and of one without.
        """
        beside = min(wanted, self.beside.longest(costs, depth, n_texts + 1, widest[0]) - n_texts)
        if not costs.has_scale:
            return beside, True
        texts = costs.seconds(n_texts, depth)
        alone = min(wanted, self.alone.longest_in_tiles(costs, depth, widest[1], texts))
        together = self.beside.seconds(costs, beside + n_texts, depth)
        apart = self.alone.seconds(costs, alone, depth) + texts
        if beside / together >= alone / apart:
            self.alone.forget()
            return beside, True
        self.beside.forget()
        return alone, False


def longest_with_drafts(costs: CostCurve, depth: int, least: int, waited: float, most: int) -> int:
    """Return how many tokens a pass may have with the drafts of its texts, for which each of them waits.

    Args:
        costs: what passes cost.
        depth: tokens of context, on average.
        least: tokens that it has without drafts.
        waited: seconds that the texts waited already.
        most: most tokens.
    """
    if not costs.has_scale:
        return most
    return _widest(costs, depth, _allowed(costs, depth) - waited, least, most)


def _allowed(costs: CostCurve, depth: int) -> float:
    return max(_STALL, _STALL_TOKENS * costs.seconds(1, depth))


def _widest(costs: CostCurve, depth: int, seconds: float, least: int, most: int) -> int:
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        if costs.seconds(middle, depth) <= seconds:
            low = middle
        else:
            high = middle - 1
    return low
