"""TOML files that users write."""

import sys
from pathlib import Path
from typing import Any

from lcspec.errors import FileError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a file holds.

    Raises:
        FileError: it can't be read, or is no TOML; says on which line.
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise FileError(f"{path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise FileError(f"{path} is no text in UTF-8 (line {line:,})") from error
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"{path}: {error}") from error
    return content
