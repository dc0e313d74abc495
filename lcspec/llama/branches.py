"""Continuations of a text from many of its places, evaluated together, each behind the text's own keys and values."""

import ctypes
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError, ModelError
from lcspec.llama import log
from lcspec.llama.context import PREFILL_BATCH, Pointer
from lcspec.llama.interrupts import deferred_interrupt
from lcspec.llama.model import Model

_TEXT = 0  # the sequence of the text; the others are branches

MOST_BRANCHES = 48
"""Places from which a text can be continued in one evaluation."""


class BranchedContext:
    """A model's KV cache of a text, and branches that leave it at different places. Usable as a context manager.

    Args:
        model: a loaded model; closing it closes the context.
        n_ctx: tokens of text and branches together.
        threads: threads that evaluate.

    Raises:
        ModelError: llama.cpp can't make the context, usually for lack of memory.
    """

    def __init__(self, model: Model, n_ctx: int, threads: int) -> None:
        self._pointer = Pointer(None)
        self.model = model
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_ctx
        params.n_seq_max, params.kv_unified = MOST_BRANCHES + 1, True
        params.n_batch = params.n_ubatch = PREFILL_BATCH
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.swa_full = True
        log.forget_errors()
        with deferred_interrupt():
            self._pointer = Pointer(llama_cpp.llama_init_from_model(model.handle, params))
        if not self._pointer.value:
            raise ModelError(f"no context of {n_ctx:,} tokens for {model.path.name}: {log.first_error()}")
        model.attach(self._pointer)
        self._memory = llama_cpp.llama_get_memory(self._pointer.value)
        self._batch = llama_cpp.llama_batch_init(PREFILL_BATCH, 0, 1)

    def read(self, tokens: Sequence[int]) -> NDArray[np.uint8]:
        """Evaluate a text in the place of the one before, and return its cells."""
        llama_cpp.llama_memory_clear(self._memory, False)
        for start in range(0, len(tokens), PREFILL_BATCH):
            part = tokens[start : start + PREFILL_BATCH]
            self._decode([(token, start + i, _TEXT) for i, token in enumerate(part)], outputs=False)
        size = llama_cpp.llama_state_seq_get_size(self._pointer.value, _TEXT)
        cells = np.empty(size, dtype=np.uint8)
        if llama_cpp.llama_state_seq_get_data(self._pointer.value, _bytes(cells), size, _TEXT) != size:
            raise EvaluationError(f"llama.cpp can't save a state of {len(tokens)} tokens: {log.first_error()}")
        return cells

    def recall(self, cells: NDArray[np.uint8]) -> None:
        """Put the cells of a text that was read before in the place of those that there are."""
        llama_cpp.llama_memory_clear(self._memory, False)
        if not llama_cpp.llama_state_seq_set_data(self._pointer.value, _bytes(cells), cells.size, _TEXT):
            raise EvaluationError("a saved text does not fit this context")

    def branch(self, starts: Sequence[int], runs: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Evaluate tokens behind the text's beginnings of these lengths, and forget them.

        Args:
            starts: tokens of the text before each branch.
            runs: the tokens of each branch, as many in each.

        Returns:
            Logits behind each token, shape (branches, tokens, n_vocab).
        """
        for i, start in enumerate(starts):
            llama_cpp.llama_memory_seq_cp(self._memory, _TEXT, i + 1, 0, start)
        entries = [
            (token, start + j, i + 1)
            for i, (start, run) in enumerate(zip(starts, runs, strict=True))
            for j, token in enumerate(run)
        ]
        self._decode(entries, outputs=True)
        n_vocab = self.model.n_vocab
        pointer = llama_cpp.llama_get_logits(self._pointer.value)
        rows = np.ctypeslib.as_array(pointer, shape=(len(entries), n_vocab)).copy()
        for i in range(len(starts)):
            llama_cpp.llama_memory_seq_rm(self._memory, i + 1, -1, -1)
        logits: NDArray[np.float32] = rows.reshape(len(starts), -1, n_vocab)
        return logits

    def close(self) -> None:
        """Free the cache; closing again does nothing."""
        if self._pointer.value:
            llama_cpp.llama_batch_free(self._batch)
        self._pointer.close()
        self.model.detach(self._pointer)

    def _decode(self, entries: Sequence[tuple[int, int, int]], *, outputs: bool) -> None:
        """Evaluate tokens, each with its position and its sequence."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence) in enumerate(entries):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = outputs
        log.forget_errors()
        status = llama_cpp.llama_decode(self._pointer.value, batch)
        if status != 0:
            raise EvaluationError(f"llama.cpp can't evaluate {len(entries)} tokens: {log.first_error()}")

    def __enter__(self) -> "BranchedContext":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bytes(array: NDArray[np.uint8]) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
