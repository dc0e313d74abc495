"""Several sequences of tokens that a model evaluates together, one token of each in a pass."""

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError, ModelError
from lcspec.llama import log
from lcspec.llama.interrupts import deferred_interrupt
from lcspec.llama.model import Model
from lcspec.llama.native_context import PREFILL_BATCH, ContextPointer


class ParallelContext:
    """The KV caches of several sequences, for writing many texts at once. Usable as a context manager.

    A pass over one token of each of 16 sequences reads the weights once and so costs far less than 16 passes.

    Args:
        model: a loaded model; closing it closes the context.
        n_sequences: sequences.
        n_ctx: tokens that each may have.
        threads: threads to evaluate with.

    Raises:
        ModelError: llama.cpp can't make the context, usually for lack of memory.
    """

    def __init__(self, model: Model, n_sequences: int, n_ctx: int, threads: int) -> None:
        self._pointer = ContextPointer(None)
        self.model = model
        self.n_sequences, self.n_ctx = n_sequences, n_ctx
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_sequences * n_ctx
        params.n_seq_max = n_sequences
        params.n_batch = params.n_ubatch = PREFILL_BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        params.swa_full = True
        log.forget_errors()
        with deferred_interrupt():
            self._pointer = ContextPointer(llama_cpp.llama_init_from_model(model.handle, params))
        if not self._handle:
            raise ModelError(
                f"no context of {n_sequences} times {n_ctx:,} tokens for {model.path.name}: {log.first_error()}"
            )
        model.attach(self._pointer)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._batch = llama_cpp.llama_batch_init(PREFILL_BATCH, 0, 1)
        self._lengths = [0] * n_sequences

    @property
    def _handle(self) -> Any:
        return self._pointer.value

    def start(self, sequence: int, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Put `tokens` in place of what a sequence was and return the logits behind the last: shape (n_vocab,)."""
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        self._lengths[sequence] = 0
        llama_cpp.llama_set_embeddings(self._handle, False)  # else every token would be an output
        for start in range(0, len(tokens), PREFILL_BATCH):
            part = tokens[start : start + PREFILL_BATCH]
            self._decode([sequence] * len(part), part, only_last=True)
        return self._rows(llama_cpp.llama_get_logits(self._handle), 1, self.model.n_vocab).reshape(-1)

    def copy(self, source: int, target: int) -> None:
        """Put a copy of one sequence in place of another."""
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)
        self._lengths[target] = self._lengths[source]

    def step(self, sequences: Sequence[int], tokens: Sequence[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Append a token to each of some sequences, which are in ascending order.

        Returns:
            The logits, shape (n, n_vocab), and the final hidden states, shape (n, n_embd); views that are valid until
            the next evaluation.
        """
        llama_cpp.llama_set_embeddings(self._handle, True)
        self._decode(sequences, tokens, only_last=False)
        logits = self._rows(llama_cpp.llama_get_logits(self._handle), len(tokens), self.model.n_vocab)
        hidden = self._rows(llama_cpp.llama_get_embeddings(self._handle), len(tokens), self.model.n_embd)
        return logits, hidden

    def _decode(self, sequences: Sequence[int], tokens: Sequence[int], *, only_last: bool) -> None:
        batch, n = self._batch, len(tokens)
        batch.n_tokens = n
        for i, (sequence, token) in enumerate(zip(sequences, tokens, strict=True)):
            batch.token[i], batch.pos[i] = token, self._lengths[sequence]
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = not only_last or i == n - 1
            self._lengths[sequence] += 1
        log.forget_errors()
        status = llama_cpp.llama_decode(self._handle, batch)
        if status != 0:
            raise EvaluationError(f"llama.cpp can't evaluate {n} tokens (status {status}): {log.first_error()}")

    @staticmethod
    def _rows(pointer: Any, n: int, width: int) -> NDArray[np.float32]:
        if not ctypes.cast(pointer, ctypes.c_void_p).value:
            raise EvaluationError("llama.cpp gives no outputs of this model")
        rows: NDArray[np.float32] = np.ctypeslib.as_array(pointer, shape=(n, width))
        return rows

    def close(self) -> None:
        """Free the caches; closing again does nothing."""
        if self._handle:
            llama_cpp.llama_batch_free(self._batch)
        self._pointer.close()
        self.model.detach(self._pointer)

    def __enter__(self) -> "ParallelContext":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
