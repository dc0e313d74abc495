"""Counts of what an engine does."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from lcspec.batching.request import Finished
from lcspec.loop import Pass
from lcspec.stats import DrafterStats

_RECENT_WEIGHT = 0.2  # of a request in the mean time that requests take


@dataclass
class Counts:
    """What was done so far, as `Metrics` says; changed by the engine's thread."""

    requests: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_hits: int = 0
    tokens: int = 0
    passes: int = 0
    evaluated: int = 0
    preempted: int = 0
    drafters: dict[str, DrafterStats] = field(default_factory=dict)
    first_token_seconds: float = 0.0
    first_tokens: int = 0
    crashes: int = 0
    mean_seconds: float = 1.0
    """About what a request takes from its beginning to its end."""

    def begin(self, n_prompt: int, n_cached: int) -> None:
        """Count a request that begins."""
        self.prompt_tokens += n_prompt
        self.cached_tokens += n_cached
        self.cache_hits += n_cached > 0

    def record(self, width: int, done: Iterable[Pass | None], passes: int = 1) -> None:
        """Count a pass over `width` tokens, or several, and what came of it for each text."""
        self.passes += passes
        self.evaluated += width
        for one in done:
            if one is None:
                continue
            self.tokens += len(one.emitted)
            if one.draft.tokens:
                drafted = DrafterStats(1, len(one.draft.tokens), one.accepted)
                name = one.draft.drafter
                self.drafters[name] = self.drafters.get(name, DrafterStats()) + drafted

    def finish(self, finished: Finished) -> None:
        """Count a request that ended."""
        timings = finished.timings
        self.requests["error" if finished.error is not None else finished.completion.finish_reason] += 1
        if timings.first_token_seconds is None:
            return
        self.first_token_seconds += timings.first_token_seconds
        self.first_tokens += 1
        seconds = timings.prompt_seconds + timings.decode_seconds
        self.mean_seconds += _RECENT_WEIGHT * (seconds - self.mean_seconds)
