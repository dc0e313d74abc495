"""The texts that are written together, pass by pass."""

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lcspec.batching.counts import Counts
from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.packing import Ended, Packing, Part
from lcspec.batching.served import NO_SLOT, Served
from lcspec.batching.slots import NO_PREFIX, Prefix, Slots
from lcspec.batching.target import Target
from lcspec.llama import PREFILL_BATCH, Chunk, common_prefix_length
from lcspec.loop import Pass

_WORTH_WAITING = 32  # tokens of a prompt that another request is evaluating
_MARGIN = 16  # cells for each text that is written, before another one begins


class Leading(NamedTuple):
    """A request that evaluates what another one begins with, too.

    Attributes:
        served: the request.
        n_tokens: tokens that both begin with.
    """

    served: Served
    n_tokens: int


class Batch:
    """Goes on with all texts, pass by pass.

    Where prompts have to be evaluated alone, they and texts take turns of about the same time.

    Args:
        target: the target.
        counts: counts what is done.
    """

    def __init__(self, target: Target, counts: Counts) -> None:
        self._target = target
        self._counts = counts
        self._context = target.make_context()
        self.slots = Slots(self._context, any_cut=target.any_cut)
        self._packing = Packing(target, self._context)
        self.active: list[Served] = []
        """Requests that have a slot, in the order of their arrival."""
        self.can_draft = self._context.can_truncate
        """Whether there can be drafts."""
        self.is_single = target.exact and not self._context.in_order
        """Whether only one text can be written at a time."""
        self._number = 0  # of the pass
        self._owed = 0.0  # seconds that texts waited for prompts
        self._has_ready = False  # texts that could go on
        self._preempted: list[Served] = []
        self._refused: Served | None = None  # for lack of room; asked again when a request is taken out
        self._following: dict[Served, Leading] = {}  # requests that wait for what others evaluate
        self._ended: list[Ended] = []

    @property
    def n_cells(self) -> int:
        """Tokens in the cache."""
        return self._context.n_used

    def close(self) -> None:
        """Free the cache."""
        self._context.close()

    # who is in it

    def admit(self, served: Served) -> bool:
        """Let a request begin, if there is room for it; should its drafter fail, the next `step` says so."""
        if self.active and (self.is_single or self._refused == served):
            return False
        tokens = served.writing.committed
        prefix = self.slots.find(tokens)
        leading = self._leading(tokens, prefix.n_tokens)
        shared = prefix.n_tokens if leading is None else leading.n_tokens
        wanted = len(tokens) - shared + _MARGIN * (len(self.active) + 1) + sum(map(self._n_to_come, self.active))
        if self.active and not self.slots.fits(prefix if leading is None else NO_PREFIX, wanted):
            self._refused = served
            return False
        self.active.append(served)
        self.active.sort(key=lambda one: one.ticket.number)
        if leading is None:
            self._begin(served, prefix)
        else:
            self._following[served] = leading
        return True

    def _leading(self, tokens: list[int], n_cached: int) -> Leading | None:
        """Return who evaluates just now what a prompt begins with, if that is worth waiting for."""
        best = None
        for one in self.active if self._context.can_truncate else ():
            n = self.slots.usable(common_prefix_length(one.writing.committed, tokens), len(tokens))
            if n > (best.n_tokens if best else n_cached + _WORTH_WAITING):
                best = Leading(one, n)
        return best

    def _begin_following(self) -> None:
        """Let requests begin for which others have evaluated what they share."""
        for served, leading in list(self._following.items()):
            if not self._is_at_it(leading):
                del self._following[served]
                self._begin(served, self.slots.find(served.writing.committed))

    def _is_at_it(self, leading: Leading) -> bool:
        """Tell whether what another request waits for is still to come."""
        leader = leading.served
        if leader not in self.active:
            return False
        return leader in self._following or len(self._context.tokens(leader.slot)) < leading.n_tokens

    def _begin(self, served: Served, prefix: Prefix) -> None:
        slot = self.slots.take(prefix)
        n_cached = len(self._context.tokens(slot))
        served.last_step = self._number
        if not served.began:
            self._counts.begin(len(served.prompt), n_cached)
        try:
            served.begin(slot, n_cached)
        except Exception as error:
            self._ended.append(Ended(served, error))

    def _n_to_come(self, served: Served) -> int:
        """Return how many tokens a request that began will add to the cache before its text goes on."""
        if served in self._following:
            return len(served.writing.committed) - self._following[served].n_tokens
        return self._packing.n_behind(served)

    def drop(self, served: Served, *, keep: bool = True) -> None:
        """Take a request out, and keep what the cache has of it, unless that may be wrong."""
        self.active.remove(served)
        if self._following.pop(served, None) is None:
            self.slots.give_back(served.slot, keep=keep and not self.is_single)
        served.slot = NO_SLOT
        self._refused = None

    def take_preempted(self) -> list[Served]:
        """Return the requests that had to give their cells to older ones, and have to go on later."""
        preempted, self._preempted = self._preempted, []
        return preempted

    def _make_room(self, n_tokens: int, first: Served) -> bool:
        """Make room for tokens, by taking out the youngest requests but `first`, and tell whether there is."""
        while self._context.n_free < n_tokens:
            if self.active[-1] is first:
                return False
            self._preempt(self.active[-1])
        return True

    def _preempt(self, served: Served) -> None:
        self.drop(served)
        self._preempted.append(served)
        self._counts.preempted += 1

    # a pass

    def step(self) -> list[Ended]:
        """Evaluate the next tokens, and return the requests that ended."""
        self._begin_following()
        if self._ended:
            return self._take_ended()
        self._number += 1
        started = time.perf_counter()
        self._make_room(len(self.active), self.active[0])
        parts = self._parts()
        if not parts:
            return self._take_ended()
        drafting = time.perf_counter() - started
        started = time.perf_counter()
        depth = self._packing.depth(part.served for part in parts)
        rows = self._context.evaluate([Chunk(part.served.slot, part.tokens, part.n_logits) for part in parts])
        done: list[Pass | None] = []
        for part, logits in zip(parts, rows, strict=True):
            part.served.last_step = self._number
            done.append(self._advance(part, logits, drafting))
        self._learn(parts, done, depth, time.perf_counter() - started)
        return self._take_ended()

    def _parts(self) -> list[Part]:
        """Return what the next pass evaluates."""
        begun = [one for one in self.active if one not in self._following]
        behind = [one for one in begun if self._packing.n_behind(one)]
        ready = [one for one in begun if not self._packing.n_behind(one)]
        self._has_ready = bool(ready)
        if not behind or (ready and self._owed > 0):
            return self._packing.mixed(ready, [], self._ended, self._owed if self._target.any_cut else 0.0)
        if self._target.any_cut:
            return self._packing.mixed(ready, behind, self._ended)
        first = min(behind, key=lambda one: one.last_step)
        part = self._packing.whole(first)
        if not self._make_room(len(part.tokens), first):
            self._preempt(first)
            return []
        start = len(self._context.tokens(first.slot))
        if start < len(first.prompt):
            self.slots.note_whole(first.slot, (start + len(part.tokens)) // PREFILL_BATCH * PREFILL_BATCH)
        return [part]

    def _take_ended(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def _advance(self, part: Part, logits: NDArray[np.float32], drafting: float) -> Pass | None:
        """Go on with a text, if there are logits; what fails ends that text only."""
        if not part.n_logits:
            return None
        served = part.served
        try:
            done = served.advance(logits, drafting, exact=self._target.exact)
        except Exception as error:
            self._ended.append(Ended(served, error))
            return None
        if self._context.can_truncate:
            self._context.truncate(served.slot, len(served.writing.committed) - 1)
        if served.is_finished:
            self._ended.append(Ended(served))
        return done

    def _learn(self, parts: list[Part], done: list[Pass | None], depth: int, seconds: float) -> None:
        """Learn what a pass cost, and what drafts brought."""
        costs, width = self._target.costs, sum(len(part.tokens) for part in parts)
        texts = [(part, one) for part, one in zip(parts, done, strict=True) if part.is_text]
        self._counts.record(width, done)
        if not texts:
            self._owed = self._owed + seconds if self._has_ready else 0.0
        else:
            self._owed = 0.0 if self._target.any_cut else max(0.0, self._owed - seconds)
        if len(texts) == len(parts) or not costs.has_scale:
            costs.record(width, depth, seconds)
        else:
            plan = self._packing.prompt_plan
            (plan.beside if texts else plan.alone).record(costs, width, depth, seconds)
        if not costs.has_scale or not texts:
            return
        base = len(texts)
        n_drafted = sum(len(part.tokens) for part, _ in texts) - base
        plain = costs.seconds(base, depth)
        dearer = max(0.0, costs.seconds(base + n_drafted, depth) - plain) if n_drafted else 0.0
        for part, one in texts:
            if one is not None and isinstance(part.served.drafter, SharedDrafter):
                drafted = len(part.tokens) - 1
                lost = dearer * drafted / max(1, n_drafted)
                part.served.drafter.credit.record_pass(
                    plain, base=base, drafted=drafted, accepted=one.accepted, lost=lost
                )
