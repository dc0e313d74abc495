"""What an engine that many share did since it was made."""

from dataclasses import asdict, dataclass, field
from typing import Any

from lcspec.stats import DrafterStats


@dataclass(frozen=True)
class Metrics:
    """A snapshot.

    Attributes:
        requests: those that ended, by outcome: a finish reason ('eog', 'stop', 'length', 'cancelled') or 'error'.
        refused: requests that found the queue full.
        queued: requests that wait now.
        active: requests whose text is being written now.
        sequences: sequences of the KV cache that active requests have now.
        kept: texts that ended and are kept beside the cache, as another request may begin like them.
        max_sequences: requests that may be active together.
        cells: tokens in the KV cache now.
        max_cells: tokens that it holds.
        prompt_tokens: of all requests that began.
        cached_tokens: those of them that needed no evaluation.
        cache_hits: requests of whose prompt some had been evaluated before.
        tokens: tokens that were emitted.
        passes: evaluations of the target.
        evaluated: tokens of them.
        preempted: times that a request gave its cells to an older one, to go on later.
        drafters: draft tokens that were verified and accepted, by drafter.
        first_token_seconds: sum of the times from arrival to first token, and how many.
        first_tokens: requests that came to their first token.
        crashes: times that the engine failed.
        is_up: whether it takes requests.
    """

    requests: dict[str, int] = field(default_factory=dict)
    refused: int = 0
    queued: int = 0
    active: int = 0
    sequences: int = 0
    kept: int = 0
    max_sequences: int = 0
    cells: int = 0
    max_cells: int = 0
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
    is_up: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as JSON types."""
        return asdict(self)
