"""llama.cpp's context: how it is made, evaluates, and is freed."""

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import ClosedError, EvaluationError, ModelError
from lcspec.limits import MAX_WIDTH
from lcspec.llama import log
from lcspec.llama.interrupts import deferred_interrupt
from lcspec.llama.model import Model
from lcspec.llama.threads import usable_physical_cores

PREFILL_BATCH = 512  # physical batch; smaller is slower (128 by 5 %, 32 by 40 %)
_BF16 = 30  # ggml_type, which the binding does not name

_Self = TypeVar("_Self", bound="NativeContext")


class NativeContext:
    """A KV cache and passes over tokens, of one sequence or of several. Usable as a context manager.

    Logits rows are views of llama.cpp's own buffer: read-only, and valid until the next evaluation or the end of the
    context. Flash attention is on.

    Args:
        model: a loaded model; closing it closes the context.
        n_cells: cells of the cache.
        n_sequences: sequences.
        apart: give each sequence as many of the cells, rather than let them share.
        threads: threads to evaluate with; None for the physical cores that this process may use.
        batch_invariant: as of `Context`.
        hidden: let passes give the final hidden states, too.

    Raises:
        ModelError: llama.cpp can't make the context, usually for lack of memory.
    """

    def __init__(
        self,
        model: Model,
        n_cells: int,
        n_sequences: int,
        *,
        threads: int | None,
        batch_invariant: bool,
        hidden: bool,
        apart: bool = False,
    ) -> None:
        self._pointer = ContextPointer(None)
        self.model = model
        self.threads = threads or usable_physical_cores()
        self.seconds = 0.0
        """Seconds spent in llama.cpp's evaluations so far."""
        self._gives_hidden, self._n_hidden = hidden, 0
        if n_cells < 2:
            raise ModelError(f"a context of {n_cells} tokens is too small to be used")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_cells
        params.n_batch = params.n_ubatch = PREFILL_BATCH
        params.n_outputs_max = MAX_WIDTH
        params.n_threads = params.n_threads_batch = self.threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if batch_invariant:
            params.type_k, params.type_v = llama_cpp.GGML_TYPE_F16, _BF16
        params.swa_full = True  # a sliding-window cache that drops old cells can't be truncated
        if n_sequences > 1:
            params.n_seq_max, params.kv_unified = n_sequences, not apart
        if hidden:
            params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        self._pointer = _opened(model, params)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._logits_rows = LogitsRows(model.n_vocab)

    @property
    def _handle(self) -> Any:
        """The llama_context pointer, None when closed."""
        return self._pointer.value

    @property
    def hidden(self) -> NDArray[np.float32] | None:
        """The final hidden states of the last pass, of which its logits were made: shape (n, n_embd).

        A read-only view of llama.cpp's buffer, valid until the next pass; None where not all tokens of the last one
        had logits, as in a prefill, or the context was not made to give them.
        """
        if not self._n_hidden:
            return None
        pointer = llama_cpp.llama_get_embeddings(self._handle)
        rows = np.ctypeslib.as_array(pointer, shape=(self._n_hidden, self.model.n_embd))
        rows.flags.writeable = False
        return rows

    def close(self) -> None:
        """Free the cache; closing again does nothing."""
        self._pointer.close()
        self.model.detach(self._pointer)

    def _run(self, batch: Any, n_logits: int) -> None:
        """Evaluate a llama_batch that asks for so many rows of logits."""
        n = batch.n_tokens
        gives_hidden = self._gives_hidden and n_logits == n  # else each token would be an output
        self._n_hidden = 0
        log.forget_errors()
        started = time.perf_counter()
        if gives_hidden:
            llama_cpp.llama_set_embeddings(self._handle, True)
        try:
            status = llama_cpp.llama_decode(self._handle, batch)
        finally:
            if gives_hidden:
                llama_cpp.llama_set_embeddings(self._handle, False)
            self.seconds += time.perf_counter() - started
        if status != 0:
            raise EvaluationError(f"llama.cpp can't evaluate {n} tokens (status {status}): {log.first_error()}")
        self._n_hidden = n if gives_hidden else 0

    def use_threads(self, threads: int) -> None:
        """Evaluate with so many threads from now on."""
        self._check_open()
        if threads != self.threads:
            self.threads = threads
            llama_cpp.llama_set_n_threads(self._handle, threads, threads)

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """Evaluate with the calling thread alone: it may not be the one that will write texts."""
        llama_cpp.llama_set_n_threads(self._handle, 1, 1)
        try:
            yield
        finally:
            llama_cpp.llama_set_n_threads(self._handle, self.threads, self.threads)

    def _cells_of(self, sequence: int, room: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Return llama.cpp's serialization of a sequence's cells, in `room` if that is large enough."""
        size = llama_cpp.llama_state_seq_get_size(self._handle, sequence)
        cells = np.empty(size, dtype=np.uint8) if room is None or room.size < size else room[:size]
        if llama_cpp.llama_state_seq_get_data(self._handle, _address(cells), size, sequence) != size:
            raise EvaluationError(f"llama.cpp can't save a part of its cache: {log.first_error()}")
        return cells

    def _put_cells(self, cells: NDArray[np.uint8], sequence: int) -> bool:
        """Give an empty sequence cells that `_cells_of` returned, and tell whether they fit."""
        return bool(llama_cpp.llama_state_seq_set_data(self._handle, _address(cells), cells.size, sequence))

    def _check_open(self) -> None:
        if self._handle is None:
            raise ClosedError(f"the context of {self.model.path.name} is closed")

    def __del__(self) -> None:
        if hasattr(self, "_pointer"):
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a context can't be copied or pickled; save() and restore() move its cache")

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ContextPointer:
    """llama.cpp's context, freed once: by its owner, or before that by its `Model`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def close(self) -> None:
        """Free it; closing again does nothing."""
        value, self.value = self.value, None
        if value:
            llama_cpp.llama_free(value)


class LogitsRows:
    """A view of llama.cpp's own buffer of logits: read-only, and valid until the next evaluation."""

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._address: int | None = None
        self._rows: NDArray[np.float32] = np.empty((0, n_vocab), dtype=np.float32)

    def of(self, handle: Any) -> NDArray[np.float32]:
        """Return the rows of a context's last evaluation, and whatever is behind them: shape (MAX_WIDTH, n_vocab)."""
        pointer = llama_cpp.llama_get_logits(handle)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        if address != self._address:  # llama.cpp moves its buffer when it has to grow
            rows = np.ctypeslib.as_array(pointer, shape=(MAX_WIDTH, self._n_vocab))
            rows.flags.writeable = False
            self._address, self._rows = address, rows
        return self._rows


def _opened(model: Model, params: Any) -> ContextPointer:
    log.forget_errors()
    with deferred_interrupt():
        pointer = ContextPointer(llama_cpp.llama_init_from_model(model.handle, params))
    if not pointer.value:
        raise ModelError(f"no context of {params.n_ctx:,} tokens for {model.path.name}: {log.first_error()}")
    model.attach(pointer)
    return pointer


def _address(array: NDArray[np.uint8]) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
