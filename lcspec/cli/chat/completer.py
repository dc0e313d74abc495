"""Completion of slash commands."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from lcspec.cli.chat.commands import COMMANDS


class CommandCompleter(Completer):
    """Completes the names of commands, and what may stand behind them.

    Args:
        arguments: by the name of a command, what returns its possible arguments.
    """

    def __init__(self, arguments: Mapping[str, Callable[[], Iterable[str]]]) -> None:
        self._arguments = arguments

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield what could be meant."""
        text = document.text_before_cursor
        if not is_command(document.text):
            return
        name, blank, argument = text[1:].partition(" ")
        if not blank:
            for command in COMMANDS:
                if command.name.startswith(name):
                    behind = " " if command.argument.isupper() else ""
                    yield Completion(f"/{command.name}{behind}", -len(text), display_meta=command.help)
        elif name in self._arguments:
            for choice in self._arguments[name]():
                if choice.startswith(argument):
                    yield Completion(choice, -len(argument))


def is_command(text: str) -> bool:
    """Whether a command is being typed."""
    return text.startswith("/") and "\n" not in text
