"""The thread that serves requests: who waits, who begins, who ends, and what happens when all fails."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from lcspec.batching.batch import Batch
from lcspec.batching.counts import Counts
from lcspec.batching.metrics import Metrics
from lcspec.batching.packing import Ended
from lcspec.batching.request import Request
from lcspec.batching.served import Served
from lcspec.batching.target import Target
from lcspec.batching.ticket import Ticket
from lcspec.errors import ClosedError, EngineDownError, QueueFullError
from lcspec.idle import IdleWork
from lcspec.store import StoreOfModel
from lcspec.stream import FinishReason

_log = logging.getLogger(__name__)

_CRASHES = 2  # from which on the engine stays down


class Service:
    """Serves requests in the order in which they come, several at a time.

    What fails in one request ends that request. Where a whole pass fails, all that were in it end, and the rest goes on
    with an empty cache; but only once.

    Args:
        target: the target.
        max_sequences: requests that are served together.
        queue_limit: requests that may wait.
        store: what is written is added to it; None without one.
        measure: measure what passes cost, in a moment without requests.
    """

    def __init__(
        self, target: Target, max_sequences: int, queue_limit: int, store: StoreOfModel | None, *, measure: bool
    ) -> None:
        self._target = target
        self._max_sequences = max_sequences
        self._queue_limit = queue_limit
        self._store = store
        self._counts = Counts()
        self._batch = Batch(target, self._counts)
        self.can_draft = self._batch.can_draft
        """Whether there can be drafts."""
        self._changed = threading.Condition()
        self._queue: deque[Served] = deque()
        self._cancelled: set[int] = set()
        self._cancels_all = False
        self._n_tickets = 0
        self._is_closing = self._is_down = False
        self._idle_work = IdleWork(target.measure_costs)
        if not measure or not self.can_draft:
            self._idle_work.close()
        self._thread = threading.Thread(target=self._run, name="lcspec-batching", daemon=True)
        self._thread.start()

    # what any thread does

    def check_open(self) -> None:
        """Make sure that requests are taken.

        Raises:
            ClosedError: the engine was closed.
            EngineDownError: it failed too often.
        """
        if self._is_closing:
            raise ClosedError("the engine is closed")
        if self._is_down:
            raise EngineDownError(f"the engine failed {_CRASHES} times and is down: start it again")

    def take(self, request: Request, make: Callable[[Ticket], Served]) -> Ticket:
        """Let a request wait for its turn.

        Args:
            request: the request.
            make: makes of its ticket what is served.

        Raises:
            QueueFullError: too many wait.
            ClosedError, EngineDownError: as of `check_open`.
        """
        with self._changed:
            self.check_open()
            n_free = max(0, self._max_sequences - len(self._batch.active))
            if len(self._queue) >= self._queue_limit + n_free:
                self._counts.refused += 1
                raise QueueFullError(len(self._queue), self._retry_after())
            self._n_tickets += 1
            number = self._n_tickets
            ticket = Ticket(number, request, lambda: self._cancel(number))
            self._queue.append(make(ticket))
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
                sequences=batch.slots.n_taken,
                kept=batch.slots.n_kept,
                max_sequences=self._max_sequences,
                cells=batch.n_cells,
                max_cells=self._target.n_ctx,
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

    def close(self, drain: bool, timeout: float | None) -> None:
        """Take no more requests, and end those there are, as `BatchingEngine.close` says."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._idle_work.close()
        if drain:
            self._thread.join(timeout)
        with self._changed:
            self._cancels_all = True
            self._changed.notify_all()
        self._thread.join()
        self._idle_work.join()
        self._batch.close()

    def _cancel(self, number: int) -> None:
        with self._changed:
            self._cancelled.add(number)

    def _retry_after(self) -> float:
        """Return about when one of those that wait begins, and so another one may."""
        return max(1.0, self._counts.mean_seconds / self._max_sequences)

    # what its own thread does

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._queue or self._is_closing):
                    self._changed.wait()
                if not self._queue:
                    return
            with self._idle_work.request():
                while self._queue or self._batch.active:
                    try:
                        self._step()
                    except Exception as error:
                        self._restart(error)
                self._batch.settle()

    def _step(self) -> None:
        self._end_cancelled()
        self._admit()
        if self._batch.active:
            for ended in self._batch.step():
                self._end(ended)
            self._wait_again(self._batch.take_preempted())

    def _end_cancelled(self) -> None:
        if not (self._cancelled or self._cancels_all):
            return
        with self._changed:
            cancelled, self._cancelled = self._cancelled, set()
            waiting = [one for one in self._queue if self._cancels_all or one.ticket.number in cancelled]
            for one in waiting:
                self._queue.remove(one)
        for one in waiting:
            self._finish(one, "cancelled")
        for one in [one for one in self._batch.active if self._cancels_all or one.ticket.number in cancelled]:
            self._batch.drop(one)
            self._finish(one, "cancelled")

    def _admit(self) -> None:
        """Let the first that waits begin, if there is room; one in a step, as the others wait for that."""
        if not self._queue or len(self._batch.active) >= self._max_sequences:
            return
        first = self._queue[0]
        if first.ticket.request.max_tokens != 0 and not self._batch.admit(first):
            return
        with self._changed:
            self._queue.popleft()
        if first.ticket.request.max_tokens == 0:
            self._finish(first, "length")

    def _wait_again(self, preempted: list[Served]) -> None:
        """Let requests wait before all others, in the order of their arrival."""
        if not preempted:
            return
        with self._changed:
            self._queue.extendleft(sorted(preempted, key=lambda one: one.ticket.number, reverse=True))

    def _end(self, ended: Ended) -> None:
        one = ended.served
        self._batch.drop(one, keep=ended.error is None)
        self._finish(one, "cancelled", ended.error)
        if self._store is not None and ended.error is None:
            self._store.learn([token for token in one.new_tokens if not self._target.model.is_eog(token)])

    def _finish(self, one: Served, reason: FinishReason, error: Exception | None = None) -> None:
        if error is not None:
            _log.warning("request %d failed: %s", one.ticket.number, error)
        finished = one.finish(reason, error)
        self._counts.finish(finished)
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
            for one in failed:
                if one in self._queue:  # its beginning failed
                    self._queue.remove(one)
            if self._counts.crashes >= _CRASHES:
                self._is_down = True
                failed += self._queue
                self._queue.clear()
        for one in failed:
            down = EngineDownError(f"the engine failed: {error}")
            down.__cause__ = error
            self._finish(one, "cancelled", down)
