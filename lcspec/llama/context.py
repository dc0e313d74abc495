"""A model's KV cache for one sequence of tokens."""

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError
from lcspec.limits import MAX_WIDTH
from lcspec.llama.cut_vocabulary import WholeRows
from lcspec.llama.interrupts import deferred_interrupt
from lcspec.llama.model import Model
from lcspec.llama.native_context import PREFILL_BATCH, NativeContext

_SEQUENCE, _COPIES = 0, 1


@dataclass(frozen=True)
class State:
    """A saved KV cache: the tokens in it, llama.cpp's serialization of their cells, and how many tokens come before."""

    tokens: tuple[int, ...]
    cells: NDArray[np.uint8]
    start: int = 0


class Context(NativeContext):
    """The KV cache of one sequence, and the evaluation of tokens behind it.

    Logits rows come out as views of llama.cpp's own buffer: read-only, and valid until the next
    evaluation or the end of the context. Flash attention is on. Usable as a context manager.

    Args:
        model: a loaded model; closing it closes the context.
        n_ctx: tokens that the cache holds.
        threads: threads to evaluate with; by default the physical cores that this process may use.
        batch_invariant: keep values as bf16 beside f16 keys. Attention then takes the same path for a lone token
            as for several, at any depth, so that how tokens are cut into passes does not show in their logits
            (as far as the weights' kernels go, see `exact_widths`). Slower behind long prompts.
        repeatable: let `repeat` and `append` be called, and parts be saved.
        hidden: let `evaluate` give the final hidden states, too.

    Raises:
        ModelError: llama.cpp can't make the context, usually for lack of memory.
    """

    def __init__(
        self,
        model: Model,
        n_ctx: int,
        *,
        threads: int | None = None,
        batch_invariant: bool = False,
        repeatable: bool = False,
        hidden: bool = False,
    ) -> None:
        super().__init__(
            model,
            n_ctx,
            2 if repeatable else 1,
            threads=threads,
            batch_invariant=batch_invariant,
            hidden=hidden,
        )
        self.n_ctx = n_ctx
        self.tokens: list[int] = []
        """The tokens whose keys and values the cache holds. Read only."""
        self._is_repeatable = repeatable
        self._batch_tokens = np.zeros(PREFILL_BATCH, dtype=np.int32)
        self._wants_logits = np.zeros(PREFILL_BATCH, dtype=np.int8)
        self._batch = llama_cpp.llama_batch()  # without positions and sequence ids: appends to sequence 0
        if model.cut is None:
            self._batch.token = self._batch_tokens.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token))
        self._batch.logits = self._wants_logits.ctypes.data_as(ctypes.POINTER(ctypes.c_int8))
        self._embeddings: NDArray[np.float32]
        self._whole = None if model.cut is None else WholeRows(model.cut)
        self.can_truncate = self._probe_truncation()
        """Whether `truncate` works; recurrent and hybrid models only move forward."""
        self._least = 0  # tokens to which the cache can be truncated: a saved sliding window has no more behind it
        window = model.header.of_architecture("attention.sliding_window")
        self.can_move = not isinstance(window, int) or not 0 < window < n_ctx
        """Whether what `save` returns can be truncated as the cache can, however long it is."""
        self.can_shift = self.can_truncate and self._can_shift()
        """Whether `cut` works; positions have to be relative, and old cells have to stay."""

    @property
    def n_vocab(self) -> int:
        """Token ids that can be evaluated; the length of a logits row."""
        return self.model.n_vocab if self.model.cut is None else self.model.cut.n_tokens

    def is_eog(self, token: int) -> bool:
        """Tell whether `token` ends a generation."""
        own = token if self.model.cut is None else self.model.cut.own(token)
        return own is not None and self.model.is_eog(own)

    @property
    def n_tokens(self) -> int:
        """Tokens in the cache, as llama.cpp counts them."""
        self._check_open()
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, _SEQUENCE)) + 1

    def prefill(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append `tokens` to the cache, in batches, and return the logits behind the last: shape (n_vocab,).

        Raises:
            EvaluationError: no tokens, too many for the cache, or llama.cpp failed.
        """
        last = max(len(tokens) - 1, 0) // PREFILL_BATCH * PREFILL_BATCH
        takes_long = len(tokens) > MAX_WIDTH and threading.current_thread() is threading.main_thread()
        with self._interruptible() if takes_long else nullcontext():
            for start in range(0, last, PREFILL_BATCH):
                self._decode(tokens[start : start + PREFILL_BATCH], n_logits=0)
            self._decode(tokens[last:], n_logits=1)
        return self._logits(1).reshape(-1)

    def evaluate(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append `tokens` to the cache in one pass and return the logits behind each.

        Args:
            tokens: 1 to `MAX_WIDTH` token ids.

        Returns:
            Shape (len(tokens), n_vocab); row i is for the position after tokens[i].

        Raises:
            EvaluationError: a wrong number of tokens, too many for the cache, or llama.cpp failed.
        """
        if len(tokens) > MAX_WIDTH:
            raise EvaluationError(f"{len(tokens)} tokens are too many for one pass; {MAX_WIDTH} is the most")
        self._decode(tokens, n_logits=len(tokens))
        return self._logits(len(tokens))

    def truncate(self, n_tokens: int) -> None:
        """Forget everything behind the first `n_tokens` tokens, and these, too, where not all of their cells are left.

        Raises:
            EvaluationError: this context can't be truncated (see `can_truncate`) and would have to be.
            ValueError: `n_tokens` is negative.
        """
        if n_tokens < 0:
            raise ValueError(f"a cache can't be truncated to {n_tokens} tokens")
        if n_tokens < self._least:
            self.clear()
            return
        tokens = self.tokens[n_tokens:]
        del self.tokens[n_tokens:]  # before the cells: an interrupt must not leave tokens that the cache lacks
        if n_tokens < self.n_tokens and not llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, n_tokens, -1):
            self.tokens += tokens
            raise EvaluationError(
                f"the cache of {self.model.path.name}, a {self.model.architecture} model, can't be truncated"
            )

    def keep_prefix(self, tokens: Sequence[int]) -> int:
        """Reduce the cache to its longest usable common prefix with `tokens` and return that length.

        The last of `tokens` is never kept, so that evaluating the rest gives the logits behind it. A
        cache that can't be truncated is cleared unless all of it is kept.
        """
        n = min(common_prefix_length(self.tokens, tokens), max(len(tokens) - 1, 0))
        if self.can_truncate:
            self.truncate(n)
            return len(self.tokens)
        if n < self.n_tokens:
            self.clear()
            return 0
        return n

    def cut(self, start: int, end: int) -> None:
        """Forget the tokens from `start` to `end`, and move up those behind: a context shift.

        These keep what they saw of the tokens that are gone, so their cells are not those of evaluating anew.

        Raises:
            EvaluationError: this context can't be shifted (see `can_shift`), or llama.cpp failed; it is then empty.
            ValueError: there is no such span with tokens behind it.
        """
        self._check_open()
        if not 0 <= start < end < len(self.tokens):
            raise ValueError(f"there are no tokens {start} to {end} with others behind them")
        if not self.can_shift:
            raise EvaluationError(f"the cache of {self.model.path.name} can't be shifted")
        with deferred_interrupt():
            llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, start, end)
            llama_cpp.llama_memory_seq_add(self._memory, _SEQUENCE, end, -1, start - end)
            del self.tokens[start:end]
            last = self.tokens[-1]
            self.truncate(len(self.tokens) - 1)
            try:
                self._decode([last], n_logits=0)  # now llama.cpp turns the keys, as it has to before they are saved
            except EvaluationError:
                self.clear()
                raise

    def clear(self) -> None:
        """Forget everything."""
        self._check_open()
        self._least = 0
        self.tokens.clear()
        llama_cpp.llama_memory_clear(self._memory, False)

    def save(self, start: int = 0, room: NDArray[np.uint8] | None = None) -> State:
        """Return a copy of the cache (size: a few tens of KB a token), or of its part from the token `start` on.

        Args:
            start: the first token.
            room: where to put it, if that is large enough: new memory is slower than the copy itself.

        Raises:
            EvaluationError: llama.cpp failed.
        """
        self._check_open()
        if not start:
            return State(tuple(self.tokens), self._cells_of(_SEQUENCE, room))
        self._check_repeatable()
        with deferred_interrupt():
            llama_cpp.llama_memory_seq_cp(self._memory, _SEQUENCE, _COPIES, start, -1)
            try:
                return State(tuple(self.tokens[start:]), self._cells_of(_COPIES, room), start)
            finally:
                llama_cpp.llama_memory_seq_rm(self._memory, _COPIES, -1, -1)

    def append(self, state: State) -> None:
        """Add cells behind those that the cache holds, as `save` gave them from there on.

        Raises:
            EvaluationError: the state does not fit this context, which is then empty.
        """
        self._check_open()
        self._check_repeatable()
        n = len(self.tokens)
        fits = n == state.start and n + len(state.tokens) <= self.n_ctx
        with deferred_interrupt():
            if fits and self._put_cells(state.cells, _COPIES):
                llama_cpp.llama_memory_seq_cp(self._memory, _COPIES, _SEQUENCE, -1, -1)
                llama_cpp.llama_memory_seq_rm(self._memory, _COPIES, -1, -1)
                self.tokens += state.tokens
        if self.n_tokens != n + len(state.tokens):
            self.clear()
            raise EvaluationError(f"a saved state of {len(state.tokens)} tokens does not fit behind {n} others")

    def restore(self, state: State) -> None:
        """Replace the cache by one that was saved from a context of the same model and cache types.

        Raises:
            EvaluationError: the state does not fit this context, which is then empty.
        """
        self.clear()
        if not self._put_cells(state.cells, _SEQUENCE):
            self.clear()
            raise EvaluationError(f"a saved state of {len(state.tokens)} tokens does not fit this context")
        if not self.n_tokens == len(state.tokens) <= self.n_ctx:
            self.clear()
            raise EvaluationError(
                f"a saved state of {len(state.tokens)} tokens is damaged or too long for this context"
            )
        self.tokens = list(state.tokens)
        if self.can_truncate and llama_cpp.llama_memory_seq_pos_min(self._memory, _SEQUENCE) > 0:
            self._least = len(self.tokens)

    def repeat(self, times: int) -> bool:
        """Append copies of the cache to itself: a long context for measuring, at the price of a short one.

        Args:
            times: copies; they and the cache have to fit.

        Returns:
            Whether this architecture can do that; if not, nothing has changed.
        """
        if not self._can_shift():
            return False
        state, n = self.save(), len(self.tokens)
        for _ in range(times):
            if not self._put_cells(state.cells, _COPIES):
                raise EvaluationError(f"{times} copies of {n} tokens do not fit a context of {self.n_ctx}")
            llama_cpp.llama_memory_seq_add(self._memory, _COPIES, 0, -1, len(self.tokens))
            llama_cpp.llama_memory_seq_cp(self._memory, _COPIES, _SEQUENCE, -1, -1)
            llama_cpp.llama_memory_seq_rm(self._memory, _COPIES, -1, -1)
            self.tokens += state.tokens
        return True

    def _decode(self, tokens: Sequence[int], n_logits: int) -> None:
        """Append one batch and ask for the logits of its last `n_logits` tokens."""
        self._check_open()
        n = len(tokens)
        if n == 0:
            raise EvaluationError("there are no tokens to evaluate")
        if len(self.tokens) + n > self.n_ctx:
            raise EvaluationError(f"{len(self.tokens)} + {n} tokens do not fit a context of {self.n_ctx}")
        self._batch.n_tokens = n
        if (cut := self.model.cut) is None:
            self._batch_tokens[:n] = tokens
        else:
            self._embeddings = cut.embeddings(tokens)  # keeps it while llama.cpp reads it
            self._batch.embd = self._embeddings.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._wants_logits[: n - n_logits] = 0
        self._wants_logits[n - n_logits : n] = 1
        self._run(self._batch, n_logits)
        self.tokens.extend(map(int, tokens))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C, which the main thread gets, end an evaluation that takes seconds.

        Asking costs a millisecond or two; where other threads of Python are busy, more.
        """
        self._check_open()
        with deferred_interrupt() as interrupts:
            abort = llama_cpp.ggml_abort_callback(lambda _: bool(interrupts))
            llama_cpp.llama_set_abort_callback(self._handle, abort, None)
            try:
                yield
            finally:
                llama_cpp.llama_set_abort_callback(self._handle, llama_cpp.ggml_abort_callback(), None)

    def _logits(self, n: int) -> NDArray[np.float32]:
        rows = self._logits_rows.of(self._handle)[:n]
        return rows if self._whole is None else self._whole.of(rows)

    def _probe_truncation(self) -> bool:
        with self._one_thread():
            self._decode([0, 0], n_logits=0)
        can_truncate = bool(llama_cpp.llama_memory_seq_rm(self._memory, _SEQUENCE, 1, -1))
        self.clear()
        return can_truncate

    def _can_shift(self) -> bool:
        if self.model.header.of_architecture("attention.sliding_window"):  # then old cells are written over
            return False
        if llama_cpp.llama_model_rope_type(self.model.handle) == llama_cpp.LLAMA_ROPE_TYPE_NONE:
            return False
        return bool(llama_cpp.llama_memory_can_shift(self._memory))

    def _check_repeatable(self) -> None:
        if not self._is_repeatable:
            raise EvaluationError(f"this cache of {self.model.path.name} has no room for a second sequence")


def common_prefix_length(a: Sequence[int], b: Sequence[int], start: int = 0) -> int:
    """Count the leading tokens that `a` and `b` share; the first `start` are known to be equal."""
    n = start
    for x, y in zip(islice(a, start, None), islice(b, start, None), strict=False):
        if x != y:
            break
        n += 1
    return n
