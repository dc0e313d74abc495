"""Rows of a quantized matrix as numbers."""

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from lcspec.errors import ModelError
from lcspec.llama.cut_vocabulary import type_traits


def dequantize(rows: NDArray[np.uint8], kind: int, width: int) -> NDArray[np.float32]:
    """Return the values of rows, by the library's own functions: shape (n, width).

    Args:
        rows: shape (n, bytes of a row).
        kind: ggml_type.
        width: values of a row.

    Raises:
        ModelError: the library does not know the type, or rows of it have another size.
    """
    known = 0 <= kind < llama_cpp.GGML_TYPE_COUNT
    traits = type_traits(kind).contents if known else None
    if traits is None or not traits.type_size or rows.shape[1] != width // traits.block_size * traits.type_size:
        raise ModelError(f"a matrix of type {kind} can't be read")
    rows = np.ascontiguousarray(rows)
    if kind == llama_cpp.GGML_TYPE_F32:
        return rows.view(np.float32)
    values = np.empty((len(rows), width), dtype=np.float32)
    traits.to_float(rows.ctypes.data, values.ctypes.data, values.size)
    return values
