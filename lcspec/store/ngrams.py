"""N-grams of tokens, and how far two texts agree."""

import hashlib
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

N = 4
"""Tokens of an n-gram: the shortest match."""
LONGEST_MATCH = 64
"""Tokens from which on matches count as this long."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Tokens: TypeAlias = NDArray[np.uint32]
Hashes: TypeAlias = NDArray[np.int64]


def as_tokens(tokens: Sequence[int]) -> Tokens:
    """Return token ids as an array, little-endian on every machine."""
    return np.asarray(tokens, dtype="<u4")


def ngram_hashes(vocabulary: str, tokens: Tokens) -> Hashes:
    """Return the hash of each n-gram of `tokens` in a vocabulary, shape (n - N + 1,)."""
    n = len(tokens) - N + 1
    seed = hashlib.blake2b(vocabulary.encode(), digest_size=8).digest()
    hashes = np.full(max(n, 0), np.frombuffer(seed, dtype="<u8")[0])
    for i in range(N if n > 0 else 0):
        hashes = (hashes ^ tokens[i : i + n]) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
    return hashes.view(np.int64)


def match_length(text: Tokens, position: int, suffix: Tokens) -> int:
    """Return how many tokens before `position` of a text are the last ones of `suffix`."""
    n = min(position, len(suffix), LONGEST_MATCH)
    different = np.flatnonzero(text[position - n : position] != suffix[len(suffix) - n :])
    return n - 1 - int(different[-1]) if different.size else n
