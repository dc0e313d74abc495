"""The texts that are written together, pass by pass."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lcspec.batching.counts import Counts
from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.following import Following
from lcspec.batching.packing import Ended, Part, pack
from lcspec.batching.reader import PromptReader, Reading
from lcspec.batching.served import NO_SLOT, Served
from lcspec.batching.slots import NO_PREFIX, Prefix, Slots
from lcspec.batching.target import Target
from lcspec.llama import PREFILL_BATCH, Chunk
from lcspec.loop import Pass
from lcspec.planner import CostCurve

_MARGIN = 16  # cells for each text that is written, before another one begins
_LEAST_PART = 16  # tokens of a prompt that are worth reading by themselves
_BESIDE = 128  # tokens of a prompt that are read at a time beside texts, which have fewer threads until then


class Batch:
    """Goes on with all texts, pass by pass, and with prompts beside them.

    With `exact`, a pass over texts is no wider than was probed to be exact. Where it shows how a prompt is cut, it is
    read in whole batches, as in an engine without neighbours.

    Args:
        target: the target.
        counts: counts what is done.
    """

    def __init__(self, target: Target, counts: Counts) -> None:
        self._target = target
        self._counts = counts
        self._context = target.make_context()
        self.slots = Slots(self._context, any_cut=target.any_cut)
        self._reader = PromptReader(target.make_reading_context(), any_cut=target.any_cut)
        self.active: list[Served] = []
        """Requests that have a slot, in the order of their arrival."""
        self.can_draft = self._context.can_truncate
        """Whether there can be drafts."""
        self.is_single = target.exact and not self._context.in_order
        """Whether only one text can be written at a time."""
        self._number = 0  # of the pass
        self._preempted: list[Served] = []
        self._refused: Served | None = None  # for lack of room; asked again when a request is taken out
        self._following = Following(self._context, self.slots)
        self._ended: list[Ended] = []

    @property
    def n_cells(self) -> int:
        """Tokens in the cache."""
        return self._context.n_used

    def close(self) -> None:
        """Free the caches."""
        self._reader.close()
        self._context.close()

    # who is in it

    def admit(self, served: Served) -> bool:
        """Let a request begin, if there is room for it; should its drafter fail, the next `step` says so."""
        if self.active and (self.is_single or self._refused == served):
            return False
        tokens = served.writing.committed
        prefix = self.slots.find(tokens)
        leading = self._following.leading(self.active, tokens, prefix.n_tokens)
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
            self._following.add(served, leading)
        return True

    def _begin(self, served: Served, prefix: Prefix) -> None:
        slot = self.slots.take(prefix)
        n_cached = len(self._context.tokens(slot))
        served.last_step = self._number
        served.waits_since = self._reader.n_read
        if not served.began:
            self._counts.begin(len(served.prompt), n_cached)
        try:
            served.begin(slot, n_cached)
        except Exception as error:
            self._ended.append(Ended(served, error))

    def _n_to_come(self, served: Served) -> int:
        """Return how many tokens a request that began will add to the cache before its text goes on."""
        if served in self._following:
            return len(served.writing.committed) - self._following.n_shared(served)
        return self._n_behind(served)

    def _n_behind(self, served: Served) -> int:
        """Return how many tokens the cache lacks before the last one of a text."""
        return len(served.writing.committed) - 1 - len(self._context.tokens(served.slot))

    def _depth(self, sequences: Sequence[Served]) -> int:
        """Return how many tokens of context there are on average."""
        return sum(len(self._context.tokens(one.slot)) for one in sequences) // max(1, len(sequences))

    def drop(self, served: Served, *, keep: bool = True) -> None:
        """Take a request out, and keep what the cache has of it, unless that may be wrong."""
        self.active.remove(served)
        self._reader.forget(served)
        if not self._following.remove(served):
            self.slots.give_back(served.slot, keep=keep and not self.is_single)
        served.slot = NO_SLOT
        self._refused = None

    def take_preempted(self) -> list[Served]:
        """Return the requests that had to give their cells to older ones, and have to go on later."""
        preempted, self._preempted = self._preempted, []
        return preempted

    @property
    def _room(self) -> int:
        """Tokens that fit into the cache beside what is being read."""
        return self._context.n_free - self._reader.n_tokens

    def _make_room(self, n_tokens: int, first: Served) -> bool:
        """Make room for tokens, by taking out the youngest requests but `first`, and tell whether there is."""
        while self._room < n_tokens:
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
        """Go on with what can go on, and return the requests that ended."""
        self._number += 1
        self._take_read(wait=False)
        for one in self._following.take_those_who_can_begin(self.active):
            self._begin(one, self.slots.find(one.writing.committed))
        if self._ended:
            return self._take_ended()
        self._make_room(len(self.active), self.active[0])
        ready, behind = self._ready_and_behind()
        if behind and not self._reader.is_busy:
            self._read_on(behind, ready)
            ready = [one for one in ready if one in self.active]  # that may have taken some out, for room
        if ready:
            self._write_on(ready)
        else:
            self._take_read(wait=True)
        return self._take_ended()

    def settle(self) -> None:
        """Wait for what is read in vain, as nobody wants it any more."""
        self._reader.take(wait=True)

    def _ready_and_behind(self) -> tuple[list[Served], list[Served]]:
        """Return the texts that can go on, and those with a prompt, or what was written, to be read first.

        A rest of a few tokens is not worth reading by itself, if it may be evaluated with the texts, and there is room.
        """
        begun = [one for one in self.active if one not in self._following]
        ready, behind = [], []
        least, room = _LEAST_PART if self._target.any_cut else 1, self._room - len(begun)
        for one in begun:
            n = self._n_behind(one)
            if n < least and n <= room and not self._reader.reads(one):
                ready.append(one)
                room -= n
            else:
                behind.append(one)
        return ready, behind

    def _take_ended(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    # prompts

    def _read_on(self, behind: list[Served], ready: list[Served]) -> None:
        """Read more of a prompt: in a part of the threads if there are texts that go on meanwhile."""
        one = self._next_to_read(behind)
        n, width = self._cut(one, _BESIDE if ready else PREFILL_BATCH)
        of_texts = sum(1 + self._n_behind(text) for text in ready)
        if self._target.any_cut and ready:
            if self._room - of_texts < min(n, _LEAST_PART):
                return  # until some have ended, or given way
            n = min(n, self._room - of_texts)
        elif not self._make_room(n + of_texts, one):
            self._preempt(one)
            return
        beside = self._target.any_threads and any(text in self.active for text in ready)
        start = len(self._context.tokens(one.slot))
        reading = Reading(one, one.writing.committed[: start + n], start, width)
        before = None if self._reader.has(reading) else self._context.save(one.slot)
        threads = self._target.threads_reading if beside else self._target.alone.options.threads
        self._reader.begin(reading, before, threads, beside=beside)
        if not beside:
            self._take_read(wait=True)

    def _next_to_read(self, behind: list[Served]) -> Served:
        """Return whose prompt is next, by the highest response ratio (Brinch Hansen 1971).

        That is how long one has waited in proportion to how long it still takes, both counted in tokens that are read.
        Short prompts are soon over, and no long one waits for ever.
        """

        def ratio(one: Served) -> tuple[float, int]:
            n = self._n_behind(one)
            return (self._reader.n_read - one.waits_since) / n, -n

        return max(behind, key=ratio)

    def _cut(self, one: Served, most: int) -> tuple[int, int]:
        """Return how many tokens that the cache lacks are read next, and how many of them in a pass."""
        start, n_prompt = len(self._context.tokens(one.slot)), len(one.prompt)
        n = len(one.writing.committed) - start
        if self._target.any_cut:
            return min(n, most), PREFILL_BATCH
        if start < n_prompt:
            return min(n_prompt - start, PREFILL_BATCH), PREFILL_BATCH
        return min(n, most), self._target.max_width

    def _take_read(self, *, wait: bool) -> None:
        """Put what was read into the cache; the text begins behind the last of its prompt."""
        read = self._reader.take(wait=wait)
        if read is None:
            return
        served, n_tokens = read.reading.served, len(read.reading.tokens)
        self._context.restore(served.slot, read.state)
        self.slots.note_whole(served.slot, min(n_tokens, len(served.prompt)) // PREFILL_BATCH * PREFILL_BATCH)
        served.last_step = self._number
        done = self._advance(served, read.logits, 0.0) if n_tokens == len(served.writing.committed) else None
        self._counts.record(read.reading.n_tokens, [done], passes=read.reading.n_passes)

    # texts

    def _write_on(self, ready: list[Served]) -> None:
        """Evaluate the next tokens of texts."""
        pace = self._target.beside if self._reader.is_busy else self._target.alone
        started = time.perf_counter()
        depth, room = self._depth(ready), (self._target.max_width, self._room)
        rests = {one: self._rest(one) for one in ready if self._n_behind(one)}
        parts = pack(ready, rests, pace.costs, depth, room, self._ended, alone=len(self.active) == 1)
        if not parts:
            return
        drafting = time.perf_counter() - started
        started = time.perf_counter()
        self._context.use_threads(pace.options.threads)
        rows = self._context.evaluate([Chunk(part.served.slot, part.tokens, part.n_logits) for part in parts])
        done: list[Pass | None] = []
        for part, logits in zip(parts, rows, strict=True):
            part.served.last_step = self._number
            done.append(self._advance(part.served, logits, drafting))
        self._counts.record(sum(len(part.tokens) for part in parts), done)
        if all(part.n_logits == len(part.tokens) for part in parts):
            self._learn(parts, done, pace.costs, depth, time.perf_counter() - started)

    def _rest(self, served: Served) -> Sequence[int]:
        """Return the tokens that the cache lacks."""
        return served.writing.committed[len(self._context.tokens(served.slot)) :]

    def _advance(self, served: Served, logits: NDArray[np.float32], drafting: float) -> Pass | None:
        """Go on with a text; what fails ends that text only."""
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

    @staticmethod
    def _learn(parts: list[Part], done: list[Pass | None], costs: CostCurve, depth: int, seconds: float) -> None:
        """Learn what a pass cost, and what drafts brought."""
        base = len(parts)
        width = sum(len(part.tokens) for part in parts)
        costs.record(width, depth, seconds)
        plain = costs.seconds(base, depth)
        dearer = max(0.0, costs.seconds(width, depth) - plain)
        for part, one in zip(parts, done, strict=True):
            if one is not None and isinstance(part.served.drafter, SharedDrafter):
                drafted = len(part.tokens) - 1
                lost = dearer * drafted / max(1, width - base)
                part.served.drafter.credit.record_pass(
                    plain, base=base, drafted=drafted, accepted=one.accepted, lost=lost
                )
