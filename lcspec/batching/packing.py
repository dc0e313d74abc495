"""What goes into the next pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.prefill import PromptPlan, longest_with_drafts
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
    fill up the pass, or have one of their own, as far as the others may wait; they take turns.

    With `exact`, a pass with tokens that are not of a prompt is no wider than was probed to be exact. Where the way in
    which a prompt is cut shows, a prompt is evaluated alone and in whole batches, as in an engine without neighbours.

    Args:
        target: the target.
        context: its cache.
    """

    def __init__(self, target: Target, context: SharedContext) -> None:
        self._target = target
        self._context = context
        self.prompt_plan = PromptPlan()
        """How prompts and texts share the time."""

    def mixed(self, ready: list[Served], behind: list[Served], failed: list[Ended], waited: float = 0.0) -> list[Part]:
        """Return parts of texts that go on, and of prompts beside them; or of prompts alone, where that is faster.

        Args:
            ready: texts that can go on.
            behind: those with a prompt, or what was written, to be evaluated first.
            failed: is given those that fail.
            waited: seconds that `ready` waited since their last pass.
        """
        most = self._target.max_width
        waiting = sorted(ready, key=lambda one: one.last_step)
        texts = waiting[: most - most // _PROMPTS_SHARE if behind else most]
        depth = self.depth(texts)
        prompts, is_mixed = self._prompts(behind, len(texts), depth)
        if not is_mixed:
            return prompts
        wishes = self._wishes(texts, depth, failed)
        n_prompt = sum(len(part.tokens) for part in prompts)
        n_rows = sum(part.n_logits for part in prompts)
        most = min(most - n_prompt if self._target.exact else most, MAX_WIDTH - n_rows)
        if len(texts) > 1 or prompts or waited:
            widest = longest_with_drafts(self._target.costs, depth, n_prompt + len(texts), waited, n_prompt + most)
            most = min(most, max(len(texts), widest - n_prompt))
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

    def _prompts(self, behind: list[Served], n_texts: int, depth: int) -> tuple[list[Part], bool]:
        """Return parts of prompts, as much as `n_texts` texts may wait for, and whether these go on beside them."""
        wanted = sum(self.n_behind(one) + 1 for one in behind)
        n, is_mixed = min(PREFILL_BATCH, wanted), True
        if n_texts and wanted:
            beside = self._target.max_width if self._target.exact else PREFILL_BATCH
            n, is_mixed = self.prompt_plan.n_tokens(self._target.costs, depth, n_texts, wanted, (beside, PREFILL_BATCH))
        n = min(n, self._context.n_free - n_texts)
        parts = []
        for one in sorted(behind, key=lambda one: one.last_step):
            part = self._prompt_part(one, n)
            n -= len(part.tokens)
            if part.tokens:
                parts.append(part)
        return parts, is_mixed

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
