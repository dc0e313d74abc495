"""An engine that many requests share."""

import logging
import secrets
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from lcspec.batching.batch import Batch, Ended
from lcspec.batching.counts import Counts
from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.metrics import Metrics
from lcspec.batching.request import Finished, Listener, Request
from lcspec.batching.sequence import Sequence as Served
from lcspec.batching.target import Target
from lcspec.batching.ticket import Ticket
from lcspec.checks import check_whole
from lcspec.drafters import Drafter, LookupDrafter, NoDrafter
from lcspec.errors import ClosedError, EngineDownError, PromptError, QueueFullError
from lcspec.limits import MAX_CONTEXT, MAX_THREADS, MAX_WIDTH, DrafterName
from lcspec.logprobs import no_scores, scorer
from lcspec.loop import Writing
from lcspec.planner import WIDEST, AcceptanceTable, shipped_priors
from lcspec.prompts import Prompts, check_options
from lcspec.rules import make_rule
from lcspec.stats import Stats
from lcspec.store import NgramStore, StoreOfModel
from lcspec.stream import FinishReason, Pieces

_log = logging.getLogger(__name__)

_SHORTEST_MATCH, _LONGEST_MATCH = 3, 64
_CRASHES = 2  # from which on the engine stays down


class BatchingEngine:
    """A target model whose passes serve many requests at once. Usable as a context manager.

    Requests begin in the order in which they come. Their texts are written together by a thread of the engine's own.

    Args:
        target: as of `SpeculativeLM`.
        n_ctx: tokens of KV cache that all requests share, and the most that one may have; None for the default.
        max_sequences: requests whose texts are written together.
        queue_limit: requests that may wait.
        threads: as of `SpeculativeLM`, like what follows.
        exact: each text is that of plain decoding, bit for bit, whoever else is served.
        drafter: 'auto' or 'lookup' to speculate, 'none' not to.
        draft_tokens: tokens of a draft at the most.
        store: earlier texts to draft from.
        learn: add what is written to the store.
        download: fetch a model that is not on this machine.

    Raises:
        PromptError: an option is out of range.
        ModelError: the model can't be found or loaded, or does not fit into memory.
    """

    def __init__(
        self,
        target: str | Path,
        *,
        n_ctx: int | None = None,
        max_sequences: int = 8,
        queue_limit: int = 64,
        threads: int | None = None,
        exact: bool = False,
        drafter: DrafterName = "auto",
        draft_tokens: int | None = None,
        store: NgramStore | None = None,
        learn: bool = False,
        download: bool = False,
    ) -> None:
        check_whole("max_sequences", max_sequences, 1)
        check_whole("queue_limit", queue_limit, 0)
        for name, value, low, high in (
            ("n_ctx", n_ctx, 2, MAX_CONTEXT),
            ("threads", threads, 1, MAX_THREADS),
            ("draft_tokens", draft_tokens, 1, MAX_WIDTH - 1),
        ):
            if value is not None:
                check_whole(name, value, low, high)
        if drafter not in ("auto", "lookup", "none"):
            raise PromptError(f"{drafter!r} is no drafter for many texts at once; choose from auto, lookup, none")
        if learn and store is None:
            raise PromptError("there is no store to learn in")
        self._target = Target(
            target, n_ctx=n_ctx, max_sequences=max_sequences, threads=threads, exact=exact, download=download
        )
        self.target = self._target.model
        """The model whose texts are wanted."""
        self.exact = exact
        """Whether texts are, bit for bit, those of plain decoding."""
        self._max_sequences = max_sequences
        self._queue_limit = queue_limit
        self._drafts = drafter != "none"
        self._most_drafted = min(draft_tokens or WIDEST - 1, MAX_WIDTH - 1)
        self._acceptance = AcceptanceTable(shipped_priors()["lookup"])
        self._store = None if store is None else StoreOfModel(store, self.target, learns=learn)
        self._prompts = Prompts(self.target, self.n_ctx)
        self._preparing = threading.Lock()  # of prompts
        self._counts = Counts()
        self._changed = threading.Condition()
        self._queue: deque[Served] = deque()
        self._cancelled: set[int] = set()
        self._n_tickets = 0
        self._is_closing = self._is_down = False
        try:
            self._batch = Batch(self._target, self._counts)
        except BaseException:
            self._target.close()
            raise
        self._thread = threading.Thread(target=self._run, name="lcspec-batching", daemon=True)
        self._thread.start()

    # what callers do

    @property
    def name(self) -> str:
        """The name of the model's file."""
        return self.target.path.name

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and text of a request may have together."""
        return self._target.n_ctx

    def tokenize(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt, having made sure that it can be continued.

        Raises:
            PromptError: it can't; TooLongError where it leaves no room for a text.
        """
        with self._preparing:
            self._check_open()
            return self._prompts.tokens(prompt)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to where the assistant's answer begins.

        Raises:
            PromptError: the model has no chat template, or it refuses the messages.
        """
        with self._preparing:
            self._check_open()
            return self._prompts.chat(messages)

    def submit(self, request: Request, listener: Listener) -> Ticket:
        """Take a request. Any thread may do that; it does not wait for the model.

        Raises:
            PromptError: the prompt or an option can't be used; TooLongError where the prompt leaves no room for a text.
            QueueFullError: too many wait.
            EngineDownError: the engine failed more than once.
            ClosedError: it was closed.
        """
        prompt = self.tokenize(request.prompt)
        for token in request.prediction:
            self.target.check_token(token)
        sampling = request.sampling
        stop = check_options(
            self.target, max_tokens=request.max_tokens, stop=request.stop, sampling=sampling, logprobs=request.logprobs
        )
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        rule = make_rule(sampling, request.rule, seed)
        room = self.n_ctx - len(prompt)
        max_tokens = room if request.max_tokens is None else min(request.max_tokens, room)
        drafter = self._drafter(request)
        writing = Writing(
            prompt,
            drafter,
            rule,
            end=len(prompt) + max_tokens,
            is_eog=self.target.is_eog,
            score=no_scores if request.logprobs is None else scorer(request.logprobs),
        )
        pieces = Pieces(self.target, Stats(prompt_tokens=len(prompt)), max_tokens, stop)
        used_seed = seed if sampling.temperature > 0 else None
        with self._changed:
            self._check_open()
            if len(self._queue) >= self._queue_limit + self._n_free():
                self._counts.refused += 1
                raise QueueFullError(len(self._queue), self._retry_after())
            self._n_tickets += 1
            number = self._n_tickets
            ticket = Ticket(number, request, lambda: self._cancel(number))
            self._queue.append(Served(ticket, listener, writing, pieces, drafter, rule, used_seed))
            self._changed.notify_all()
            return ticket

    def metrics(self) -> Metrics:
        """Return what was done so far, and what is going on."""
        with self._changed:
            counts, batch = self._counts, self._batch
            return Metrics(
                requests=dict(counts.requests),
                refused=counts.refused,
                queued=len(self._queue),
                active=len(batch.active),
                sequences=batch.slots.n_in_use,
                max_sequences=self._max_sequences,
                cells=batch.n_cells,
                max_cells=self.n_ctx,
                prompt_tokens=counts.prompt_tokens,
                cached_tokens=counts.cached_tokens,
                cache_hits=counts.cache_hits,
                tokens=counts.tokens,
                passes=counts.passes,
                evaluated=counts.evaluated,
                preempted=counts.preempted,
                drafters=dict(counts.drafters),
                first_token_seconds=counts.first_token_seconds,
                first_tokens=counts.first_tokens,
                crashes=counts.crashes,
                is_up=not self._is_down and not self._is_closing,
            )

    def close(self, drain: bool = False, timeout: float | None = None) -> None:
        """Take no more requests, end those there are, and free the model; closing again does nothing.

        Args:
            drain: finish them, those that wait too. Otherwise they are cancelled.
            timeout: seconds after which those that are left are cancelled after all.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if drain:
            self._thread.join(timeout)
        with self._changed:
            self._cancelled.update(range(1, self._n_tickets + 1))
            self._changed.notify_all()
        self._thread.join()
        with self._preparing:
            self._prompts.close()
            self._batch.close()
            self._target.close()

    def __enter__(self) -> "BatchingEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closing:
            raise ClosedError("the engine is closed")
        if self._is_down:
            raise EngineDownError(f"the engine failed {_CRASHES} times and is down: start it again")

    def _cancel(self, number: int) -> None:
        with self._changed:
            self._cancelled.add(number)
            self._changed.notify_all()

    def _n_free(self) -> int:
        return max(0, self._max_sequences - len(self._batch.active))

    def _retry_after(self) -> float:
        """Return about when a request that waits begins: texts end one after the other."""
        return max(1.0, self._counts.mean_seconds / self._max_sequences)

    def _drafter(self, request: Request) -> Drafter:
        if not (self._drafts and request.speculate and self._batch.can_draft):
            return NoDrafter()
        lookup = LookupDrafter(
            self.target.is_eog,
            WIDEST - 1,
            min_match=_SHORTEST_MATCH,
            max_match=_LONGEST_MATCH,
            digits=self.target.digits,
            store=self._store,
        )
        return SharedDrafter(lookup, self._acceptance, self._target.costs, self._most_drafted, request.prediction)

    # what the engine's thread does

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._queue or self._batch.active or self._is_closing):
                    self._changed.wait()
                if not (self._queue or self._batch.active):
                    return
            try:
                self._step()
            except Exception as error:
                self._restart(error)

    def _step(self) -> None:
        self._end_cancelled()
        self._admit()
        if not self._batch.active:
            return
        for ended in self._batch.step():
            self._end(ended)
        self._wait_again(self._batch.take_preempted())

    def _wait_again(self, preempted: list[Served]) -> None:
        with self._changed:
            self._queue.extendleft(sorted(preempted, key=lambda one: one.ticket.number, reverse=True))

    def _end_cancelled(self) -> None:
        with self._changed:
            cancelled, self._cancelled = self._cancelled, set()
            waiting = [one for one in self._queue if one.ticket.number in cancelled]
            for one in waiting:
                self._queue.remove(one)
        for one in waiting:
            self._finish(one, "cancelled")
        for one in [one for one in self._batch.active if one.ticket.number in cancelled]:
            self._batch.drop(one)
            self._finish(one, "cancelled")

    def _admit(self) -> None:
        """Let requests begin, in the order in which they came, as long as there is room."""
        while self._queue and len(self._batch.active) < self._max_sequences:
            first = self._queue[0]
            if first.ticket.request.max_tokens != 0 and not self._batch.admit(first):
                return
            with self._changed:
                self._queue.popleft()
            if first.ticket.request.max_tokens == 0:
                self._finish(first, "length")

    def _end(self, ended: Ended) -> None:
        one = ended.sequence
        self._batch.drop(one, keep=ended.error is None)
        self._finish(one, "cancelled", ended.error)
        if self._store is not None and ended.error is None:
            self._store.learn([token for token in one.new_tokens if not self.target.is_eog(token)])

    def _finish(self, one: Served, reason: FinishReason, error: Exception | None = None) -> None:
        if error is not None:
            _log.warning("request %d failed: %s", one.ticket.number, error)
        finished = one.finish(reason, error)
        self._counts.finish(finished)
        self._announce(one, finished)

    def _announce(self, one: Served, finished: Finished) -> None:
        try:
            one.announce(finished)
        except Exception:
            _log.warning("the listener of request %d failed at its end", one.ticket.number, exc_info=True)

    def _restart(self, error: Exception) -> None:
        """Fail what was being written, and go on with an empty cache, or not at all."""
        self._counts.crashes += 1
        _log.error("the engine failed", exc_info=error)
        failed = self._batch.active[:]
        self._batch.active.clear()
        self._wait_again(self._batch.take_preempted())
        try:
            self._batch.close()
            if self._counts.crashes < _CRASHES:
                self._batch = Batch(self._target, self._counts)
        except Exception as again:
            _log.error("the engine can't be restarted", exc_info=again)
            self._counts.crashes = _CRASHES
        with self._changed:
            if self._counts.crashes >= _CRASHES:
                self._is_down = True
                failed += self._queue
                self._queue.clear()
        for one in failed:
            down = EngineDownError(f"the engine failed: {error}")
            down.__cause__ = error
            self._finish(one, "cancelled", down)
