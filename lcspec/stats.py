"""What a generation cost and what drafting brought."""

from dataclasses import asdict, dataclass, field
from typing import Any

from lcspec.loop import Pass
from lcspec.planner import Explanation


@dataclass
class DrafterStats:
    """One drafter's share: draft tokens that the target verified, and those it accepted."""

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0

    def __add__(self, other: "DrafterStats") -> "DrafterStats":
        return DrafterStats(self.drafts + other.drafts, self.drafted + other.drafted, self.accepted + other.accepted)


@dataclass
class Stats:
    """Counts and times of one generation, or, added up, of several.

    Attributes:
        prompt_tokens: length of the prompt.
        cached_tokens: how many of them were still in the KV cache.
        tokens: tokens that the passes emitted; an end-of-generation token, and what a pass emitted
            behind a stop string, are counted.
        target_passes: evaluations by the target behind the prompt.
        drafters: by name.
        prefill_seconds: from the start to the first token.
        decode_seconds: from the first token to the last.
        exact: True while the text is known to be, bit for bit, that of plain decoding; else the position of the
            first token of which that is not known, counted in the text from 0 (in a sum through all texts).
        plan: what the drafter 'auto' chose and why; None with another one, and in a sum.
        texts: generations that came to their first token: one, or as many as were added up.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    target_passes: int = 0
    drafters: dict[str, DrafterStats] = field(default_factory=dict)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    exact: bool | int = True
    plan: Explanation | None = None
    texts: int = 0

    def record(self, done: Pass) -> None:
        """Count a pass; the first one is the prefill."""
        if self.tokens == 0:
            self.cached_tokens = self.prompt_tokens - done.evaluated
            self.prefill_seconds = done.seconds
            self.texts = 1
        else:
            self.target_passes += 1
            self.decode_seconds += done.seconds
        if self.exact is True and not done.exact:
            self.exact = self.tokens
        self.tokens += len(done.emitted)
        if done.draft.tokens:
            share = self.drafters.setdefault(done.draft.drafter, DrafterStats())
            share.drafts += 1
            share.drafted += len(done.draft.tokens)
            share.accepted += done.accepted

    def __add__(self, other: "Stats") -> "Stats":
        """Return the statistics of the texts of both, one after the other; `sum(all_of_them, Stats())` adds several."""
        exact = self.exact
        if exact is True and other.exact is not True:
            exact = self.tokens + other.exact
        return Stats(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            tokens=self.tokens + other.tokens,
            target_passes=self.target_passes + other.target_passes,
            drafters={
                name: self.drafters.get(name, DrafterStats()) + other.drafters.get(name, DrafterStats())
                for name in {**self.drafters, **other.drafters}
            },
            prefill_seconds=self.prefill_seconds + other.prefill_seconds,
            decode_seconds=self.decode_seconds + other.decode_seconds,
            exact=exact,
            texts=self.texts + other.texts,
        )

    @property
    def drafted(self) -> int:
        """Draft tokens of all drafters."""
        return sum(share.drafted for share in self.drafters.values())

    @property
    def accepted(self) -> int:
        """Accepted draft tokens of all drafters."""
        return sum(share.accepted for share in self.drafters.values())

    @property
    def acceptance_rate(self) -> float:
        """Accepted over drafted tokens; 0 without drafts."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a target pass emitted on average; 1 in plain decoding, 0 before the first pass."""
        return (self.tokens - self.texts) / self.target_passes if self.target_passes else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed behind the first token of each text."""
        return (self.tokens - self.texts) / self.decode_seconds if self.decode_seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return counts, times and derived figures as JSON types."""
        derived = ("drafted", "accepted", "acceptance_rate", "tokens_per_pass", "tokens_per_second")
        plan = None if self.plan is None else self.plan.as_dict()
        return asdict(self) | {name: getattr(self, name) for name in derived} | {"plan": plan}
