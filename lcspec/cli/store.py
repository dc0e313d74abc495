"""`lcspec store`: texts that were written before, whose continuations are proposed as drafts."""

import json
import sys
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from lcspec.cli.options import MODEL
from lcspec.cli.report import note, print_error, printable, quiet_option, table
from lcspec.errors import StoreError
from lcspec.hub import find_model
from lcspec.llama import Model
from lcspec.store import LIMIT, SHORTEST, Document, NgramStore, default_path, vocabulary_digest
from lcspec.store import repair as repair_store

_LARGEST_FILE = 32 * LIMIT  # bytes; more than what a store holds has
_SHOWN = 12  # digits of a vocabulary's digest


@click.group()
def store() -> None:
    """Keep texts whose continuations are proposed as drafts: files to quote or edit, and what models wrote.

    The store holds the text of what it is given, as tokens of a model's vocabulary, readable by you alone. It is
    off unless it is asked for: nothing enters it, and nothing is drafted from it, by itself. It lies in your data
    folder, on Linux ~/.local/share/lcspec/store.sqlite; `lcspec store stats` says where. When it is full, the
    oldest documents make room.

    \b
    Examples:
      lcspec store add -m qwen2.5-coder-1.5b src/*.py
      lcspec store list
      lcspec store remove src/old.py
      lcspec store clear
    """  # noqa: D301  click needs the backspace itself


@store.command()
@MODEL
@click.argument("files", metavar="FILES...", nargs=-1, required=True, type=click.Path(path_type=Path))
@quiet_option
def add(model: str, files: tuple[Path, ...]) -> None:
    """Keep text files, in place of what they were when they were added before.

    Models with the same vocabulary share documents; for others, add the files again. Weights are not loaded.

    \b
    Examples:
      lcspec store add notes.md
      lcspec store add -m qwen2.5-coder-1.5b src/*.py
    """  # noqa: D301  click needs the backspace itself
    failed = False
    with Model(find_model(model), vocabulary_only=True) as vocabulary, NgramStore() as opened:
        digest = vocabulary_digest(vocabulary)
        for file in files:
            try:
                _add(opened, vocabulary, digest, file)
            except _FileError as error:
                failed = True
                print_error(f"{file} {error}")
    if failed:
        raise click.exceptions.Exit(1)


class _FileError(Exception):
    """What is wrong with a file, in words that go on from its name."""


def _add(opened: NgramStore, vocabulary: Model, digest: str, file: Path) -> None:
    tokens = vocabulary.tokenize(_read(file), add_special=False, parse_special=False)
    if len(tokens) > LIMIT:
        raise _FileError(f"has {len(tokens):,} tokens, more than the store holds ({LIMIT:,})")
    added = opened.add(digest, _name(file), tokens)
    kept = "is kept" if added.kept else f"is too short to draft from (fewer than {SHORTEST} tokens), and left out"
    note(f"{printable(str(file))} {kept}: {len(tokens):,} tokens")
    for name in added.evicted:
        note(f"{printable(name)} made room for it")


def _read(file: Path) -> str:
    try:
        if file.is_dir():
            raise _FileError("is a folder; name the files in it")
        if file.exists() and not file.is_file():
            raise _FileError("is not an ordinary file")
        if file.stat().st_size > _LARGEST_FILE:
            raise _FileError("is larger than all that the store holds")
        content = file.read_bytes()
    except OSError as error:
        raise _FileError(f"can't be read: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _FileError("is no text in UTF-8") from error
    if "\0" in text:
        raise _FileError("is a binary file")
    return text


def _name(file: Path) -> str:
    """Return what a file is called in the store, from whatever folder it is named."""
    return str(file.resolve()).encode("utf-8", "backslashreplace").decode()


@store.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
def list_documents(as_json: bool) -> None:
    """List the documents, the oldest first.

    \b
    Example:
      lcspec store list --json
    """  # noqa: D301  click needs the backspace itself
    with NgramStore() as opened:
        documents = opened.documents()
    if as_json:
        click.echo(json.dumps([_as_dict(document) for document in documents], indent=2))
    elif documents:
        click.echo(table(("id", "name", "kind", "tokens", "vocabulary", "added"), [_row(one) for one in documents]))
    else:
        note("the store is empty; `lcspec store add` keeps files in it")


@store.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def stats(as_json: bool) -> None:
    """Say what the store holds of each vocabulary, how much room that takes, and where.

    \b
    Example:
      lcspec store stats
    """  # noqa: D301  click needs the backspace itself
    with NgramStore() as opened:
        found, path = opened.stats(), opened.path
    if as_json:
        click.echo(json.dumps({"path": str(path), **asdict(found)}, indent=2))
        return
    parts = [(vocabulary[:_SHOWN], one) for vocabulary, one in found.vocabularies.items()] + [("all", found)]
    rows = [(name, f"{one.documents:,}", f"{one.tokens:,}", f"{one.ngrams:,}") for name, one in parts]
    click.echo(table(("vocabulary", "documents", "tokens", "n-grams"), rows))
    click.echo(f"{found.n_bytes / 1e6:,.1f} MB in {printable(str(path))}; up to {LIMIT:,} n-grams are kept")


@store.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@quiet_option
def remove(names: tuple[str, ...]) -> None:
    """Remove documents by their names or ids; of a file the path, from whatever folder, is a name too.

    \b
    Examples:
      lcspec store remove notes.md
      lcspec store remove 3
    """  # noqa: D301  click needs the backspace itself
    with NgramStore() as opened:
        for name in names:
            removed = opened.remove(name) or opened.remove(_name(Path(name)))
            if not removed and name.isdecimal():
                removed = opened.remove(int(name))
            if not removed:
                raise StoreError(f"{printable(name)} is not in the store; `lcspec store list` shows what is")
            for document in removed:
                note(f"{printable(document.name)} is removed")


@store.command()
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@quiet_option
def clear(yes: bool) -> None:
    """Remove all documents.

    \b
    Example:
      lcspec store clear --yes
    """  # noqa: D301  click needs the backspace itself
    with NgramStore() as opened:
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("there is no terminal to ask on: give --yes to remove all documents")
            click.confirm(f"Remove all documents from {printable(str(opened.path))}?", abort=True, err=True)
        opened.clear()
    note("the store is empty")


@store.command()
@quiet_option
def repair() -> None:
    """Rebuild a damaged store from the documents that can still be read; the others are lost.

    \b
    Example:
      lcspec store repair
    """  # noqa: D301  click needs the backspace itself
    saved = repair_store()
    note(f"the store is rebuilt, with {saved:,} {'document' if saved == 1 else 'documents'}: {default_path()}")


def _row(document: Document) -> tuple[str, ...]:
    added = datetime.fromtimestamp(document.added).strftime("%Y-%m-%d %H:%M")
    tokens, vocabulary = f"{document.n_tokens:,}", document.vocabulary[:_SHOWN]
    return str(document.id), document.name, document.kind, tokens, vocabulary, added


def _as_dict(document: Document) -> dict[str, Any]:
    added = datetime.fromtimestamp(document.added, timezone.utc).isoformat(timespec="seconds")
    return {**asdict(document), "added": added}
