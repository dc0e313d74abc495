"""KV caches kept as files, so that a conversation goes on without evaluating it again.

A file is: the magic line, the SHA-256 of all that follows, the length of the header, the header as JSON (under which
conditions the cache was made, how many tokens and bytes it has), the tokens, and llama.cpp's serialization of their
cells. llama.cpp trusts what it is given, so it is given nothing that is not, to the bit, what was written, or that was
made under other conditions.
"""

import hashlib
import json
import logging
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from lcspec.files import write_atomically
from lcspec.llama import Header, State

_log = logging.getLogger(__name__)

LIMIT = 1_000_000_000
"""The most bytes that the states in a folder take together."""

_KIND = b"lcspec kv state"
_MAGIC = _KIND + b" 1\n"
_DIGEST_SIZE = 32
_LENGTH = struct.Struct("<I")
_TOKEN = np.dtype("<i4")
_LOCK_SECONDS = 30.0
_SAMPLES, _SAMPLE = 256, 4096  # of a model's weights: how many, and how many bytes each


@dataclass(frozen=True)
class KeptState:
    """A cache and what is known of it.

    Attributes:
        state: the cache.
        inexact_from: the first cell that is not known to be, bit for bit, that of plain decoding; None without one.
    """

    state: State
    inexact_from: int | None


def keep_state(path: Path, kept: KeptState, conditions: dict[str, Any], limit: int = LIMIT) -> bool:
    """Write a cache to a file, readable by the user alone, and tell whether that was possible.

    The states (*.kv) in the folder take at most `limit` bytes: the least recently used ones go. What fails is only
    logged, and the old file stays.

    Args:
        path: the file.
        kept: the cache.
        conditions: all that the cache's use depends on, as JSON types.
        limit: bytes.
    """
    parts = _parts(kept, conditions)
    size = sum(len(part) for part in parts)
    if size > limit:
        _log.info("a state of %d bytes is too large to be kept", size)
        return False
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(path.parent / ".lock", timeout=_LOCK_SECONDS, mode=0o600):
            _make_room(path, limit - size)
            write_atomically(path, *parts, mode=0o600)
    except (OSError, ValueError, Timeout) as error:  # a path with a null character is no value
        _log.warning("the state can't be kept in %s: %s", path, error)
        return False
    return True


def recall_state(path: Path, conditions: dict[str, Any], *, n_vocab: int, n_ctx: int) -> KeptState | None:
    """Read a cache that was kept under the same conditions; None where there is none that is whole and fits.

    Args:
        path: the file.
        conditions: as of `keep_state`.
        n_vocab: tokens of the vocabulary.
        n_ctx: tokens that the context holds.
    """
    try:
        kept = _parse(_read(path), conditions)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        _log.info("the state in %s is not used: %s", path, error)
        return None
    tokens = kept.state.tokens
    if not 0 < len(tokens) <= n_ctx or min(tokens) < 0 or max(tokens) >= n_vocab:
        _log.info("the state in %s is not used: it does not fit", path)
        return None
    with suppress(OSError):
        os.utime(path)  # used just now
    return kept


@cache
def weights_digest(files: tuple[Path, ...]) -> str:
    """Return a digest that tells files with other weights apart, from samples all over them: it takes no second.

    Raises:
        OSError: a file can't be read.
    """
    sha256 = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        with path.open("rb", buffering=0) as file:
            for i in range(_SAMPLES):
                file.seek(size * i // _SAMPLES)
                sha256.update(file.read(_SAMPLE))
    return sha256.hexdigest()


def model_conditions(header: Header) -> dict[str, Any]:
    """Return what names a model in the conditions of its caches.

    Raises:
        OSError: its file can't be read.
    """
    return {"file": header.digest, "weights": weights_digest(tuple(header.files))}


def _parts(kept: KeptState, conditions: dict[str, Any]) -> list[memoryview]:
    header = {
        "conditions": conditions,
        "n_tokens": len(kept.state.tokens),
        "n_bytes": kept.state.cells.size,
        "inexact_from": kept.inexact_from,
    }
    text = json.dumps(header).encode()
    tokens = np.array(kept.state.tokens, dtype=_TOKEN).view(np.uint8)
    parts = [memoryview(_LENGTH.pack(len(text))), memoryview(text), tokens.data, kept.state.cells.data]
    sha256 = hashlib.sha256()
    for part in parts:
        sha256.update(part)
    return [memoryview(_MAGIC + sha256.digest()), *parts]


def _read(path: Path) -> memoryview:
    if not path.is_file():
        raise FileNotFoundError(path)
    if path.stat().st_size > LIMIT:
        raise ValueError("it is too large")
    return memoryview(path.read_bytes())


def _parse(content: memoryview, conditions: dict[str, Any]) -> KeptState:
    """Return what a file holds, or raise ValueError and the like."""
    start = len(_MAGIC) + _DIGEST_SIZE
    if content[: len(_MAGIC)] != _MAGIC:
        raise ValueError("it has another format")
    if hashlib.sha256(content[start:]).digest() != content[len(_MAGIC) : start]:
        raise ValueError("it is damaged")
    (length,) = _LENGTH.unpack_from(content, start)
    start += _LENGTH.size
    header = json.loads(bytes(content[start : start + length]))
    start += length
    if header["conditions"] != conditions:
        raise ValueError("it was made under other conditions")
    n_tokens, n_bytes, inexact_from = header["n_tokens"], header["n_bytes"], header["inexact_from"]
    if inexact_from is not None and (type(inexact_from) is not int or not 0 <= inexact_from <= n_tokens):
        raise ValueError("it contradicts itself")
    if len(content) != start + n_tokens * _TOKEN.itemsize + n_bytes:
        raise ValueError("it has another length")
    tokens = np.frombuffer(content, dtype=_TOKEN, count=n_tokens, offset=start)
    cells = np.frombuffer(content, dtype=np.uint8, offset=len(content) - n_bytes)
    return KeptState(State(tuple(tokens.tolist()), cells), inexact_from)


def _make_room(path: Path, limit: int) -> None:
    """Remove what dead writers left, and the least recently used states beside `path` beyond `limit` bytes."""
    for leftover in path.parent.glob(".*.kv.*.new"):
        leftover.unlink(missing_ok=True)  # nobody else writes now
    states = [(other.stat(), other) for other in path.parent.glob("*.kv") if other.name != path.name]
    states = [(stat, other) for stat, other in states if _is_state(other)]
    total = sum(stat.st_size for stat, _ in states)
    for stat, other in sorted(states, key=lambda one: one[0].st_mtime_ns):
        if total <= limit:
            return
        other.unlink(missing_ok=True)
        total -= stat.st_size


def _is_state(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_KIND)) == _KIND
