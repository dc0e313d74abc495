"""The file that a store is in: an SQLite database."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from platformdirs import user_data_path

from lcspec.errors import StoreError

ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What SQLite raises; the latter where its message quotes what is damaged."""

_VERSION = 1
_BUSY_SECONDS = 30.0
_SMALLEST_PAGE = 512  # bytes
_SCHEMA = (
    """CREATE TABLE documents (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        vocabulary TEXT NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        added REAL NOT NULL,
        n_tokens INTEGER NOT NULL,
        digest BLOB NOT NULL,
        tokens BLOB NOT NULL,
        UNIQUE (vocabulary, name)
    )""",
    """CREATE TABLE ngrams (
        hash INTEGER PRIMARY KEY,
        document INTEGER NOT NULL,
        position INTEGER NOT NULL
    ) WITHOUT ROWID""",
    f"PRAGMA user_version = {_VERSION}",
)


def default_path() -> Path:
    """Return where the user's store lies: with data, not in a cache, as nothing can fetch it again."""
    return user_data_path("lcspec") / "store.sqlite"


def open_database(path: Path) -> sqlite3.Connection:
    """Open the database, which is made where it is missing, for its owner alone.

    Raises:
        StoreError: it is damaged, of a newer version, or can't be opened.
    """
    _make_file(path)
    with explained(path):
        _check_size(path)
        connection = connect(path)
        try:
            _set_up(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """Open the database as it is; transactions are begun and ended by hand."""
    return sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema, 0 where there is none yet.

    Raises:
        StoreError: it is newer than this program, or no store's.
    """
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > _VERSION:
        raise StoreError(f"the store {path} was written by a newer lcspec (version {version}): upgrade this one")
    if version < _VERSION and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise StoreError(f"{path} is a database of something else: name another file for the store")
    return version


def companions(path: Path) -> list[Path]:
    """Return the files that SQLite keeps beside the database while it is open."""
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm", "-journal")]


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write all that is written inside, or nothing, and keep other writers out meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into StoreErrors."""
    try:
        yield
    except ERRORS as error:
        raise StoreError(f"the store {path} {_problem(error)}") from error


def _problem(error: Exception) -> str:
    """Say what is wrong, in words that go on from the file's name."""
    said = str(error)
    if isinstance(error, sqlite3.OperationalError):
        if "locked" in said or "busy" in said:
            return "is busy: another process has been writing to it for long"
        if any(reason in said for reason in ("readonly", "unable to open", "is full")):
            return f"can't be used: {said}"
    return "is damaged: `lcspec store repair` rebuilds it"


def _make_file(path: Path) -> None:
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700, parents=True)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        if not path.is_file():
            raise StoreError(f"the store {path} is {'a folder' if path.is_dir() else 'not an ordinary file'}")
    except OSError as error:
        raise StoreError(f"the store {path} can't be made: {error.strerror}") from error


def _check_size(path: Path) -> None:
    """Notice a file that is cut short within a page, which SQLite would fill up with zeros."""
    with path.open("rb") as file:
        head = file.read(18)
        size = file.seek(0, os.SEEK_END)
    page = int.from_bytes(head[16:], "big")
    is_whole = head.startswith(b"SQLite format 3\0") and page >= _SMALLEST_PAGE and size % page == 0
    if size and not is_whole and not any(file.exists() for file in companions(path)):  # SQLite restores it from those
        raise sqlite3.DatabaseError("it does not consist of pages")


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")  # the text may be private
    if not check_version(connection, path):
        with transaction(connection):
            if not check_version(connection, path):  # nobody else has made the tables meanwhile
                for statement in _SCHEMA:
                    connection.execute(statement)
    with suppress(sqlite3.OperationalError):  # another process opens it right now, and will succeed
        connection.execute("PRAGMA journal_mode = WAL")
