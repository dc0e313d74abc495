"""The texts that are written together, pass by pass."""

import time
from collections.abc import Iterable
from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lcspec.batching.counts import Counts
from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.prefill import fair_parts, longest_pass
from lcspec.batching.sequence import Sequence
from lcspec.batching.slots import Slots
from lcspec.batching.target import Target
from lcspec.llama import MAX_WIDTH, PREFILL_BATCH, Chunk
from lcspec.loop import Pass
from lcspec.planner import Division, Share, Wish, divide

_MARGIN = 16  # cells for each text that is written, before another one begins
_PROMPTS_SHARE = 4  # prompts get a pass's width over this at least, if they wait


@dataclass(frozen=True)
class Part:
    """What a pass evaluates of a text.

    Attributes:
        sequence: the text.
        tokens: the tokens.
        n_logits: for how many of the last of them logits are wanted: all of a text that goes on, and of a prompt at
            most the last.
    """

    sequence: Sequence
    tokens: Several[int]
    n_logits: int

    @property
    def is_text(self) -> bool:
        """Whether it goes on with a text; with a prompt of one token, that is the same."""
        return self.n_logits == len(self.tokens)


@dataclass(frozen=True)
class Ended:
    """A request that ended.

    Attributes:
        sequence: the request.
        error: why it failed; None where it did not.
    """

    sequence: Sequence
    error: Exception | None = None


class Batch:
    """Packs the next tokens of all texts into passes.

    A text whose prompt is in the cache adds a token to each pass, and a draft as far as `divide` grants one. Prompts
    fill up the pass, in equal parts, as far as the others may wait.

    With `exact`, a pass with tokens that are not of a prompt is no wider than was probed to be exact. Where the way in
    which a prompt is cut shows, a prompt is evaluated alone and in whole batches, as in an engine without neighbours;
    then prompts and texts take turns of about the same time.

    Args:
        target: the target.
        counts: counts what is done.
    """

    def __init__(self, target: Target, counts: Counts) -> None:
        self._target = target
        self._counts = counts
        self._context = target.make_context()
        self.slots = Slots(self._context, target.n_sequences, any_cut=target.any_cut)
        self.active: list[Sequence] = []
        """Requests that have a slot, in the order of their arrival."""
        self.can_draft = self._context.can_truncate
        """Whether there can be drafts."""
        self.is_single = target.exact and not self._context.in_order
        """Whether only one text can be written at a time."""
        self._number = 0  # of the pass
        self._owed = 0.0  # seconds that texts waited for prompts
        self._preempted: list[Sequence] = []
        self._refused: Sequence | None = None  # for lack of room; asked again when a request is taken out
        self._ended: list[Ended] = []

    @property
    def n_cells(self) -> int:
        """Tokens in the cache."""
        return self._context.n_used

    def close(self) -> None:
        """Free the cache."""
        self._context.close()

    # who is in it

    def admit(self, sequence: Sequence) -> bool:
        """Give a request a slot, if there is room for it; should its drafter fail, the next `step` says so."""
        if self.active and (self.is_single or self._refused == sequence):
            return False
        tokens = sequence.writing.committed
        prefix = self.slots.find(tokens)
        wanted = len(tokens) - prefix.n_tokens + _MARGIN * (len(self.active) + 1)
        if self.active and not self.slots.fits(prefix, wanted):
            self._refused = sequence
            return False
        slot = self.slots.take(prefix)
        if not sequence.began:
            self._counts.begin(len(sequence.prompt), prefix.n_tokens)
        self.active.append(sequence)
        self.active.sort(key=lambda one: one.ticket.number)
        try:
            sequence.begin(slot, prefix.n_tokens)
        except Exception as error:
            self._ended.append(Ended(sequence, error))
        return True

    def drop(self, sequence: Sequence, *, keep: bool = True) -> None:
        """Take a request out, and keep what the cache has of it, unless that may be wrong."""
        self.active.remove(sequence)
        self.slots.give_back(self._slot(sequence), keep=keep and not self.is_single)
        sequence.slot = None
        self._refused = None

    def take_preempted(self) -> list[Sequence]:
        """Return the requests that had to give their cells to older ones, and have to go on later."""
        preempted, self._preempted = self._preempted, []
        return preempted

    def _make_room(self, n_tokens: int, first: Sequence) -> bool:
        """Make room for tokens, by taking out the youngest requests but `first`, and tell whether there is."""
        while not self.slots.make_room(n_tokens):
            if self.active[-1] is first:
                return False
            self._preempt(self.active[-1])
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.drop(sequence)
        self._preempted.append(sequence)
        self._counts.preempted += 1

    # a pass

    def step(self) -> list[Ended]:
        """Evaluate the next tokens, and return the requests that ended."""
        if self._ended:
            return self._take_ended()
        self._number += 1
        started = time.perf_counter()
        self._make_room(len(self.active), self.active[0])
        behind = [one for one in self.active if self._n_behind(one)]
        ready = [one for one in self.active if not self._n_behind(one)]
        if behind and not self._target.any_cut and (self._owed <= 0 or not ready):
            parts = self._whole_part(min(behind, key=lambda one: one.last_step))
        else:
            parts = self._mixed(ready, behind if self._target.any_cut else [])
        if not parts:
            return self._take_ended()
        drafting = time.perf_counter() - started
        started = time.perf_counter()
        depth = self._depth(part.sequence for part in parts)
        rows = self._context.evaluate([Chunk(self._slot(part.sequence), part.tokens, part.n_logits) for part in parts])
        done: list[Pass | None] = []
        for part, logits in zip(parts, rows, strict=True):
            part.sequence.last_step = self._number
            done.append(self._advance(part, logits, drafting))
        self._learn(parts, done, depth, time.perf_counter() - started)
        return self._take_ended()

    def _take_ended(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def _advance(self, part: Part, logits: NDArray[np.float32], drafting: float) -> Pass | None:
        """Go on with a text, if there are logits; what fails ends that text only."""
        if not part.n_logits:
            return None
        sequence = part.sequence
        try:
            done = sequence.advance(logits, drafting, exact=self._target.exact)
        except Exception as error:
            self._ended.append(Ended(sequence, error))
            return None
        if self._context.can_truncate:
            self._context.truncate(self._slot(sequence), len(sequence.writing.committed) - 1)
        if sequence.is_finished:
            self._ended.append(Ended(sequence))
        return done

    def _mixed(self, ready: list[Sequence], behind: list[Sequence]) -> list[Part]:
        """Return parts of texts that go on, and of prompts beside them."""
        most = self._target.max_width
        waiting = sorted(ready, key=lambda one: one.last_step)
        texts = waiting[: most - most // _PROMPTS_SHARE if behind else most]
        depth = self._depth(texts)
        wishes = self._wishes(texts)
        prompts = self._prompt_parts(behind, len(wishes), depth)
        n_prompt = sum(len(part.tokens) for part in prompts)
        n_rows = sum(part.n_logits for part in prompts)
        most = min(most - n_prompt if self._target.exact else most, MAX_WIDTH - n_rows)
        wanted = sum(min(wish.limit, max(map(len, wish.offers), default=0)) for wish in wishes.values())
        self.slots.make_room(len(wishes) + n_prompt + min(wanted, most))
        return [*self._text_parts(wishes, depth, min(most, self._context.n_free - n_prompt)), *prompts]

    def _wishes(self, texts: list[Sequence]) -> dict[Sequence, Wish]:
        """Return what texts could use of a pass; what fails ends that text only."""
        wishes = {}
        for one in texts:
            try:
                wishes[one] = one.wish(len(texts))
            except Exception as error:
                self._ended.append(Ended(one, error))
        return wishes

    def _prompt_parts(self, behind: list[Sequence], n_texts: int, depth: int) -> list[Part]:
        """Return parts of prompts, as much as `n_texts` texts may wait for."""
        if not behind:
            return []
        widest = PREFILL_BATCH
        if n_texts:
            widest = self._target.max_width if self._target.exact else PREFILL_BATCH
            widest = longest_pass(self._target.costs, depth, n_texts + 1, widest)
        wanted = [self._n_behind(one) + 1 for one in behind]
        n = min(widest - n_texts, sum(wanted))
        self.slots.make_room(n_texts + n)
        n = min(n, self._context.n_free - n_texts)
        parts = fair_parts(wanted, n)
        return [self._prompt_part(one, n) for one, n in zip(behind, parts, strict=True) if n]

    def _text_parts(self, wishes: dict[Sequence, Wish], depth: int, most: int) -> list[Part]:
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

    def _prompt_part(self, one: Sequence, n: int) -> Part:
        """Return the next tokens that the cache lacks; with the last of them come logits."""
        committed, start = one.writing.committed, len(self._context.tokens(self._slot(one)))
        tokens = committed[start : start + n]
        return Part(one, tokens, int(start + len(tokens) == len(committed)))

    def _whole_part(self, one: Sequence) -> list[Part]:
        """Return the next whole batch of a prompt, or behind that as much as is exact of what was written."""
        slot, n_prompt = self._slot(one), len(one.prompt)
        start = len(self._context.tokens(slot))
        n = min(PREFILL_BATCH, n_prompt - start) if start < n_prompt else self._target.max_width
        part = self._prompt_part(one, n)
        if not self._make_room(len(part.tokens), one):
            self._preempt(one)
            return []
        if start < n_prompt:
            self.slots.note_whole(slot, (start + n) // PREFILL_BATCH * PREFILL_BATCH)
        return [part]

    def _learn(self, parts: list[Part], done: list[Pass | None], depth: int, seconds: float) -> None:
        """Learn what a pass cost, and what drafts brought."""
        costs, width = self._target.costs, sum(len(part.tokens) for part in parts)
        texts = [(part, one) for part, one in zip(parts, done, strict=True) if part.is_text]
        self._counts.record(width, done)
        self._owed = max(0.0, self._owed - seconds) if texts else self._owed + seconds
        if len(texts) == len(parts) or not costs.has_scale:
            costs.record(width, depth, seconds)
        if not costs.has_scale or not texts:
            return
        base = len(texts)
        n_drafted = sum(len(part.tokens) for part, _ in texts) - base
        plain = costs.seconds(base, depth)
        dearer = max(0.0, costs.seconds(base + n_drafted, depth) - plain)
        for part, one in texts:
            if one is not None and isinstance(part.sequence.drafter, SharedDrafter):
                drafted = len(part.tokens) - 1
                lost = dearer * drafted / max(1, n_drafted)
                part.sequence.drafter.credit.record_pass(
                    plain, base=base, drafted=drafted, accepted=one.accepted, lost=lost
                )

    def _n_behind(self, one: Sequence) -> int:
        """Return how many tokens the cache lacks before the last one."""
        return len(one.writing.committed) - 1 - len(self._context.tokens(self._slot(one)))

    def _slot(self, one: Sequence) -> int:
        assert one.slot is not None
        return one.slot

    def _depth(self, sequences: Iterable[Sequence]) -> int:
        """Return how many tokens of context there are on average."""
        depths = [len(self._context.tokens(self._slot(one))) for one in sequences]
        return sum(depths) // len(depths) if depths else 0
