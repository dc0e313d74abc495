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
    rest = list(prompt[start:])
    least = rest[:_LEAST]
    longest, end = 0, start
    for i in range(start + 1, len(cached) - _LEAST + 1):
        if list(cached[i : i + _LEAST]) == least and (n := common_prefix_length(cached[i:], rest)) > longest:
            longest, end = n, i
    return (start, end) if longest else None
