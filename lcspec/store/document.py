"""A document of the store."""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from lcspec.store.ngrams import N, Tokens

SHORTEST = N + 1
"""Tokens of the shortest document: an n-gram, and what followed it."""

COLUMNS = "id, vocabulary, name, kind, added, n_tokens, tokens, digest"

Kind: TypeAlias = Literal["file", "output"]


@dataclass(frozen=True)
class Document:
    """A text that was written before."""

    id: int
    """Later documents have higher ones; none is given twice."""
    vocabulary: str
    """The digest of the vocabulary that its tokens are of."""
    name: str
    kind: Kind
    """Whether it is a file, or what a model wrote."""
    added: float
    """Seconds since the epoch."""
    n_tokens: int

    @property
    def n_ngrams(self) -> int:
        """N-grams that something followed."""
        return self.n_tokens - N


def digest(vocabulary: str, name: str, kind: str, added: float, tokens: bytes) -> bytes:
    """Return what tells that a document is as it was written; SQLite notices damage of its own structure only."""
    head = repr((vocabulary, name, kind, added, len(tokens))).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(head + tokens, digest_size=16).digest()


def read_document(row: Sequence[Any]) -> tuple[Document, Tokens]:
    """Return a document and its tokens from a row of `COLUMNS`.

    Raises:
        sqlite3.DatabaseError: it is damaged.
    """
    identity, vocabulary, name, kind, added, n_tokens, tokens, expected = row
    whole = isinstance(tokens, bytes) and digest(vocabulary, name, kind, added, tokens) == expected
    if not whole or n_tokens != len(tokens) // 4:
        raise sqlite3.DatabaseError(f"document {identity} is not as it was written")
    return Document(identity, vocabulary, name, kind, added, n_tokens), np.frombuffer(tokens, dtype="<u4")
