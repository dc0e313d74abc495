"""The engine: models loaded, prompts in, text out."""

import secrets
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypedDict
from weakref import WeakSet

from lcspec.checks import check_whole
from lcspec.drafters import Drafter
from lcspec.errors import ClosedError, PromptError
from lcspec.idle import IdleWork
from lcspec.limits import DRAFTERS, MAX_CONTEXT, MAX_THREADS, MAX_WIDTH, DrafterName
from lcspec.llama import release_threads, share_processors
from lcspec.llama_cpp_api import LlamaCppMethods
from lcspec.loaded import Loaded
from lcspec.logprobs import Scorer, no_scores, scorer
from lcspec.loop import Pass, speculate
from lcspec.planner import CostCurve
from lcspec.prompts import Prompts, check_options, token_ids
from lcspec.rules import Rule, RuleName, make_rule
from lcspec.sampling import GREEDY, SamplingParams
from lcspec.stats import Stats
from lcspec.store import NgramStore
from lcspec.stream import Completion, ReadMark, Stream
from lcspec.turns import Turns

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StreamOptions(TypedDict, total=False):
    """The options of `SpeculativeLM.stream`, which says what they mean."""

    max_tokens: int | None
    stop: Sequence[str]
    sampling: SamplingParams
    rule: RuleName | None
    logprobs: int | None
    drafter: DrafterName | None


class SpeculativeLM(LlamaCppMethods):
    """A language model that drafts ahead and verifies, and so writes the same text faster.

    Usable as a context manager. Threads may share one engine: their generations run one after the
    other. A prompt that begins like the last one is only evaluated from where it differs. `create_completion` and
    `create_chat_completion` are llama-cpp-python's.

    Args:
        target: the model whose text is wanted: a GGUF file, a catalog name such as 'smollm2-135m', or
            'hf:owner/repository/file.gguf[@revision]', 'hf:owner/repository[:quantization][@revision]'.
        draft: a smaller model with the same vocabulary, named in the same ways; "auto" is the one that is expected to
            bring most, of those that were measured with the target (`lcspec draft`), or none.
        drafter: who drafts: 'lookup' (repetitions of prompt and output), 'model' (the draft model),
            'none' (plain decoding), or 'auto' (at each pass whoever pays, as far as it pays).
        n_ctx: tokens that prompt and text may have together; by default 4,096, or less where the
            target was trained for less. What does not fit into memory is refused.
        threads: by default those that `lcspec tune` found fastest, else the physical cores that this process may use.
        draft_tokens: tokens of a draft, 1 to 127, at the most for 'auto', which by default decides by itself; by
            default 4 for 'model', and for 'lookup' half as many as matched, up to 15.
        exact: give, bit for bit, the text of plain decoding, whoever drafts and however long the context is. The
            model is loaded so that attention does not depend on how many tokens a pass has (slower behind long
            prompts), and passes are no wider than probed to be exact.
        one_layout: never load the target's weights a second time. Where that is faster, long prompts are otherwise
            evaluated with the weights as the file has them, and the text with weights laid out anew.
        store: texts that were written earlier, for 'auto' to draft from; the caller closes it.
        learn: add what is written to the store.
        measure: once on a machine, measure what passes cost, for a few seconds in a moment without requests. Until
            then, and without it, that is learned while generating.
        download: fetch a model that is not on this machine.

    Raises:
        PromptError: an option is out of range.
        ModelError: a model can't be found or loaded, does not fit into memory, or (PairError) the two
            don't fit each other.
    """

    def __init__(
        self,
        target: str | Path,
        draft: str | Path | None = None,
        drafter: DrafterName = "auto",
        *,
        n_ctx: int | None = None,
        threads: int | None = None,
        draft_tokens: int | None = None,
        exact: bool = False,
        one_layout: bool = False,
        store: NgramStore | None = None,
        learn: bool = False,
        measure: bool = True,
        download: bool = False,
    ) -> None:
        for name, value, low, high in (
            ("n_ctx", n_ctx, 2, MAX_CONTEXT),
            ("threads", threads, 1, MAX_THREADS),
            ("draft_tokens", draft_tokens, 1, MAX_WIDTH - 1),
        ):
            if value is not None:
                check_whole(name, value, low, high)
        _check_drafter(drafter)
        if drafter in ("model", "head") and draft is None:
            raise PromptError(f"the drafter {drafter!r} needs a draft {drafter}")
        if learn and store is None:
            raise PromptError("there is no store to learn in")
        self._loaded = Loaded(
            target,
            draft if drafter in ("auto", "model", "head") else None,
            n_ctx=n_ctx,
            threads=threads,
            draft_tokens=draft_tokens,
            exact=exact,
            one_layout=one_layout,
            store=store,
            learns=learn,
            download=download,
        )
        release_threads()
        if drafter not in self._loaded.drafters:
            self._loaded.close()
            raise PromptError(
                "the drafter 'model' needs a draft model, and of those that were measured none pays: name one"
            )
        self.target = self._loaded.target
        """The model whose text is wanted."""
        self.exact = exact
        """Whether texts are, bit for bit, those of plain decoding."""
        self._prompts = Prompts(self.target, self.n_ctx)
        self._turns = Turns()
        self._preparing = threading.Lock()  # prompts are prepared outside of turns, but not while the models go
        self._streams: WeakSet[Stream] = WeakSet()
        self._closed = False
        self._default_drafter = drafter
        self._last_mark = ReadMark(0)
        self._idle_work = IdleWork(self._measure_when_idle)
        if not measure:
            self._idle_work.close()

    @property
    def costs(self) -> CostCurve:
        """What passes of the target cost, as far as it is known."""
        planner = self._loaded.planner
        return CostCurve() if planner is None else planner.layouts.curves[0]

    def measure_costs(self, seconds: float | None = None, again: bool = False) -> None:
        """Measure what passes of the models cost, unless that was done on this machine before.

        Args:
            seconds: about how long that may take for each model; by default 2.5, or 9 for files of more than 500 MB.
            again: measure in any case.
        """
        with self._turns.turn():
            self._check_open()
            if self._loaded.costs is not None:
                self._loaded.costs.measure(seconds, again)

    def _measure_when_idle(self, should_stop: Callable[[], bool]) -> bool:
        with self._turns.turn():
            costs = self._loaded.costs
            return self._closed or costs is None or costs.measure(None, should_stop=should_stop)

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and text may have together."""
        return self._loaded.context.n_ctx

    @property
    def threads(self) -> int:
        """Threads that evaluate."""
        return self._loaded.threads

    def generate(self, prompt: str | Sequence[int], **options: "Unpack[StreamOptions]") -> Completion:
        """Continue `prompt` and return the whole text; options and errors are those of `stream`."""
        with self.stream(prompt, **options) as stream:
            for _ in stream:
                pass
            return stream.completion

    def chat(self, messages: Sequence[Mapping[str, str]], **options: "Unpack[StreamOptions]") -> Completion:
        """Answer a conversation; `stream` with `chat_prompt` gives the same in pieces."""
        return self.generate(self.chat_prompt(messages), **options)

    def stream(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        sampling: SamplingParams = GREEDY,
        rule: RuleName | None = None,
        logprobs: int | None = None,
        drafter: DrafterName | None = None,
    ) -> Stream:
        """Continue `prompt` and return an iterator over the pieces of the text.

        Args:
            prompt: a text, as the model itself reads it, or token ids.
            max_tokens: tokens to generate at the most; by default as many as the context holds.
            stop: strings at which the text ends; they are not part of it.
            sampling: how tokens are chosen; by default always the likeliest.
            rule: the acceptance rule: 'greedy' (at temperature 0), 'coupled' (the default above it: one seed gives
                one text, whoever drafts) or 'rejection' (accepts a little more, but the text depends on drafts).
            logprobs: give the log-probability of each token, and of this many of the likeliest.
            drafter: another drafter than the engine's, for this call.

        Raises:
            PromptError: the prompt is empty or does not fit, or an argument is out of range.
            BusyError: on the first piece, when this thread has an unfinished stream.
        """
        stop = check_options(self.target, max_tokens=max_tokens, stop=stop, sampling=sampling, logprobs=logprobs)
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        with self._preparing:
            self._check_open()
            tokens = self._prompts.tokens(prompt)
        generation = _Generation(
            drafter=self._drafter(self._default_drafter if drafter is None else drafter),
            rule=make_rule(sampling, rule, seed),
            score=no_scores if logprobs is None else scorer(logprobs),
            mark=ReadMark(len(tokens)),
            stats=Stats(prompt_tokens=len(tokens)),
        )
        room = self.n_ctx - len(tokens)
        max_tokens = room if max_tokens is None else min(max_tokens, room)
        passes = self._passes(tokens, generation, max_tokens)
        used_seed = seed if sampling.temperature > 0 else None
        stream = Stream(passes, self.target, generation.stats, max_tokens, stop, seed=used_seed, mark=generation.mark)
        self._streams.add(stream)
        return stream

    def chat_prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of a conversation, up to where the assistant's answer begins.

        Args:
            messages: mappings with 'role' (system, user or assistant) and 'content'.

        Raises:
            PromptError: the model has no chat template, or it refuses the messages.
        """
        with self._preparing:
            self._check_open()
            return self._prompts.chat(messages)

    def _drafter(self, name: DrafterName) -> Drafter:
        _check_drafter(name)
        if name not in self._loaded.drafters:
            raise PromptError(
                f"the drafter {name!r} needs a draft {name}, which is loaded for 'auto' and {name!r} only"
            )
        return self._loaded.drafters[name]

    def _passes(self, prompt: list[int], generation: "_Generation", max_tokens: int) -> Generator[Pass, None, None]:
        """Run one generation while holding the engine."""
        with self._idle_work.request(), self._turns.turn():
            self._check_open()
            if max_tokens == 0:
                return
            loaded = self._loaded
            self._forget_unread()
            self._last_mark = generation.mark
            passes = speculate(
                loaded.context,
                prompt,
                generation.drafter,
                generation.rule,
                max_tokens=max_tokens,
                is_eog=self.target.is_eog,
                max_width=loaded.max_width,
                score=generation.score,
            )
            written: list[int] = []
            try:
                for done in passes:
                    written += done.emitted
                    yield loaded.record(done, generation.drafter)
                    self._turns.advance()
            finally:
                share_processors()
                generation.stats.plan = loaded.explain(generation.drafter)
                if loaded.store is not None:
                    loaded.store.learn([token for token in written if not self.target.is_eog(token)])

    def _forget_unread(self) -> None:
        """Forget what drafts added to the cache behind what was read: it must not be reused."""
        if self._loaded.context.can_truncate:
            self._loaded.context.truncate(self._last_mark.n_tokens)

    def save_state(self, path: str | Path) -> bool:
        """Write what was evaluated to a file, for `restore_state`; False where that can't be, and the log says why.

        A file takes tens of KB a token. The states (*.kv) in a folder take 1 GB at most: the least recently used ones
        are removed.
        """
        with self._turns.turn():
            self._check_open()
            self._forget_unread()
            return self._loaded.caches.keep(Path(path))

    def restore_state(self, path: str | Path) -> int:
        """Go on from what was evaluated when a file was saved, so that a prompt that begins like it costs less.

        Returns:
            The tokens that need no evaluation; 0 where the file is missing, damaged, or of another model, library or
            way to load it.
        """
        with self._turns.turn():
            self._check_open()
            n_tokens = self._loaded.caches.recall(Path(path))
            if n_tokens:
                self._last_mark = ReadMark(n_tokens)
            return n_tokens

    def shift_to(self, prompt: Sequence[int]) -> int:
        """Make room for a prompt that leaves out a span of the last one, without evaluating what is behind it again.

        What is behind the span moves up in the cache, where it keeps what it saw of the span; the stats of the text
        then say that it is not known to be exact. An exact engine, and one whose cache can't be shifted, does nothing.

        Args:
            prompt: token ids, as `chat_prompt` gives them.

        Returns:
            How many tokens went.

        Raises:
            PromptError: the prompt is something else.
        """
        tokens = token_ids(prompt)
        with self._turns.turn():
            self._check_open()
            self._forget_unread()
            n_gone = self._loaded.caches.shift_to(tokens)
            self._last_mark = ReadMark(self._last_mark.n_tokens - n_gone)
            return n_gone

    def clear(self) -> None:
        """Forget the last prompt and text, so that the models evaluate the next prompt from its beginning."""
        with self._turns.turn():
            self._check_open()
            self._loaded.clear()

    def close(self) -> None:
        """End what is being generated, other threads' too, and free the models; closing again does nothing.

        A pass that runs in another thread is waited for; its stream then ends, 'cancelled'.
        """
        self._closed = True
        self._idle_work.close()
        for stream in list(self._streams):
            stream.close()
        with self._turns.turn(), self._preparing, ExitStack() as free:
            free.callback(self._loaded.close)
            free.callback(self._prompts.close)
            if self._loaded.costs is not None:
                self._loaded.costs.keep()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the engine is closed")

    def __enter__(self) -> "SpeculativeLM":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class _Generation:
    """What one generation is made with, and how far its text was read."""

    drafter: Drafter
    rule: Rule
    score: Scorer
    mark: ReadMark
    stats: Stats


def _check_drafter(name: str) -> None:
    if name not in DRAFTERS:
        raise PromptError(f"{name!r} is no drafter; choose from {', '.join(DRAFTERS)}")
