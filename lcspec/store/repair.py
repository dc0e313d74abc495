"""Rebuilding a damaged store from what can still be read of it."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from lcspec.errors import StoreError
from lcspec.store.database import ERRORS, check_version, companions, connect, default_path
from lcspec.store.document import COLUMNS, Document, read_document
from lcspec.store.ngrams import Tokens
from lcspec.store.store import NgramStore

_MOST_TRIED = 1_000_000  # ids that can't be listed


def repair(path: Path | None = None) -> int:
    """Put a store of the documents that can still be read in the place of a damaged one.

    No other process should use the store meanwhile: what it adds may be lost.

    Returns:
        how many documents there are now.

    Raises:
        StoreError: there is no such file, it is of a newer version, or can't be replaced.
    """
    path = (path or default_path()).resolve()
    if not path.is_file():
        raise StoreError(f"there is no store to repair: {path} is {'a folder' if path.is_dir() else 'not there'}")
    documents = list(_readable(path))
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
        os.close(handle)
        new = Path(name)
        try:
            _write(new, documents)
            _discard(companions(path))  # first of all: they would be taken for those of the new file
            os.replace(new, path)
        finally:
            _discard([new, *companions(new)])
    except OSError as error:
        raise StoreError(f"the store {path} can't be replaced: {error.strerror}") from error
    return len(documents)


def _write(path: Path, documents: list[tuple[Document, Tokens]]) -> None:
    with NgramStore(path, limit=sum(document.n_tokens for document, _ in documents)) as store:
        for document, tokens in documents:
            store.copy(document, tokens)


def _discard(files: list[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _readable(path: Path) -> Iterator[tuple[Document, Tokens]]:
    """Yield the documents that are whole, the oldest first."""
    with closing(connect(path)) as connection:
        with suppress(*ERRORS):
            connection.execute("PRAGMA writable_schema = ON")  # lets a file be read that is cut short
            check_version(connection, path)
        for identity in _ids(connection):
            with suppress(*ERRORS):
                query = f"SELECT {COLUMNS} FROM documents NOT INDEXED WHERE id = ?"
                row = connection.execute(query, (identity,)).fetchone()
                if row is not None:
                    yield read_document(row)


def _ids(connection: sqlite3.Connection) -> Iterator[int]:
    """Yield the ids of documents, and behind a damaged page all that there can be."""
    last = 0
    try:
        for (last,) in connection.execute("SELECT id FROM documents NOT INDEXED ORDER BY id"):
            yield last
    except ERRORS:
        yield from range(last + 1, min(_highest(connection), last + _MOST_TRIED) + 1)


def _highest(connection: sqlite3.Connection) -> int:
    """Return the highest id that is known, 0 where none is."""
    for query in ("SELECT seq FROM sqlite_sequence", "SELECT max(id) FROM documents"):
        with suppress(*ERRORS, TypeError, ValueError):
            return int(connection.execute(query).fetchone()[0])
    return 0
