"""Where the user's turns come from."""

import io
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import click

from lcspec.cli.chat.terminal import PASTES_MARKED, tell
from lcspec.cli.report import note

PROMPT = "> "
_QUOTE = '"""'


class Reader(Protocol):
    """Reads turns."""

    def read(self) -> str | None:
        """Return the next turn, empty after Ctrl-C, None at the end of input."""


class LineReader:
    """Reads lines from standard input; at a terminal several between triple quotes.

    Args:
        is_interactive: a person types them, and sees a prompt.
    """

    def __init__(self, *, is_interactive: bool) -> None:
        self._is_interactive = is_interactive
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="strict")  # some locales let broken UTF-8 through

    def read(self) -> str | None:
        """Return the next line or lines."""
        try:
            text = input(PROMPT if self._is_interactive else "")
            while self._is_interactive and is_open(text):
                text += "\n" + input()
        except EOFError:
            if self._is_interactive:
                click.echo(err=True)  # behind the prompt
            return None
        except KeyboardInterrupt:
            click.echo(err=True)
            return ""
        except UnicodeDecodeError as error:
            raise click.ClickException("standard input is not UTF-8 text") from error
        return unquoted(text) if self._is_interactive else text


class Editor:
    """Reads turns of one or several lines from the terminal.

    Args:
        history: the file of what was typed earlier; None to keep nothing.
        arguments: by the name of a command, what returns its possible arguments, for completion.
        typed: what was typed already.
    """

    def __init__(
        self, history: Path | None, arguments: Mapping[str, Callable[[], Iterable[str]]], typed: str = ""
    ) -> None:
        from lcspec.cli.chat.editor import make_prompt, type_ahead  # which take a moment to import

        self._prompt = make_prompt(PROMPT, history, arguments)
        type_ahead(self._prompt, typed)

    def read(self) -> str | None:
        """Return what was typed."""
        from prompt_toolkit.patch_stdout import patch_stdout

        try:
            with patch_stdout(raw=True):
                text = self._prompt.prompt()
        except EOFError:
            return None
        except KeyboardInterrupt:
            note("Ctrl-D or /quit leaves")
            return ""
        finally:
            tell(PASTES_MARKED)  # the prompt ended that
        return unquoted(text.encode("utf-8", "replace").decode())


def is_open(text: str) -> bool:
    """Whether a text begins with triple quotes that do not end yet."""
    text = text.strip()
    return text.startswith(_QUOTE) and not (len(text) >= 2 * len(_QUOTE) and text.endswith(_QUOTE))


def unquoted(text: str) -> str:
    """Return what is between the triple quotes around a text, or the text where there are none."""
    stripped = text.strip()
    if stripped.startswith(_QUOTE) and not is_open(text):
        return " " + stripped.removeprefix(_QUOTE).removesuffix(_QUOTE).strip("\n")  # no command
    return text
