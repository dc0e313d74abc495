"""Metadata values as a GGUF file has them: four bytes for the type, then the value, all little-endian."""

import struct
from collections.abc import Iterable, Sequence
from typing import TypeAlias

Decoded: TypeAlias = int | float | bool | bytes | list[int | float | bool] | list[bytes]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY, _UINT64 = 4, 5, 6, 8, 9, 10


def text(value: str) -> bytes:
    """Return a string."""
    return struct.pack("<I", _STRING) + string(value.encode())


def uint32(value: int) -> bytes:
    """Return a number of 32 bits."""
    return struct.pack("<II", _UINT32, value)


def uint64(value: int) -> bytes:
    """Return a number of 64 bits."""
    return struct.pack("<IQ", _UINT64, value)


def float32(value: float) -> bytes:
    """Return a number with a fraction."""
    return struct.pack("<If", _FLOAT32, value)


def int32s(values: Sequence[int]) -> bytes:
    """Return a list of numbers."""
    return struct.pack(f"<IIQ{len(values)}i", _ARRAY, _INT32, len(values), *values)


def float32s(values: Sequence[float]) -> bytes:
    """Return a list of numbers with fractions."""
    return struct.pack(f"<IIQ{len(values)}f", _ARRAY, _FLOAT32, len(values), *values)


def strings(values: Sequence[bytes]) -> bytes:
    """Return a list of strings."""
    return struct.pack("<IIQ", _ARRAY, _STRING, len(values)) + b"".join(map(string, values))


def string(value: bytes) -> bytes:
    """Return a string without its type, as the names of keys and tensors are written, too."""
    return struct.pack("<Q", len(value)) + value


def decode(value: bytes | memoryview) -> Decoded:
    """Return a value from what a checked file has; strings as bytes, as they need not be UTF-8."""
    value = memoryview(value)
    (kind,) = struct.unpack_from("<I", value)
    if kind == _STRING:
        return bytes(value[12:])
    if kind != _ARRAY:
        return struct.unpack_from(f"<{_SCALARS[kind]}", value, 4)[0]  # type: ignore[no-any-return]
    kind, n = struct.unpack_from("<IQ", value, 4)
    if kind == _STRING:
        return list(_strings(value[16:], n))
    return list(struct.unpack_from(f"<{n}{_SCALARS[kind]}", value, 16))


def pick(value: bytes | memoryview, indices: Sequence[int]) -> bytes:
    """Return the elements of a list of numbers that have these indices, as a list of the same type."""
    kind, n = struct.unpack_from("<IQ", value, 4)
    form = _SCALARS[kind]
    elements = struct.unpack_from(f"<{n}{form}", value, 16)
    return struct.pack(f"<IIQ{len(indices)}{form}", _ARRAY, kind, len(indices), *(elements[i] for i in indices))


def _strings(content: memoryview, n: int) -> Iterable[bytes]:
    position = 0
    for _ in range(n):
        start = position + 8
        position = start + struct.unpack_from("<Q", content, position)[0]
        yield bytes(content[start:position])
