"""Unified diffs, for `patch` and `git apply` or for the eyes."""

import os
import re
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import click

from lcspec.tasks.text_file import TextFile

_COLOURS = {"@": "cyan", "+": "green", "-": "red"}
_UNENDED = "\\ No newline at end of file\n"
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def print_diff(file: TextFile, edited: str) -> None:
    """Print how a file's text would change; in bytes that can be applied, or to a terminal in colours."""
    if sys.stdout.isatty():
        has_colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        for i, line in enumerate(_diff(file.name, file.text, edited)):
            shown = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], line.removesuffix("\n").removesuffix("\r"))
            style = {"bold": True} if i < 2 else {"fg": _COLOURS.get(line[0])}
            click.echo(click.style(shown, **style) if has_colours else shown, color=has_colours)
        return
    encoding, mark = ("utf-8", "") if not can_apply(file) else (file.encoding, file.mark.decode(file.encoding))
    for i, line in enumerate(_diff(file.name, mark + file.text, mark + edited)):
        sys.stdout.buffer.write(os.fsencode(line) if i < 2 else line.encode(encoding))
    sys.stdout.buffer.flush()


def can_apply(file: TextFile) -> bool:
    """Whether a diff in the bytes of the file makes sense to other programs, which look for lines in ASCII."""
    return "\n+-@".encode(file.encoding) == b"\n+-@"


def _diff(name: str, before: str, after: str) -> Iterator[str]:
    lines = unified_diff(_lines(before), _lines(after), _label("a", name), _label("b", name))
    for line in lines:
        if line.endswith("\n"):
            yield line
        else:
            yield line + "\n"
            yield _UNENDED


def _lines(text: str) -> list[str]:
    r"""Return the lines as other programs see them: only \n ends one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _label(side: str, name: str) -> str:
    """Return the name of a file as `git diff` writes it, relative to the current folder if it is within."""
    path = Path(os.path.abspath(name))
    relative = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.relative_to(path.anchor)
    label = f"{side}/{relative.as_posix()}"
    if any(character in _ESCAPES or _CONTROL.match(character) for character in label):
        quoted = (_ESCAPES.get(character) or _octal(character) for character in label)
        return f'"{"".join(quoted)}"'
    return f"{label}\t" if " " in label else label


def _octal(character: str) -> str:
    return f"\\{ord(character):03o}" if _CONTROL.match(character) else character
