"""An engine that many requests share."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from lcspec.batching.drafting import SharedDrafter
from lcspec.batching.metrics import Metrics
from lcspec.batching.request import Listener, Request
from lcspec.batching.served import Served
from lcspec.batching.service import Service
from lcspec.batching.target import Target
from lcspec.batching.ticket import Ticket
from lcspec.batching.users import Users
from lcspec.checks import check_whole
from lcspec.drafters import Drafter, LookupDrafter, NoDrafter
from lcspec.errors import PromptError
from lcspec.limits import MAX_CONTEXT, MAX_THREADS, MAX_WIDTH, DrafterName
from lcspec.llama import release_threads
from lcspec.logprobs import no_scores, scorer
from lcspec.loop import Writing
from lcspec.planner import WIDEST, AcceptanceTable, shipped_priors
from lcspec.prompts import Prompts, check_options
from lcspec.rules import make_rule
from lcspec.stats import Stats
from lcspec.store import NgramStore, StoreOfModel
from lcspec.stream import Pieces

_SHORTEST_MATCH, _LONGEST_MATCH = 3, 64


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
        measure: measure what passes cost, as of `SpeculativeLM`.
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
        measure: bool = True,
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
        self._drafts = drafter != "none"
        self._most_drafted = min(draft_tokens or WIDEST - 1, MAX_WIDTH - 1)
        self._acceptance = AcceptanceTable(shipped_priors()["lookup"])
        self._store = None if store is None else StoreOfModel(store, self.target, learns=learn)
        self._prompts = Prompts(self.target, self.n_ctx)
        self._users = Users()  # of the model, beside the engine's own thread
        self._compiling = threading.Lock()  # the chat template, of which there is one
        try:
            self._service = Service(self._target, max_sequences, queue_limit, self._store, measure=measure)
        except BaseException:
            self._target.close()
            raise
        release_threads()  # the service's own thread evaluates from now on

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
        with self._users.use():
            self._service.check_open()
            return self._prompts.tokens(prompt)

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to where the assistant's answer begins.

        Raises:
            PromptError: the model has no chat template, or it refuses the messages.
        """
        with self._users.use():
            self._service.check_open()
            with self._compiling:
                self._prompts.template  # noqa: B018  is made when it is first asked for
            return self._prompts.chat(messages)

    def submit(self, request: Request, listener: Listener) -> Ticket:
        """Take a request. Any thread may do that; it does not wait for the model.

        Raises:
            PromptError: the prompt or an option can't be used; TooLongError where the prompt leaves no room for a text.
            QueueFullError: too many wait.
            EngineDownError: the engine failed more than once.
            ClosedError: it was closed.
        """
        with self._users.use():
            return self._service.take(request, self._prepared(request, listener))

    def _prepared(self, request: Request, listener: Listener) -> Callable[[Ticket], Served]:
        """Return what makes of a request's ticket what is served."""
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

        def serve(ticket: Ticket) -> Served:
            return Served(ticket, listener, writing, pieces, drafter, rule, used_seed)

        return serve

    def metrics(self) -> Metrics:
        """Return what was done so far, and what is going on."""
        return self._service.metrics()

    def close(self, drain: bool = False, timeout: float | None = None) -> None:
        """Take no more requests, end those there are, and free the model; closing again does nothing.

        Args:
            drain: finish them, those that wait too. Otherwise they are cancelled.
            timeout: seconds after which those that are left are cancelled after all.
        """
        self._service.close(drain, timeout)
        self._users.let_no_more()
        self._prompts.close()
        self._users.wait()
        self._target.close()

    def __enter__(self) -> "BatchingEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _drafter(self, request: Request) -> Drafter:
        if not (self._drafts and request.speculate and self._service.can_draft):
            return NoDrafter()
        lookup = LookupDrafter(
            self.target.is_eog,
            WIDEST - 1,
            min_match=_SHORTEST_MATCH,
            max_match=_LONGEST_MATCH,
            digits=self.target.digits,
            store=self._store,
        )
        return SharedDrafter(lookup, self._acceptance, self._target.alone.costs, self._most_drafted, request.prediction)
