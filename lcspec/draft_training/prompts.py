"""Files of prompts."""

import json
from collections.abc import Iterable
from pathlib import Path

from lcspec.errors import FileError

_MOST_CHARACTERS = 6000  # of a prompt
_LEAST_CHARACTERS = 8


def read_prompts(path: Path) -> list[str]:
    """Return the prompts of a file: of JSON lines ('turns', 'prompt', 'text' or a string), else one a paragraph.

    Raises:
        FileError: the file can't be read, or there is no prompt in it.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise FileError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        found = [prompt for i, line in enumerate(lines, 1) for prompt in _of_json(line, path, i)]
    else:
        found = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    prompts = list(_usable(found))
    if not prompts:
        raise FileError(f"there is no prompt in {path}")
    return prompts


def _of_json(line: str, path: Path, number: int) -> list[str]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise FileError(f"line {number} of {path} is not JSON: {error}") from error
    if isinstance(value, dict):
        value = next((value[key] for key in ("turns", "prompt", "text") if key in value), None)
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, str):
        raise FileError(f"line {number} of {path} has no 'turns', 'prompt' or 'text'")
    return [value]


def _usable(prompts: Iterable[str]) -> Iterable[str]:
    return (prompt for prompt in prompts if _LEAST_CHARACTERS <= len(prompt) <= _MOST_CHARACTERS)
