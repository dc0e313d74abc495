"""A model's KV cache for many sequences, which are evaluated together."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError, ModelError
from lcspec.limits import MAX_WIDTH
from lcspec.llama.cells import Cells
from lcspec.llama.context import State
from lcspec.llama.model import Model
from lcspec.llama.native_context import PREFILL_BATCH, NativeContext

MAX_SEQUENCES = min(int(llama_cpp.llama_max_parallel_sequences()), MAX_WIDTH) - 2  # each may want a row of logits
"""The most sequences of a shared context."""

_LEAST_SLACK = 1024  # cells that may be waste before those in use are moved together
_MOVING = 64  # times dearer is moving a cell than looking at it for a token


@dataclass(frozen=True)
class Chunk:
    """Tokens to evaluate behind a sequence.

    Attributes:
        sequence: the sequence.
        tokens: the tokens.
        n_logits: for how many of the last of them logits are wanted.
    """

    sequence: int
    tokens: Sequence[int]
    n_logits: int


class SharedContext(NativeContext):
    """The KV cache of several sequences, and passes over tokens of any of them.

    Sequences may share the cells of a common prefix. Flash attention is on. Usable as a context manager.

    Attention adds up a sequence's cells in the order in which they lie in the cache, so that this order shows in the
    last bits. `in_order` keeps it that of the text: a cell that is given up is not used again until the cells in use
    are moved together. That is when all the space is used up, or when looking at waste has taken as long as moving
    takes, so that the two together never take more than twice as long as they have to.

    Args:
        model: a loaded model; closing it closes the context.
        n_ctx: tokens that the cache holds, of all sequences together; a shared one counts once.
        n_sequences: how many there may be; they are numbered from 0.
        threads: threads to evaluate with; by default the physical cores that this process may use.
        batch_invariant: as of `Context`.
        in_order: keep the cells of each sequence in the order of its text, where the cache can be truncated. Takes more
            memory, for 1,024 tokens and at least a quarter of `n_ctx`.
        apart: give each sequence its share of `n_ctx` in place of cells that are shared, so that a sequence can only
            be copied as a whole. Then nothing shows in its bits of what the cache held, and attention is faster.
        hidden: let passes give the final hidden states, too.

    Raises:
        ModelError: llama.cpp can't make the context, usually for lack of memory.
    """

    def __init__(
        self,
        model: Model,
        n_ctx: int,
        n_sequences: int,
        *,
        threads: int | None = None,
        batch_invariant: bool = False,
        in_order: bool = False,
        apart: bool = False,
        hidden: bool = False,
    ) -> None:
        if not 1 <= n_sequences <= MAX_SEQUENCES:
            raise ModelError(f"{n_sequences} sequences can't share a context; {MAX_SEQUENCES} are the most")
        self._n_cells = n_ctx + slack(n_ctx) if in_order and n_ctx > 1 else n_ctx
        super().__init__(
            model,
            self._n_cells,
            max(2, n_sequences + (0 if apart else 2)),
            threads=threads,
            batch_invariant=batch_invariant,
            hidden=hidden,
            apart=apart,
        )
        self._apart = apart
        self.n_ctx = n_ctx
        self.n_sequences = n_sequences
        self._waste, self._moving = n_sequences, n_sequences + 1  # sequences of our own, unless all have their share
        self._held = Cells(n_sequences)
        self._n_written = 0  # cells, since they were moved together
        self._n_in_vain = 0  # times that a token looked at a cell that was waste, since then
        self._least = [0] * n_sequences  # as of `Context`
        window = model.header.of_architecture("attention.sliding_window")
        self._window = window if isinstance(window, int) else 0
        self._batch = _Batch()
        self.can_truncate = self._probe_truncation()
        """Whether `truncate` works; recurrent and hybrid models only move forward."""
        self.in_order = in_order and self.can_truncate
        """Whether cells are in the order of the text."""
        self.can_cut_restored = self.can_truncate and not self._window
        """Whether what was saved and restored can be truncated."""

    @property
    def n_used(self) -> int:
        """Tokens in the cache, shared ones counted once."""
        return self._held.n_used

    @property
    def n_free(self) -> int:
        """Tokens that can be added."""
        return self.n_ctx - self.n_used

    def tokens(self, sequence: int) -> Sequence[int]:
        """Return the tokens of a sequence."""
        return self._held.tokens[sequence]

    def least(self, sequence: int) -> int:
        """Return the fewest tokens, other than none, to which a sequence can be truncated, or that can be copied.

        llama.cpp may write over the cells of a sliding window that its sequence is past.
        """
        if not self.can_truncate:
            return len(self._held.tokens[sequence])
        first = self._first_position(sequence) if self._window else 0
        return max(self._least[sequence], first + self._window - 1 if first > 0 else 0)

    def evaluate(self, chunks: Sequence[Chunk]) -> list[NDArray[np.float32]]:
        """Append tokens to sequences in one pass and return the logits that are wanted.

        Args:
            chunks: at most one for a sequence; `PREFILL_BATCH` tokens and `MAX_WIDTH` rows of logits at the most.

        Returns:
            For each chunk shape (n_logits, n_vocab): views of llama.cpp's own buffer, valid until the next pass.

        Raises:
            EvaluationError: too many tokens for a pass or for the cache, or llama.cpp failed.
        """
        self._check_open()
        n = sum(len(chunk.tokens) for chunk in chunks)
        n_rows = sum(chunk.n_logits for chunk in chunks)
        if not 1 <= n <= PREFILL_BATCH or n_rows > MAX_WIDTH:
            raise EvaluationError(f"{n} tokens with {n_rows} rows of logits are no pass")
        if n > self.n_free:
            raise EvaluationError(f"{self.n_used} + {n} tokens do not fit a context of {self.n_ctx}")
        if self.in_order:
            self._n_in_vain += n * (self._n_written - self.n_used)
            is_dear = self._n_in_vain > _MOVING * self.n_used and not self._window
            if is_dear or self._n_written + n > self._n_cells:
                self._move_together()
        self._batch.fill(chunks, [len(self._held.tokens[chunk.sequence]) for chunk in chunks])
        self._run(self._batch.batch, n_rows)
        for chunk in chunks:
            self._held.append(chunk.sequence, chunk.tokens)
        self._n_written += n
        if not n_rows:
            return [np.empty((0, self.model.n_vocab), dtype=np.float32) for _ in chunks]
        ends = accumulate(chunk.n_logits for chunk in chunks)
        rows = self._logits_rows.of(self._handle)
        return [rows[end - chunk.n_logits : end] for chunk, end in zip(chunks, ends, strict=True)]

    def truncate(self, sequence: int, n_tokens: int) -> None:
        """Forget what is behind the first `n_tokens` tokens of a sequence.

        Raises:
            EvaluationError: it can't be truncated to so few (see `least`).
        """
        self._check_open()
        if n_tokens >= len(self._held.tokens[sequence]):
            return
        if 0 < n_tokens < self.least(sequence):
            raise EvaluationError(f"the cache of {self.model.path.name} can't be truncated to {n_tokens} tokens")
        if self.in_order:  # cells stay in use, so that llama.cpp does not look there for room
            llama_cpp.llama_memory_seq_cp(self._memory, sequence, self._waste, n_tokens, -1)
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, n_tokens or -1, -1)
        self._held.truncate(sequence, n_tokens)

    def free(self, sequence: int) -> None:
        """Forget a sequence."""
        self.truncate(sequence, 0)
        self._least[sequence] = 0

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        """Let an empty sequence share the first `n_tokens` tokens of another.

        Raises:
            EvaluationError: so few can't be shared (see `least`), or the target is not empty.
        """
        self._check_open()
        length = len(self._held.tokens[source])
        least = length if self._apart else self.least(source)
        if self._held.tokens[target] or not least <= n_tokens <= length:
            raise EvaluationError(f"{n_tokens} tokens of sequence {source} can't be shared with sequence {target}")
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, *((-1, -1) if self._apart else (0, n_tokens)))
        self._held.share(source, target, n_tokens)
        self._least[target] = self._least[source]

    def prefill(self, sequence: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append tokens to a sequence in as many passes as it takes, and return the logits behind: shape (n_vocab,).

        Raises:
            EvaluationError: as `evaluate`.
        """
        last = (len(tokens) - 1) // PREFILL_BATCH * PREFILL_BATCH
        for start in range(0, last, PREFILL_BATCH):
            self.evaluate([Chunk(sequence, tokens[start : start + PREFILL_BATCH], 0)])
        logits: NDArray[np.float32] = self.evaluate([Chunk(sequence, tokens[last:], 1)])[0][0]
        return logits

    def n_bytes(self, sequence: int) -> int:
        """Return how many bytes a copy of a sequence's cells takes."""
        return int(llama_cpp.llama_state_seq_get_size(self._handle, sequence))

    def save(self, sequence: int) -> State:
        """Return a copy of a sequence's cells.

        Raises:
            EvaluationError: llama.cpp failed.
        """
        self._check_open()
        return State(tuple(self._held.tokens[sequence]), self._cells_of(sequence))

    def restore(self, sequence: int, state: State) -> None:
        """Give a sequence cells that were saved of one, in the place of those that it has from `state.start` on.

        Raises:
            EvaluationError: they don't fit, or not so many tokens come before; the sequence is then empty. Or it can't
                be truncated to those (see `least`).
        """
        n, start = len(state.tokens), state.start
        if start:
            self.truncate(sequence, start)
        else:
            self.free(sequence)
        fits = n <= self.n_free and start == len(self._held.tokens[sequence])
        if fits and self.in_order and self._n_written + n > self._n_cells:
            self._move_together()
        at = self._moving if start else sequence
        if not fits or not self._put_cells(state.cells, at):
            llama_cpp.llama_memory_seq_rm(self._memory, at, -1, -1)
            self.free(sequence)
            raise EvaluationError(f"a saved state of {n} tokens does not fit this context behind {start} others")
        has_all = self._first_position(at) == start
        if start:
            llama_cpp.llama_memory_seq_cp(self._memory, at, sequence, -1, -1)
            llama_cpp.llama_memory_seq_rm(self._memory, at, -1, -1)
        self._held.append(sequence, state.tokens)
        self._n_written += n
        if not has_all:  # no more than the window was saved
            self._least[sequence] = start + n

    def _first_position(self, sequence: int) -> int:
        """Return the first position of which a sequence has the cell; -1 where it has none."""
        return int(llama_cpp.llama_memory_seq_pos_min(self._memory, sequence))

    def _move_together(self) -> None:
        """Write the cells in use anew, without those that were given up, each sequence's in the order of its text."""
        saved = []
        for sharers, start, end in self._held.runs():
            llama_cpp.llama_memory_seq_cp(self._memory, sharers[0], self._moving, start, end)
            data = self._cells_of(self._moving)
            llama_cpp.llama_memory_seq_rm(self._memory, self._moving, -1, -1)
            saved.append((sharers, data))
        llama_cpp.llama_memory_clear(self._memory, False)
        for sharers, data in saved:
            if not self._put_cells(data, self._moving):
                raise EvaluationError("llama.cpp can't move the tokens of its cache together")
            for sequence in sharers:
                llama_cpp.llama_memory_seq_cp(self._memory, self._moving, sequence, -1, -1)
            llama_cpp.llama_memory_seq_rm(self._memory, self._moving, -1, -1)
        self._n_written, self._n_in_vain = self.n_used, 0
        if self._window:  # of which no more than the window was saved
            self._least = [len(tokens) for tokens in self._held.tokens]

    def _probe_truncation(self) -> bool:
        self._batch.fill([Chunk(0, [0, 0], 0)], [0])
        with self._one_thread():
            self._run(self._batch.batch, 0)
        can_truncate = bool(llama_cpp.llama_memory_seq_rm(self._memory, 0, 1, -1))
        llama_cpp.llama_memory_clear(self._memory, False)
        return can_truncate


def slack(n_ctx: int) -> int:
    """Return how many cells a context has on top of `n_ctx` to keep them in order."""
    return max(_LEAST_SLACK, n_ctx // 4)


class _Batch:
    """A llama_batch with room for the widest pass."""

    def __init__(self) -> None:
        self._tokens = np.zeros(PREFILL_BATCH, dtype=np.int32)
        self._positions = np.zeros(PREFILL_BATCH, dtype=np.int32)
        self._counts = np.ones(PREFILL_BATCH, dtype=np.int32)  # of sequences of each token
        self._sequences = np.zeros(PREFILL_BATCH, dtype=np.int32)
        self._wants_logits = np.zeros(PREFILL_BATCH, dtype=np.int8)
        self._from_0 = np.arange(PREFILL_BATCH, dtype=np.int32)
        step, start = self._sequences.itemsize, self._sequences.ctypes.data
        self._pointers = np.arange(start, start + PREFILL_BATCH * step, step, dtype=np.uintp)
        int32, int8 = ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.c_int8)
        self.batch = llama_cpp.llama_batch()
        self.batch.token = self._tokens.ctypes.data_as(int32)
        self.batch.pos = self._positions.ctypes.data_as(int32)
        self.batch.n_seq_id = self._counts.ctypes.data_as(int32)
        self.batch.seq_id = self._pointers.ctypes.data_as(ctypes.POINTER(int32))
        self.batch.logits = self._wants_logits.ctypes.data_as(int8)

    def fill(self, chunks: Sequence[Chunk], starts: Sequence[int]) -> None:
        """Put in the tokens of chunks, the first of each at its position in `starts`."""
        at = 0
        for chunk, start in zip(chunks, starts, strict=True):
            end = at + len(chunk.tokens)
            self._tokens[at:end] = chunk.tokens
            np.add(self._from_0[: end - at], start, out=self._positions[at:end])
            self._sequences[at:end] = chunk.sequence
            self._wants_logits[at : end - chunk.n_logits] = 0
            self._wants_logits[end - chunk.n_logits : end] = 1
            at = end
        self.batch.n_tokens = at
