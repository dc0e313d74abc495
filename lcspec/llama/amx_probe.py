"""Multiplies two small matrices with AMX, in a process of its own: some builds of llama.cpp end it.

Run as a script with the path of the ggml library; the exit status is 0 where the product is right.
"""

import ctypes
import sys
from typing import Any

_CPU = 0  # ggml_backend_dev_type
_F32, _Q8_0 = 0, 8  # ggml_type
_SIZE = 64  # columns and rows of the weights: two tiles each way
_WIDTH = 20  # rows of the other matrix: a full tile and a part of one
_BLOCK = b"\x00\x3c" + b"\x01" * 32  # of Q8_0: a scale of 1.0 in half precision, then 32 ones
_MEMORY = 1 << 20  # bytes for the descriptions of tensors and graph


class _InitParams(ctypes.Structure):
    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def extra_buffer_types(ggml: ctypes.CDLL) -> dict[str, int]:
    """Return the addresses of the buffer types that llama.cpp lays weights out anew for, by name, in its order."""
    array, name = extra_buffer_array(ggml), _pointer_function(ggml, "ggml_backend_buft_name", ctypes.c_char_p)
    types: dict[str, int] = {}
    while address := array[len(types)]:
        types[name(address).decode()] = address
    return types


def extra_buffer_array(ggml: ctypes.CDLL) -> Any:
    """Return the library's own array of those buffer types, which a null pointer ends."""
    device = _pointer_function(ggml, "ggml_backend_dev_by_type", of=ctypes.c_int)(_CPU)
    registry = _pointer_function(ggml, "ggml_backend_dev_backend_reg")(device)
    address = ggml.ggml_backend_reg_get_proc_address
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    function = address(registry, b"ggml_backend_dev_get_extra_bufts")
    if not function:
        return [None]
    return ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(function)(device)


def _pointer_function(ggml: ctypes.CDLL, name: str, result: Any = ctypes.c_void_p, of: Any = ctypes.c_void_p) -> Any:
    function = getattr(ggml, name)
    function.restype, function.argtypes = result, [of]
    return function


def product_is_right(ggml: ctypes.CDLL) -> bool:
    """Multiply a matrix of ones in AMX's layout by another, and tell whether every sum is right."""
    amx = extra_buffer_types(ggml)["AMX"]
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    signatures: list[tuple[str, Any, list[Any]]] = [
        ("ggml_init", pointer, [_InitParams]),
        ("ggml_new_tensor_2d", pointer, [pointer, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]),
        ("ggml_backend_buft_get_alloc_size", size, [pointer, pointer]),
        ("ggml_backend_buft_alloc_buffer", pointer, [pointer, size]),
        ("ggml_backend_buffer_get_base", pointer, [pointer]),
        ("ggml_backend_tensor_alloc", ctypes.c_int, [pointer, pointer, pointer]),
        ("ggml_backend_tensor_set", None, [pointer, ctypes.c_char_p, size, size]),
        ("ggml_backend_tensor_get", None, [pointer, pointer, size, size]),
        ("ggml_mul_mat", pointer, [pointer, pointer, pointer]),
        ("ggml_new_graph", pointer, [pointer]),
        ("ggml_build_forward_expand", None, [pointer, pointer]),
        ("ggml_backend_dev_by_type", pointer, [ctypes.c_int]),
        ("ggml_backend_dev_buffer_type", pointer, [pointer]),
        ("ggml_backend_alloc_ctx_tensors_from_buft", pointer, [pointer, pointer]),
        ("ggml_backend_dev_init", pointer, [pointer, pointer]),
        ("ggml_backend_graph_compute", ctypes.c_int, [pointer, pointer]),
    ]
    for name, result, of in signatures:
        function = getattr(ggml, name)
        function.restype, function.argtypes = result, of
    device = ggml.ggml_backend_dev_by_type(_CPU)
    memory = ggml.ggml_init(_InitParams(_MEMORY, None, True))
    weights = ggml.ggml_new_tensor_2d(memory, _Q8_0, _SIZE, _SIZE)
    buffer = ggml.ggml_backend_buft_alloc_buffer(amx, ggml.ggml_backend_buft_get_alloc_size(amx, weights))
    ggml.ggml_backend_tensor_alloc(buffer, weights, ggml.ggml_backend_buffer_get_base(buffer))
    ones = ggml.ggml_new_tensor_2d(memory, _F32, _SIZE, _WIDTH)
    product = ggml.ggml_mul_mat(memory, weights, ones)
    graph = ggml.ggml_new_graph(memory)
    ggml.ggml_build_forward_expand(graph, product)
    ggml.ggml_backend_alloc_ctx_tensors_from_buft(memory, ggml.ggml_backend_dev_buffer_type(device))
    blocks = _BLOCK * (_SIZE * _SIZE // 32)
    ggml.ggml_backend_tensor_set(weights, blocks, 0, len(blocks))
    values = (ctypes.c_float * (_SIZE * _WIDTH))(*[1.0] * (_SIZE * _WIDTH))
    ggml.ggml_backend_tensor_set(ones, bytes(values), 0, ctypes.sizeof(values))
    if ggml.ggml_backend_graph_compute(ggml.ggml_backend_dev_init(device, None), graph) != 0:
        return False
    ggml.ggml_backend_tensor_get(product, values, 0, ctypes.sizeof(values))
    return all(abs(value - _SIZE) < 0.5 for value in values)


if __name__ == "__main__":
    sys.exit(0 if product_is_right(ctypes.CDLL(sys.argv[1])) else 1)
