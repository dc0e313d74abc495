"""What texts took, as OpenAI's API and llama-server say it."""

from collections.abc import Sequence
from typing import Any

from lcspec.batching import Finished


def usage_of(finished: Sequence[Finished], n: int) -> dict[str, Any]:
    """Return OpenAI's `usage`; a prompt that `n` texts continue counts once."""
    prompts = [one.timings for one in finished[::n]]
    n_prompt = sum(one.prompt_tokens for one in prompts)
    n_text = sum(len(one.completion.tokens) for one in finished)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_text,
        "total_tokens": n_prompt + n_text,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_tokens for one in prompts)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": sum(one.timings.prediction_accepted for one in finished),
            "rejected_prediction_tokens": sum(one.timings.prediction_rejected for one in finished),
        },
    }


def timings_of(finished: Sequence[Finished]) -> dict[str, Any]:
    """Return llama-server's `timings`; those of several texts are added up."""
    timings = [one.timings for one in finished]
    cached = sum(one.cached_tokens for one in timings)
    return {
        "cache_n": cached,
        **_pace("prompt", sum(one.prompt_tokens for one in timings) - cached, sum(t.prompt_seconds for t in timings)),
        **_pace("predicted", sum(one.tokens for one in timings), sum(one.decode_seconds for one in timings)),
        "draft_n": sum(one.draft_n for one in timings),
        "draft_n_accepted": sum(one.draft_n_accepted for one in timings),
    }


def _pace(name: str, n: int, seconds: float) -> dict[str, Any]:
    return {
        f"{name}_n": n,
        f"{name}_ms": seconds * 1e3,
        f"{name}_per_token_ms": seconds * 1e3 / n if n else 0.0,
        f"{name}_per_second": n / seconds if seconds else 0.0,
    }
