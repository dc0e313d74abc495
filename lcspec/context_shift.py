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
    rest = prompt[start:]
    longest, end = 0, start
    for i in range(start + 1, len(cached) - _LEAST + 1):
        if rest and cached[i] == rest[0]:
            n = common_prefix_length(cached[i:], rest)
            if n > longest:
                longest, end = n, i
    return (start, end) if longest >= _LEAST else None
