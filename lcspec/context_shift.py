"""What of a cache goes when the oldest turns of a conversation leave its prompt."""

from collections.abc import Sequence

from lcspec.llama import common_prefix_length

_LEAST = 32  # tokens that have to be saved


def span_to_drop(cached: Sequence[int], prompt: Sequence[int]) -> tuple[int, int] | None:
    """Return the span of cached tokens without which the cache goes on as the prompt does, for longest.

    None where it goes on as the prompt does anyway, or where next to nothing would be saved.

    Args:
        cached: the tokens in the cache.
        prompt: the tokens of the next prompt.
    """
    start = common_prefix_length(cached, prompt)
    lengths = _common_lengths(cached[start + 1 :], prompt[start:])
    longest = max(lengths, default=0)
    return (start, start + 1 + lengths.index(longest)) if longest >= _LEAST else None


def _common_lengths(tokens: Sequence[int], beginning: Sequence[int]) -> list[int]:
    """Return how much of `beginning` stands at each place of `tokens`, by the Z-function (Gusfield, 1997)."""
    joined = [*beginning, None, *tokens]
    lengths = [0] * len(joined)
    left = right = 0  # of the place that reaches farthest
    for i in range(1, len(joined)):
        n = min(lengths[i - left], right - i) if i < right else 0
        while i + n < len(joined) and joined[i + n] == joined[n]:
            n += 1
        lengths[i] = n
        if i + n > right:
            left, right = i, i + n
    return lengths[len(beginning) + 1 :]
