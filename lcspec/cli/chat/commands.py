"""What can be said to the chat itself: lines that begin with a slash."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace

import click

from lcspec.cli.chat.session import RETRY_TEMPERATURE, Session
from lcspec.cli.report import harmless, note, print_statistics, printable
from lcspec.conversation import Conversation
from lcspec.errors import FileError, PromptError

_COMMAND = re.compile(r"/([A-Za-z]+|\?)(?:\s+(.*))?", re.DOTALL)
_LISTED = 20
_SHOWN = 50  # characters of a message in a line

HINT = "/help lists commands, Ctrl-C ends an answer, Ctrl-D leaves"
_KEYS = (
    'Enter sends; Alt-Enter or Ctrl-J begins a new line, and so does Enter between """ and """. Up and Ctrl-R bring '
    "earlier messages back, Ctrl-X Ctrl-E opens an editor. Ctrl-C ends an answer, which stays, and clears a line; "
    "Ctrl-D leaves. A message that begins like a command is sent if a blank is before it."
)


class Leave(Exception):
    """The user wants to leave."""


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: without the slash.
        run: does it, given what stands behind the name.
        help: what it does.
        argument: what may stand behind the name.
        synonyms: other names.
    """

    name: str
    run: Callable[[Session, str], None]
    help: str
    argument: str = ""
    synonyms: tuple[str, ...] = ()


def run(session: Session, line: str) -> bool:
    """Do what a line says, if it is a command, and tell whether it is one.

    Raises:
        Leave: it says to leave.
        LcspecError: it can't be done.
    """
    if (found := _COMMAND.fullmatch(line.rstrip())) is None:
        return False
    name, argument = found[1], found[2] or ""
    for command in COMMANDS:
        if name in (command.name, *command.synonyms):
            if argument and not command.argument:
                raise PromptError(f"/{name} takes nothing behind it; a blank before it sends it as a message")
            command.run(session, argument)
            return True
    raise PromptError(
        f"/{printable(name)} is no command; /help lists them, and a blank before it sends it as a message"
    )


def _help(session: Session, _: str) -> None:
    rows = []
    for command in COMMANDS:
        also = f" (also /{', /'.join(command.synonyms)})" if command.synonyms else ""
        rows.append((f"/{command.name} {command.argument}".rstrip(), command.help + also))
    text = click.HelpFormatter(width=min(shutil.get_terminal_size().columns - 1, 100))
    text.write_dl(rows)
    text.write_paragraph()
    text.write_text(_KEYS)
    click.echo(text.getvalue(), nl=False, err=True)


def _reset(session: Session, _: str) -> None:
    system = session.conversation.system
    conversation = session.keeping.begin(session.conversation.model)
    conversation.set_system(system)
    session.go_on_with(conversation)
    note("the conversation starts anew")


def _system(session: Session, text: str) -> None:
    conversation = session.conversation
    if not text:
        click.echo(harmless(conversation.system or "") or "there is no system message; /system TEXT sets one", err=True)
        return
    conversation.set_system(None if text == "off" else text)
    session.keeping.save(conversation)
    note("there is no system message now" if text == "off" else "the system message is set")


def _retry(session: Session, _: str) -> None:
    session.retry()


def _undo(session: Session, _: str) -> None:
    text = session.undo()
    note("there is nothing to undo" if text is None else f"undone: {_short(text)}")


def _save(session: Session, name: str) -> None:
    session.keeping.name(session.conversation, name)
    note(f"kept as {session.conversation.name}")


def _load(session: Session, name: str) -> None:
    if not name:
        raise PromptError("/load needs the NAME of a conversation; /list shows them")
    conversation = session.keeping.load(name)
    session.go_on_with(conversation)
    note(about(conversation))
    if conversation.model != session.in_use.name:
        note(f"that was with {conversation.model}; /model {conversation.model} changes to it")
    session.show_last_turn()


def _list(session: Session, _: str) -> None:
    conversations = session.keeping.conversations
    names = conversations.names()
    if not names:
        note("no conversations are kept")
    for name in names[:_LISTED]:
        try:
            line = about(conversations.peek(name))
        except FileError as error:
            line = printable(f"{name}: {error}")
        click.echo(("* " if name == session.conversation.name else "  ") + line, err=True)
    if len(names) > _LISTED:
        note(f"and {len(names) - _LISTED:,} older ones in {conversations.folder}")


def _model(session: Session, name: str) -> None:
    in_use = session.in_use
    if not name:
        draft = in_use.options["draft"]
        click.echo(printable(in_use.options["model"] + (f", drafted by {draft}" if draft else "")), err=True)
        return
    session.keep_cache()
    in_use.exchange(model=name, draft=None, drafter=_without_draft(in_use.options["drafter"]))
    session.conversation.model = in_use.name
    session.keeping.save(session.conversation)
    session.keeping.restore_cache(in_use.engine, session.conversation)
    note(f"{in_use.engine.target.path.name} answers from now on")


def _draft(session: Session, name: str) -> None:
    in_use = session.in_use
    draft = None if name == "off" else name
    if not name:
        click.echo(printable(in_use.options["draft"] or "there is no draft model; /draft NAME loads one"), err=True)
        return
    if draft == in_use.options["draft"]:
        note("that is so already")
        return
    session.keep_cache()
    drafter = in_use.options["drafter"]
    in_use.exchange(draft=draft, drafter=_without_draft(drafter) if draft is None else drafter)
    session.keeping.restore_cache(in_use.engine, session.conversation)
    note(f"{draft} drafts from now on" if draft else "no draft model is used now")


def _without_draft(drafter: str) -> str:
    return "auto" if drafter in ("model", "head") else drafter


def _temperature(session: Session, text: str) -> None:
    if not text:
        click.echo(f"{session.sampling.temperature:g}", err=True)
        return
    try:
        temperature = float(text)
    except ValueError:
        raise PromptError(f"/temp takes a number, not {text!r}") from None
    session.options["sampling"] = replace(session.sampling, temperature=temperature)
    if temperature == 0:
        session.options["rule"] = None
    note(f"the temperature is {temperature:g}")


def _stats(session: Session, _: str) -> None:
    if session.last is None:
        note("nothing was answered yet")
        return
    stats = session.last.completion.stats
    print_statistics(session.last.completion, full=True)
    click.echo(f"{'context':>18}  {stats.prompt_tokens + stats.tokens:,} of {session.in_use.engine.n_ctx:,}", err=True)


def _quit(session: Session, _: str) -> None:
    raise Leave


def about(conversation: Conversation) -> str:
    """Return a line that says which conversation this is."""
    questions = [message["content"] for message in conversation.messages if message["role"] == "user"]
    turns = "1 turn" if len(questions) == 1 else f"{len(questions):,} turns"
    began = f": {_short(questions[0])}" if questions else ""
    return f"{printable(conversation.name)}, {turns}{began}"


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"


COMMANDS = (
    Command("help", _help, "this list", synonyms=("?",)),
    Command("reset", _reset, "begin a new conversation, with the same system message", synonyms=("clear",)),
    Command("system", _system, "show the system message, set it, or do without", "[TEXT|off]"),
    Command(
        "retry",
        _retry,
        f"answer the last message anew: with another seed, or at temperature {RETRY_TEMPERATURE:g} where it would be "
        "the same at 0",
    ),
    Command("undo", _undo, "forget the last message and its answer"),
    Command("save", _save, "keep the conversation under a name", "[NAME]"),
    Command("load", _load, "go on with a conversation", "NAME"),
    Command("list", _list, "list the conversations that are kept"),
    Command("model", _model, "show the model, or let another one answer", "[NAME]"),
    Command("draft", _draft, "show the draft model, load another one, or do without", "[NAME|off]"),
    Command("temp", _temperature, "show the temperature, or set it", "[N]"),
    Command("stats", _stats, "statistics of the last answer"),
    Command("quit", _quit, "leave", synonyms=("exit",)),
)
