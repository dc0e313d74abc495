"""The line editor."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.styles import Style

from lcspec.cli.chat.completer import CommandCompleter, is_command
from lcspec.cli.chat.history import PrivateHistory
from lcspec.cli.chat.input import is_open


def make_prompt(
    prompt: str, history: Path | None, arguments: Mapping[str, Callable[[], Iterable[str]]]
) -> PromptSession[str]:
    """Return what reads a turn.

    Args:
        prompt: what stands before the turn.
        history: the file of what was typed earlier; None to keep nothing.
        arguments: by the name of a command, what returns its possible arguments.
    """
    session = PromptSession[str](
        [("class:prompt", prompt)],
        multiline=True,
        prompt_continuation=" " * len(prompt),
        history=InMemoryHistory() if history is None else PrivateHistory(history),
        completer=CommandCompleter(arguments),
        complete_while_typing=Condition(lambda: is_command(get_app().current_buffer.text)),
        key_bindings=_keys(),
        enable_open_in_editor=True,
        enable_suspend=True,
        style=Style.from_dict({"prompt": "bold"}),
        output=create_output(always_prefer_tty=True),
    )
    session.app.renderer.cpr_not_supported_callback = None  # it would warn
    return session


def type_ahead(session: PromptSession[str], text: str) -> None:
    """Let the session read a text before what is typed next."""
    keys: list[KeyPress] = []
    Vt100Parser(keys.append).feed_and_flush(text)
    store_typeahead(session.app.input, keys)


def _keys() -> KeyBindings:
    keys = KeyBindings()
    editing = has_focus(DEFAULT_BUFFER)

    @keys.add("enter", filter=editing)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=editing)
    @keys.add("c-j", filter=editing)
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c", filter=editing)
    def clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return keys
