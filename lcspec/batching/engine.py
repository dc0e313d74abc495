"""An engine that many requests share."""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from lcspec.batching.metrics import Metrics
from lcspec.batching.request import Finished, Listener, Request, Timings
from lcspec.batching.ticket import Ticket
from lcspec.engine import SpeculativeLM
from lcspec.errors import ClosedError, QueueFullError
from lcspec.limits import DrafterName
from lcspec.prompts import Prompts, check_options
from lcspec.rules import make_rule
from lcspec.store import NgramStore

_log = logging.getLogger(__name__)


class BatchingEngine:
    """A target model whose passes serve many requests at once. Usable as a context manager.

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
        self._lm = SpeculativeLM(
            target,
            drafter=drafter,
            n_ctx=n_ctx,
            threads=threads,
            exact=exact,
            draft_tokens=draft_tokens,
            store=store,
            learn=learn,
            download=download,
        )
        self.target = self._lm.target
        self.exact = exact
        self._prompts = Prompts(self.target, self.n_ctx)
        self._preparing = threading.Lock()
        self._queue: deque[tuple[Ticket, Listener, float]] = deque()
        self._cancelled: set[int] = set()
        self._queue_limit = queue_limit
        self._changed = threading.Condition()
        self._closing = False
        self._active = 0
        self._count = 0
        self._outcomes: Counter[str] = Counter()
        self._refused = 0
        self._thread = threading.Thread(target=self._run, name="lcspec-batching", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The name of the model's file."""
        return self.target.path.name

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and text of a request may have together."""
        return self._lm.n_ctx

    def tokenize(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt, having made sure that it can be continued."""
        with self._preparing:
            return self._prompts.tokens(prompt)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to where the assistant's answer begins."""
        with self._preparing:
            return self._prompts.chat(messages)

    def submit(self, request: Request, listener: Listener) -> Ticket:
        """Take a request.

        Raises:
            PromptError: the prompt or an option can't be used; TooLongError: the prompt leaves no room for a text.
            QueueFullError: too many wait.
            EngineDownError: the engine failed more than once.
            ClosedError: it was closed.
        """
        self._prompts.tokens(request.prompt)
        check_options(
            self.target,
            max_tokens=request.max_tokens,
            stop=request.stop,
            sampling=request.sampling,
            logprobs=request.logprobs,
        )
        make_rule(request.sampling, request.rule, 0)
        with self._changed:
            if self._closing:
                raise ClosedError("the engine is closed")
            if len(self._queue) >= self._queue_limit:
                self._refused += 1
                raise QueueFullError(len(self._queue), 1.0)
            self._count += 1
            number = self._count
            ticket = Ticket(number, request, lambda: self._cancelled.add(number))
            self._queue.append((ticket, listener, time.perf_counter()))
            self._changed.notify_all()
            return ticket

    def metrics(self) -> Metrics:
        """Return what was done so far."""
        with self._changed:
            return Metrics(
                requests=dict(self._outcomes), refused=self._refused, queued=len(self._queue), active=self._active
            )

    def close(self, drain: bool = False, timeout: float | None = None) -> None:
        """End: with `drain` when all requests are done or `timeout` seconds are over, else now."""
        with self._changed:
            self._closing = True
            if not drain:
                self._cancelled.update(ticket.number for ticket, _, _ in self._queue)
                self._cancelled.add(self._count)
            self._changed.notify_all()
        self._thread.join(timeout)
        self._lm.close()
        self._prompts.close()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closing:
                    self._changed.wait()
                if not self._queue:
                    return
                ticket, listener, arrived = self._queue.popleft()
                self._active = 1
            self._serve(ticket, listener, arrived)
            self._active = 0

    def _serve(self, ticket: Ticket, listener: Listener, arrived: float) -> None:
        request = ticket.request
        started = time.perf_counter()
        stream = self._lm.stream(
            request.prompt,
            max_tokens=request.max_tokens,
            stop=request.stop,
            sampling=request.sampling,
            rule=request.rule,
            logprobs=request.logprobs,
            drafter=None if request.speculate else "none",
        )
        first, error = None, None
        with stream:
            try:
                while ticket.number not in self._cancelled and (piece := next(stream, None)) is not None:
                    first = first or time.perf_counter() - arrived
                    listener(piece)
            except Exception as caught:
                error = caught
        completion = stream.completion
        stats = completion.stats
        timings = Timings(
            prompt_tokens=stats.prompt_tokens,
            cached_tokens=stats.cached_tokens,
            tokens=stats.tokens,
            queued_seconds=started - arrived,
            prompt_seconds=stats.prefill_seconds,
            decode_seconds=stats.decode_seconds,
            first_token_seconds=first,
            draft_n=stats.drafted,
            draft_n_accepted=stats.accepted,
        )
        if error is not None:
            completion = replace(completion, finish_reason="cancelled")
        finished = Finished(completion, timings, error)
        self._outcomes["error" if error else completion.finish_reason] += 1
        ticket.finish(finished)
        try:
            listener(finished)
        except Exception:
            _log.exception("a listener failed")

    def __enter__(self) -> "BatchingEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
