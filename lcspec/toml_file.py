"""TOML files that users write."""

import json
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from lcspec.errors import FileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"\s*\[")
_LARGEST = 1_000_000  # bytes


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file holds.

    Raises:
        FileError: it can't be read, or is no TOML; says on which line.
    """
    return parse_toml(path, content_of(path))


def content_of(path: Path) -> bytes:
    """Return the bytes of a file that a person wrote.

    Raises:
        FileError: it can't be read, is a device or the like, or is too large for that.
    """
    try:
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
            raise FileError(f"{path} is a device or a pipe, not a file")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise FileError(f"{path} can't be read: {error.strerror}") from error
    if len(content) > _LARGEST:
        raise FileError(f"{path} has more than {_LARGEST:,} bytes, which is too much to be meant")
    return content


def parse_toml(path: Path, content: bytes) -> dict[str, Any]:
    """Return what `content`, of a file at `path`, holds.

    Raises:
        FileError: it is no TOML; says on which line.
    """
    try:
        parsed: dict[str, Any] = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise FileError(f"{path} is no text in UTF-8 (line {line:,})") from error
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path}: {error}") from error
    except RecursionError as error:
        raise FileError(f"{path}: its values are nested too deeply") from error
    return parsed


def with_value(text: str, table: str | None, key: str, value: str) -> str:
    """Return a TOML text in which a key has another value, and comments are as they were.

    Args:
        text: what it was.
        table: where the key is; None for the top.
        key: its name, with dashes or underscores.
        value: numbers, true and false are taken as such, everything else as a text.

    Raises:
        ValueError: that can't be done line by line, as with a value of several lines, or a name is none.
    """
    for name in (key,) if table is None else (table, key):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name")
    lines = text.splitlines()
    start, end = _section(lines, table)
    pattern = re.compile(rf"\s*{'[-_]'.join(map(re.escape, re.split('[-_]', key)))}\s*=")
    place = next((number for number in range(start, end) if pattern.match(lines[number])), None)
    lines[end if place is None else place : end if place is None else place + 1] = [f"{key} = {_literal(value)}"]
    changed = "\n".join(lines) + "\n"
    with suppress(tomllib.TOMLDecodeError):
        if _differ_only_in(tomllib.loads(text), tomllib.loads(changed), table, key):
            return changed
    raise ValueError("the value has several lines")


def _section(lines: list[str], table: str | None) -> tuple[int, int]:
    """Return the first line of a table, which is added if there is none, and the one behind its last."""
    heads = [number for number, line in enumerate(lines) if _TABLE.match(line)]
    start = 0
    if table is not None:
        own = [number for number in heads if lines[number].split("#")[0].strip() == f"[{table}]"]
        if not own:
            lines += [""] * bool(lines) + [f"[{table}]"]
        start = own[0] + 1 if own else len(lines)
    end = next((number for number in heads if number >= start), len(lines))
    while end > start and not lines[end - 1].strip():
        end -= 1
    return start, end


def _literal(value: str) -> str:
    if value in ("true", "false") or re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", value):
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _differ_only_in(old: dict[str, Any], new: dict[str, Any], table: str | None, key: str) -> bool:
    """Whether two contents are the same but for a key."""
    for content in (old, new):
        place = content if table is None else content.setdefault(table, {})
        for name in (key, key.replace("-", "_"), key.replace("_", "-")):
            place.pop(name, None)
    return old == new
