"""What goes into the next pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.prefill import MixedPasses, fair_parts
from lcspec.batching.served import Served
from lcspec.batching.target import Target
from lcspec.llama import MAX_WIDTH, PREFILL_BATCH, SharedContext
from lcspec.planner import Division, Share, Wish, divide

_PROMPTS_SHARE = 4  # prompts get a pass's width over this at least, if they wait


@dataclass(frozen=True)
class Part:
    """What a pass evaluates of a text.

    Attributes:
        served: the text.
        tokens: the tokens.
        n_logits: for how many of the last of them logits are wanted: all of a text that goes on, and of a prompt at
            most the last.
    """

    served: Served
    tokens: Sequence[int]
    n_logits: int

    @property
    def is_text(self) -> bool:
        """Whether it goes on with a text."""
        return self.n_logits == len(self.tokens)


@dataclass(frozen=True)
class Ended:
    """A request that ended.

    Attributes:
        served: the request.
        error: why it failed; None where it did not.
    """

    served: Served
    error: Exception | None = None


class Packing:
    """Packs the next tokens of texts and prompts into passes.

    A text whose prompt is in the cache adds a token to each pass, and a draft as far as `divide` grants one. Prompts
    fill up the pass, in equal parts, as far as the others may wait.

    With `exact`, a pass with tokens that are not of a prompt is no wider than was probed to be exact. Where the way in
    which a prompt is cut shows, a prompt is evaluated alone and in whole batches, as in an engine without neighbours.

    Args:
        target: the target.
        context: its cache.
    """

    def __init__(self, target: Target, context: SharedContext) -> None:
        self._target = target
        self._context = context
        self.mixed_passes = MixedPasses()
        """How long they may be."""

    def mixed(self, ready: list[Served], behind: list[Served], failed: list[Ended]) -> list[Part]:
        """Return parts of texts that go on, and of prompts beside them."""
        most = self._target.max_width
        waiting = sorted(ready, key=lambda one: one.last_step)
        texts = waiting[: most - most // _PROMPTS_SHARE if behind else most]
        depth = self.depth(texts)
        wishes = self._wishes(texts, depth, failed)
        prompts = self._prompt_parts(behind, len(wishes), depth)
        n_prompt = sum(len(part.tokens) for part in prompts)
        n_rows = sum(part.n_logits for part in prompts)
        most = min(most - n_prompt if self._target.exact else most, MAX_WIDTH - n_rows)
        return [*self._text_parts(wishes, depth, min(most, self._context.n_free - n_prompt)), *prompts]

    def _wishes(self, texts: list[Served], depth: int, failed: list[Ended]) -> dict[Served, Wish]:
        """Return what texts could use of a pass; what fails ends that text only."""
        wishes = {}
        for one in texts:
            try:
                wishes[one] = one.wish(len(texts), depth)
            except Exception as error:
                failed.append(Ended(one, error))
        return wishes

    def _prompt_parts(self, behind: list[Served], n_texts: int, depth: int) -> list[Part]:
        """Return parts of prompts, as much as `n_texts` texts may wait for."""
        if not behind:
            return []
        widest = PREFILL_BATCH
        if n_texts:
            widest = self._target.max_width if self._target.exact else PREFILL_BATCH
            widest = self.mixed_passes.longest(self._target.costs, depth, n_texts + 1, widest)
        wanted = [self.n_behind(one) + 1 for one in behind]
        n = min(widest - n_texts, sum(wanted), self._context.n_free - n_texts)
        parts = fair_parts(wanted, n)
        return [self._prompt_part(one, n) for one, n in zip(behind, parts, strict=True) if n]

    def _text_parts(self, wishes: dict[Served, Wish], depth: int, most: int) -> list[Part]:
        """Return the next token of each text, and drafts as far as they pay in a pass of `most` tokens."""
        base, costs = len(wishes), self._target.costs
        division = Division((Share(),) * base, base)
        if costs.has_scale and most > base and any(wish.offers for wish in wishes.values()):
            division = divide(list(wishes.values()), *costs.padded(depth), most)
        padding = division.width - base - sum(share.length for share in division.shares)
        longest = max((share.length for share in division.shares), default=0)
        parts = []
        for one, share in zip(wishes, division.shares, strict=True):
            padded, padding = (padding, 0) if share.length == longest else (0, padding)
            if isinstance(one.drafter, SharedDrafter):
                one.drafter.take(share, padded)
            tokens = one.writing.propose(most)
            parts.append(Part(one, tokens, len(tokens)))
        return parts

    def _prompt_part(self, one: Served, n: int) -> Part:
        """Return the next tokens that the cache lacks; with the last of them come logits."""
        committed, start = one.writing.committed, len(self._context.tokens(one.slot))
        tokens = committed[start : start + n]
        return Part(one, tokens, int(start + len(tokens) == len(committed)))

    def whole(self, one: Served) -> Part:
        """Return the next whole batch of a prompt, or behind that as much as is exact of what was written."""
        start, n_prompt = len(self._context.tokens(one.slot)), len(one.prompt)
        n = min(PREFILL_BATCH, n_prompt - start) if start < n_prompt else self._target.max_width
        return self._prompt_part(one, n)

    def n_behind(self, one: Served) -> int:
        """Return how many tokens the cache lacks before the last one of a text."""
        return len(one.writing.committed) - 1 - len(self._context.tokens(one.slot))

    def depth(self, sequences: Iterable[Served]) -> int:
        """Return how many tokens of context there are on average."""
        depths = [len(self._context.tokens(one.slot)) for one in sequences]
        return sum(depths) // len(depths) if depths else 0
