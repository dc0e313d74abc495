"""The engine: models loaded, prompts in, text out."""

import math
import operator
import secrets
import threading
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, get_args
from weakref import WeakSet

from lcspec.chat_template import ChatTemplate
from lcspec.checks import check_whole
from lcspec.drafters import Drafter, FirstOf, LookupDrafter, ModelDrafter
from lcspec.errors import ClosedError, LcspecWarning, PairError, PromptError
from lcspec.exactness import ExactCells, LoadOptions, exact_widths, fastest_exact_options, known_widths
from lcspec.hub import check_pair, find_model, pre_tokenizer_difference
from lcspec.llama import (
    MAX_CONTEXT,
    MAX_THREADS,
    MAX_WIDTH,
    Context,
    ExactWidths,
    Header,
    Model,
    check_memory,
    read_header,
    usable_physical_cores,
)
from lcspec.logprobs import Scorer, no_scores, scorer
from lcspec.loop import Pass, speculate
from lcspec.rules import Rule, RuleName, make_rule
from lcspec.sampling import GREEDY, SamplingParams
from lcspec.stream import Completion, ReadMark, Stream
from lcspec.turns import Turns

if TYPE_CHECKING:
    from typing_extensions import Unpack

DrafterName: TypeAlias = Literal["auto", "none", "lookup", "model"]
DRAFTERS: tuple[DrafterName, ...] = get_args(DrafterName)

_DEFAULT_CONTEXT = 4096
_MODEL_LENGTH = 4


class StreamOptions(TypedDict, total=False):
    """The options of `SpeculativeLM.stream`, which says what they mean."""

    max_tokens: int | None
    stop: Sequence[str]
    sampling: SamplingParams
    rule: RuleName | None
    logprobs: int | None
    drafter: DrafterName | None


class SpeculativeLM:
    """A language model that drafts ahead and verifies, and so writes the same text faster.

    Usable as a context manager. Threads may share one engine: their generations run one after the
    other. A prompt that begins like the last one is only evaluated from where it differs.

    Args:
        target: the model whose text is wanted: a GGUF file, a catalog name such as 'smollm2-135m', or
            'hf:owner/repository/file.gguf[@revision]', 'hf:owner/repository[:quantization][@revision]'.
        draft: a smaller model with the same vocabulary, named in the same ways.
        drafter: who drafts: 'lookup' (repetitions of prompt and output), 'model' (the draft model),
            'none' (plain decoding), or 'auto' (lookup, then the draft model where there is one).
        n_ctx: tokens that prompt and text may have together; by default 4,096, or less where the
            target was trained for less. What does not fit into memory is refused.
        threads: by default the physical cores that this process may use.
        draft_tokens: tokens of a draft, 1 to 127; by default 4 for a draft model, and for lookup half as
            many as matched, up to 15.
        exact: give, bit for bit, the text of plain decoding, whoever drafts and however long the context is. The
            model is loaded so that attention does not depend on how many tokens a pass has (slower behind long
            prompts), and passes are no wider than probed to be exact.
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
        if drafter == "model" and draft is None:
            raise PromptError("the drafter 'model' needs a draft model")
        target_header = read_header(find_model(target, download=download))
        draft_header = None
        if draft is not None and drafter in ("auto", "model"):
            draft_header = read_header(find_model(draft, download=download))
        n_ctx = n_ctx or _default_context(target_header)
        check_memory(target_header, draft_header, n_ctx)

        self._turns = Turns()
        self._preparing = threading.Lock()  # prompts are prepared outside of turns, but not while the models go
        self._streams: WeakSet[Stream] = WeakSet()
        self._closed = False
        self._default_drafter = drafter
        self.exact = exact
        """Whether texts are, bit for bit, those of plain decoding."""
        self._last_mark = ReadMark(0)
        options = self._load_options(target_header, threads or usable_physical_cores())
        with ExitStack() as undo:
            self.target = undo.enter_context(Model(target_header, repack=options.repack))
            if n_ctx > self.target.n_ctx_train:
                _warn(
                    f"{self.target.path.name} was trained for {self.target.n_ctx_train:,} tokens of context, "
                    f"not {n_ctx:,}"
                )
            self._cells = ExactCells(self._exact_widths(target_header, options))
            self._context = Context(
                self.target, n_ctx, threads=options.threads, batch_invariant=options.batch_invariant
            )
            self._draft_context: Context | None = None
            self._drafters = self._load_drafters(draft_header, draft_tokens)
            undo.pop_all()

    def _load_options(self, header: Header, threads: int) -> LoadOptions:
        if self.exact:
            return fastest_exact_options(header, threads)
        return LoadOptions(repack=True, batch_invariant=False, threads=threads)

    def _exact_widths(self, header: Header, options: LoadOptions) -> ExactWidths:
        """Return what passes are known to be exact; what is only for information is not probed here."""
        if not self.exact:
            return known_widths(header, options)
        widths = exact_widths(self.target, options)
        if widths.everywhere == 1:
            _warn(f"{self.target.path.name} gives the same bits one token at a time only: exact means no drafts", 4)
        return widths

    def _load_drafters(self, draft: Header | None, length: int | None) -> dict[DrafterName, Drafter]:
        plain = FirstOf([])
        if not self._context.can_truncate:
            _warn(f"the cache of a {self.target.architecture} model can't be truncated: decoding without drafts", 4)
            return dict.fromkeys(DRAFTERS, plain)
        lookup = LookupDrafter(self.target.is_eog, length)
        drafters: dict[DrafterName, Drafter] = {"none": plain, "lookup": lookup, "auto": lookup}
        if draft is not None:
            self._draft_context = self._load_draft_context(draft)
            model = ModelDrafter(self._draft_context, self.target.n_vocab, length or _MODEL_LENGTH)
            drafters |= {"model": model, "auto": FirstOf([lookup, model])}
        return drafters

    def _load_draft_context(self, header: Header) -> Context:
        with ExitStack() as undo:
            model = undo.enter_context(Model(header))
            check_pair(self.target, model)
            if (difference := pre_tokenizer_difference(self.target, model)) is not None:
                _warn(f"{difference}: drafts may be worse", 5)
            context = Context(model, self.n_ctx, threads=self._context.threads)
            if not context.can_truncate:
                raise PairError(f"a {model.architecture} model can't draft: its cache can't be truncated")
            undo.pop_all()
        return context

    @property
    def n_ctx(self) -> int:
        """Tokens that prompt and text may have together."""
        return self._context.n_ctx

    @property
    def threads(self) -> int:
        """Threads that evaluate."""
        return self._context.threads

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
        if max_tokens is not None:
            check_whole("max_tokens", max_tokens, 0)
        stop = _stop_strings(stop)
        if not isinstance(sampling, SamplingParams):
            raise PromptError(f"sampling must be SamplingParams, not {type(sampling).__name__}")
        if logprobs is not None:
            check_whole("logprobs", logprobs, 0, self.target.n_vocab)
        for token in sampling.logit_bias:
            self.target.check_token(token)
        if sum(bias == -math.inf for bias in sampling.logit_bias.values()) == self.target.n_vocab:
            raise PromptError("logit_bias forbids every token")
        seed = secrets.randbits(64) if sampling.seed is None else sampling.seed
        with self._preparing:
            self._check_open()
            tokens = self._prompt_tokens(prompt)
        generation = _Generation(
            drafter=self._drafter(self._default_drafter if drafter is None else drafter),
            rule=make_rule(sampling, rule, seed),
            score=no_scores if logprobs is None else scorer(logprobs),
            mark=ReadMark(len(tokens)),
        )
        room = self.n_ctx - len(tokens)
        max_tokens = room if max_tokens is None else min(max_tokens, room)
        passes = self._passes(tokens, generation, max_tokens)
        used_seed = seed if sampling.temperature > 0 else None
        stream = Stream(passes, self.target, len(tokens), max_tokens, stop, seed=used_seed, mark=generation.mark)
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
            text = self._chat_template.render(messages)
            has_bos = self._bos_text != "" and text.startswith(self._bos_text)
            return self.target.tokenize(text, add_special=not has_bos)

    def _drafter(self, name: DrafterName) -> Drafter:
        _check_drafter(name)
        if name not in self._drafters:
            raise PromptError(f"the drafter {name!r} needs a draft model, which is loaded for 'auto' and 'model' only")
        return self._drafters[name]

    def _prompt_tokens(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            tokens = self.target.tokenize(prompt)
            if not tokens and self.target.bos is not None:
                tokens = [self.target.bos]
        else:
            tokens = _token_ids(prompt)
            for token in tokens:
                self.target.check_token(token)
        if not tokens:
            raise PromptError("the prompt is empty")
        if len(tokens) >= self.n_ctx:
            raise PromptError(
                f"the prompt has {len(tokens):,} tokens and the context holds {self.n_ctx:,}, "
                "of which the text needs at least one: shorten the prompt or take more context (n_ctx, --ctx)"
            )
        return tokens

    def _passes(self, prompt: list[int], generation: "_Generation", max_tokens: int) -> Generator[Pass, None, None]:
        """Run one generation while holding the engine."""
        with self._turns.turn():
            self._check_open()
            if max_tokens == 0:
                return
            if self._context.can_truncate:  # what drafts added behind what was read must not be reused
                self._context.truncate(self._last_mark.n_tokens)
            self._last_mark = generation.mark
            passes = speculate(
                self._context,
                prompt,
                generation.drafter,
                generation.rule,
                max_tokens=max_tokens,
                is_eog=self.target.is_eog,
                max_width=self._cells.widths.everywhere if self.exact else MAX_WIDTH,
                score=generation.score,
            )
            for done in passes:
                yield replace(done, exact=self._cells.record(done))
                self._turns.advance()

    @cached_property
    def _bos_text(self) -> str:
        return "" if self.target.bos is None else self.target.token_text(self.target.bos)

    @cached_property
    def _chat_template(self) -> ChatTemplate:
        source = self.target.chat_template
        if source is None:
            raise PromptError(
                f"{self.target.path.name} has no chat template, so it can only continue a text: "
                "use generate, on the command line with --raw"
            )
        eos = "" if self.target.eos is None else self.target.token_text(self.target.eos)
        return ChatTemplate(source, bos=self._bos_text, eos=eos)

    def clear(self) -> None:
        """Forget the last prompt and text, so that the models evaluate the next prompt from its beginning."""
        with self._turns.turn():
            self._check_open()
            self._context.clear()
            if self._draft_context is not None:
                self._draft_context.clear()

    def close(self) -> None:
        """End what is being generated, other threads' too, and free the models; closing again does nothing.

        A pass that runs in another thread is waited for; its stream then ends, 'cancelled'.
        """
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        with self._turns.turn(), self._preparing, ExitStack() as free:
            free.callback(self.target.close)
            for drafter in self._drafters.values():
                free.callback(drafter.close)
            if "_chat_template" in vars(self):
                free.callback(self._chat_template.close)

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


def _stop_strings(stop: object) -> list[str]:
    texts = [stop] if isinstance(stop, str) else list(stop) if isinstance(stop, Iterable) else [None]
    if not all(isinstance(text, str) and text for text in texts):
        raise PromptError("stop strings must be texts that are not empty")
    return texts  # type: ignore[return-value]


def _default_context(header: Header) -> int:
    """Return as much context as the model was trained for, within reason."""
    trained = header.of_architecture("context_length")
    return min(trained, _DEFAULT_CONTEXT) if isinstance(trained, int) and trained >= 2 else _DEFAULT_CONTEXT


def _warn(message: str, stacklevel: int = 3) -> None:
    warnings.warn(message, LcspecWarning, stacklevel=stacklevel)


def _token_ids(prompt: object) -> list[int]:
    try:
        if isinstance(prompt, Iterable) and not isinstance(prompt, bytes | bytearray | Mapping):
            return [operator.index(token) for token in prompt]
    except TypeError:
        pass
    raise PromptError(
        f"a prompt is a text or a sequence of token ids, not {type(prompt).__name__} (messages: use chat)"
    )


def _check_drafter(name: str) -> None:
    if name not in DRAFTERS:
        raise PromptError(f"{name!r} is no drafter; choose from {', '.join(DRAFTERS)}")
