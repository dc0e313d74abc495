"""The store: documents of tokens, and where in them each n-gram occurred last."""

import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lcspec.errors import ClosedError, StoreError
from lcspec.store.database import ERRORS, companions, default_path, explained, open_database, transaction
from lcspec.store.document import COLUMNS, SHORTEST, Document, Kind, digest, read_document
from lcspec.store.ngrams import LONGEST_MATCH, Hashes, N, Tokens, as_tokens, match_length, ngram_hashes

LIMIT = 1_000_000
"""N-grams that a store holds by default; they take some 25 MB."""

_log = logging.getLogger(__name__)


class Continuation(NamedTuple):
    """What followed in a document."""

    tokens: tuple[int, ...]
    """At least one."""
    match: int
    """How many tokens before them are those that were looked for, from `N` to `LONGEST_MATCH`."""


class Added(NamedTuple):
    """What became of a document that was added."""

    kept: bool
    """False where it has fewer than `SHORTEST` tokens, in which nothing can be found."""
    evicted: tuple[str, ...]
    """The names of the documents that made room for it."""


@dataclass(frozen=True)
class VocabularyStats:
    """What a store holds of one vocabulary."""

    documents: int = 0
    tokens: int = 0
    ngrams: int = 0


@dataclass(frozen=True)
class StoreStats(VocabularyStats):
    """What a store holds, in all."""

    n_bytes: int = 0
    """On disk."""
    vocabularies: dict[str, VocabularyStats] = field(default_factory=dict)
    """By their digests."""


class NgramStore:
    """Texts that were written before, and what followed where they read like the one that is being written.

    Several processes can use one store at a time, and so can threads. What a method writes is written wholly or
    not at all, whenever the process ends. Usable as a context manager.

    Args:
        path: an SQLite database, which is made where it is missing; by default `default_path()`.
        limit: most n-grams, counting each occurrence; the oldest documents make room for new ones.

    Raises:
        StoreError: the file is damaged, of a newer version, or can't be opened. So do all methods but `find`.
    """

    def __init__(self, path: Path | None = None, *, limit: int = LIMIT) -> None:
        self._connection: sqlite3.Connection | None = None
        self.path = (path or default_path()).resolve()
        self._limit = limit
        self._lock = threading.Lock()
        self._texts: dict[int, tuple[Document, Tokens]] = {}  # those that something was found in
        self._is_damaged = False
        self._connection = open_database(self.path)

    # writing

    def add(self, vocabulary: str, name: str, tokens: Sequence[int], kind: Kind = "file") -> Added:
        """Keep a document, in place of the one of this vocabulary and name if there is one.

        Args:
            vocabulary: what the tokens are of; see `vocabulary_digest`.
            name: what the document is called.
            tokens: the whole text.
            kind: where it is from.

        Raises:
            StoreError: it is longer than all that the store may hold, too.
        """
        if len(tokens) - N > self._limit:
            raise StoreError(f"{name} has {len(tokens):,} tokens, more than the {self._limit:,} that the store holds")
        return self._add(vocabulary, name, as_tokens(tokens), kind, time.time())

    def copy(self, document: Document, tokens: Tokens) -> None:
        """Keep a document of another store as it was there."""
        self._add(document.vocabulary, document.name, tokens, document.kind, document.added)

    def _add(self, vocabulary: str, name: str, tokens: Tokens, kind: Kind, added: float) -> Added:
        kept = len(tokens) >= SHORTEST
        with self._writing() as connection:
            for document, text in _select(connection, "vocabulary = ? AND name = ?", vocabulary, name):
                _drop(connection, document, text)
            if kept:
                _insert(connection, vocabulary, name, kind, added, tokens)
            return Added(kept, tuple(self._evict(connection)))

    def _evict(self, connection: sqlite3.Connection) -> Iterator[str]:
        """Remove the oldest documents until the others fit, and yield their names."""
        excess = connection.execute(f"SELECT coalesce(sum(n_tokens - {N}), 0) FROM documents").fetchone()[0]
        excess -= self._limit
        while excess > 0:
            document, text = _select(connection, "true ORDER BY id LIMIT 1")[0]
            _drop(connection, document, text)
            excess -= document.n_ngrams
            yield document.name

    def remove(self, name_or_id: str | int) -> list[Document]:
        """Remove the document of this id, or those of this name in all vocabularies; return what was removed."""
        column = "id" if isinstance(name_or_id, int) else "name"
        with self._writing() as connection:
            found = _select(connection, f"{column} = ?", name_or_id)
            for document, text in found:
                _drop(connection, document, text)
        self._tidy()
        return [document for document, _ in found]

    def clear(self) -> None:
        """Remove all documents, and give their room on the disk back."""
        with self._writing() as connection:
            connection.execute("DELETE FROM documents")
            connection.execute("DELETE FROM ngrams")
        self._tidy("VACUUM")

    def _tidy(self, *statements: str) -> None:
        """Leave nothing of a removed text on the disk, unless another process reads it right now."""
        with self._using() as connection, suppress(sqlite3.OperationalError):
            for statement in (*statements, "PRAGMA wal_checkpoint(TRUNCATE)"):
                connection.execute(statement)

    # reading

    def documents(self) -> list[Document]:
        """Return all documents, the oldest first; each is checked to be as it was written."""
        with self._using() as connection:
            return [document for document, _ in _select(connection, "true ORDER BY id")]

    def stats(self) -> StoreStats:
        """Return what the store holds, and how much room it takes."""
        by_vocabulary: defaultdict[str, list[Document]] = defaultdict(list)
        for document in self.documents():
            by_vocabulary[document.vocabulary].append(document)
        vocabularies = {
            vocabulary: VocabularyStats(len(some), sum(one.n_tokens for one in some), sum(one.n_ngrams for one in some))
            for vocabulary, some in by_vocabulary.items()
        }
        return StoreStats(
            sum(one.documents for one in vocabularies.values()),
            sum(one.tokens for one in vocabularies.values()),
            sum(one.ngrams for one in vocabularies.values()),
            sum(file.stat().st_size for file in (self.path, *companions(self.path)) if file.is_file()),
            vocabularies,
        )

    def find(self, vocabulary: str, suffix: Sequence[int], limit: int) -> Continuation | None:
        """Return what followed where the last `N` tokens occurred last in the documents of a vocabulary.

        A damaged store has nothing from then on, and a generation goes on without it.

        Args:
            vocabulary: what the tokens are of.
            suffix: the last tokens of the text that is being written, of which `LONGEST_MATCH` are looked at.
            limit: most tokens to return.
        """
        if len(suffix) < N or limit <= 0 or self._is_damaged:
            return None
        last = as_tokens(suffix[-LONGEST_MATCH:])
        try:
            with self._lock:
                found = self._look_up(vocabulary, int(ngram_hashes(vocabulary, last[-N:])[0]))
        except ERRORS as error:
            self._is_damaged = True
            _log.warning("the store %s is not used any more: %s; see `lcspec store repair`", self.path, error)
            return None
        if found is None:
            return None
        text, position = found
        match = match_length(text, position, last)
        return Continuation(tuple(text[position : position + limit].tolist()), match) if match >= N else None

    def _look_up(self, vocabulary: str, ngram: int) -> tuple[Tokens, int] | None:
        """Return the text of the latest document with an n-gram, and the position behind that."""
        connection = self._open()
        row = connection.execute("SELECT document, position FROM ngrams WHERE hash = ?", (ngram,)).fetchone()
        if row is None:
            return None
        identity, position = row
        if identity not in self._texts:
            documents = _select(connection, "id = ?", identity)
            if not documents:  # another process has just removed it
                return None
            self._remember(*documents[0])
        document, text = self._texts[identity]
        fits = isinstance(position, int) and N <= position < document.n_tokens and document.vocabulary == vocabulary
        return (text, position) if fits else None

    def _remember(self, document: Document, text: Tokens) -> None:
        """Keep a text in memory; all of the store's fit in, but not all that were ever in it."""
        if sum(len(text) for _, text in self._texts.values()) > 2 * self._limit:
            self._texts.clear()
        self._texts[document.id] = document, text

    # life

    def close(self) -> None:
        """Close the file; closing again does nothing."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise ClosedError(f"the store {self.path} is closed")
        return self._connection

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._lock, explained(self.path):
            yield self._open()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as connection, transaction(connection):
            yield connection

    def __enter__(self) -> "NgramStore":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# steps of a transaction


def _select(connection: sqlite3.Connection, condition: str, *values: str | int) -> list[tuple[Document, Tokens]]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM documents WHERE {condition}", values)
    return [read_document(row) for row in rows]


def _insert(
    connection: sqlite3.Connection, vocabulary: str, name: str, kind: Kind, added: float, tokens: Tokens
) -> None:
    content = tokens.tobytes()
    identity = connection.execute(
        "INSERT INTO documents (vocabulary, name, kind, added, n_tokens, tokens, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (vocabulary, name, kind, added, len(tokens), content, digest(vocabulary, name, kind, added, content)),
    ).lastrowid
    assert identity is not None
    _point(connection, identity, ngram_hashes(vocabulary, tokens[:-1]), np.arange(N, len(tokens)))


def _point(connection: sqlite3.Connection, identity: int, hashes: Hashes, positions: NDArray[np.intp]) -> None:
    """Let n-grams point to positions in a document, of several the last, unless they point to a later document."""
    unique, first = np.unique(hashes[::-1], return_index=True)  # in the order of the table, which is far faster
    rows = zip(unique.tolist(), positions[::-1][first].tolist(), strict=True)
    connection.executemany(
        "INSERT INTO ngrams (hash, document, position) VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE "
        "SET document = excluded.document, position = excluded.position WHERE excluded.document > document",
        ((ngram, identity, position) for ngram, position in rows),
    )


def _drop(connection: sqlite3.Connection, document: Document, tokens: Tokens) -> None:
    """Delete a document; n-grams that pointed to it point to where they occurred before."""
    hashes = np.unique(ngram_hashes(document.vocabulary, tokens[:-1]))
    connection.execute("DELETE FROM documents WHERE id = ?", (document.id,))
    connection.executemany(
        "DELETE FROM ngrams WHERE hash = ? AND document = ?", ((ngram, document.id) for ngram in hashes.tolist())
    )
    earlier = "vocabulary = ? AND id < ? ORDER BY id"
    for other, text in _select(connection, earlier, document.vocabulary, document.id):
        others = ngram_hashes(other.vocabulary, text[:-1])
        shared = np.flatnonzero(np.isin(others, hashes))
        _point(connection, other.id, others[shared], shared + N)
