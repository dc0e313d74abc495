"""`lcspec chat`: its options, and how a session comes about."""

import io
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from platformdirs import user_data_path

from lcspec.cli.chat.display import Display, PlainDisplay
from lcspec.cli.chat.engine import EngineInUse
from lcspec.cli.chat.input import Editor, LineReader, Reader
from lcspec.cli.chat.keeping import Keeping
from lcspec.cli.chat.terminal import keys_kept_for_editor
from lcspec.cli.options import draft_for, engine_options, sampling_options, split_sampling
from lcspec.cli.report import is_dumb, note, print_error, report_options
from lcspec.conversation import Conversation
from lcspec.conversations import Conversations
from lcspec.errors import LcspecError
from lcspec.hub import catalog, local_models

if TYPE_CHECKING:
    from lcspec.cli.chat.session import Session


@click.command()
@engine_options
@sampling_options
@click.option("-s", "--system", metavar="TEXT", help="A system message, before the first turn.")
@click.option("-n", "--max-tokens", type=click.IntRange(1), help="Most tokens of an answer.")
@click.option("--continue", "continues", is_flag=True, help="Go on with the latest conversation, and its model.")
@click.option("--resume", metavar="NAME", help="Go on with this conversation, and its model.")
@click.option("--no-save", is_flag=True, help="Keep nothing of the conversation on disk.")
@click.option("--no-cache", is_flag=True, help="Do not keep what the model made of it, which makes going on quick.")
@click.option("--show-drafts", is_flag=True, help="Colour what was drafted, in place of laying out Markdown.")
@report_options
def chat(
    system: str | None,
    max_tokens: int | None,
    continues: bool,
    resume: str | None,
    no_save: bool,
    no_cache: bool,
    show_drafts: bool,
    stats: bool,
    **options: Any,
) -> None:
    """Talk to a model; each turn evaluates only what is new.

    In a terminal, answers are laid out as Markdown while they come, and the conversation is kept after each turn in
    your data folder, readable by you alone. Ctrl-C ends an answer and keeps it, Ctrl-D leaves, /help lists commands
    such as /clear. Without a terminal, each line of standard input is a turn, and nothing is kept unless a
    conversation is gone on with.

    \b
    Examples:
      lcspec chat
      lcspec chat -m qwen2.5-coder-1.5b -s "You answer briefly."
      lcspec chat --continue
      lcspec chat < questions.txt > answers.txt
    """  # noqa: D301  click needs the backspace itself
    if continues and resume is not None:
        raise click.UsageError("--continue and --resume name two conversations: give one of them")
    sampling, engine_options = split_sampling(options)
    has_editor = sys.stdin.isatty() and (sys.stdout.isatty() or sys.stderr.isatty()) and not is_dumb()
    warming = threading.Thread(target=_import_what_shows, args=(has_editor,), daemon=True)
    warming.start()  # while the model is loaded
    conversations = Conversations()
    resumed = _resumed(conversations, continues, resume)
    named = ParameterSource.COMMANDLINE
    if resumed is not None and click.get_current_context().get_parameter_source("model") is not named:
        draft = draft_for(resumed.model, engine_options["draft"], named)
        engine_options.update(model=resumed.model, draft=draft)
    keeping = Keeping(
        conversations,
        is_on=not no_save and (sys.stdin.isatty() or resumed is not None),
        with_cache=not no_cache,
    )
    keys = keys_kept_for_editor() if has_editor else nullcontext("")
    with keys as typed, EngineInUse(engine_options) as in_use:
        warming.join()
        from lcspec.cli.chat.session import Session

        conversation = resumed or keeping.begin(in_use.name)
        conversation.model = in_use.name
        if system is not None:
            conversation.set_system(system)
        session = Session(
            in_use,
            conversation,
            keeping,
            _display(show_drafts),
            {"max_tokens": max_tokens, **sampling},
            stats=stats,
            has_editor=has_editor,
        )
        _greet(session, is_resumed=resumed is not None)
        _talk(session, _reader(has_editor, no_save, conversations, typed))


def _resumed(conversations: Conversations, continues: bool, name: str | None) -> Conversation | None:
    if name is not None:
        return conversations.load(name)
    if not continues:
        return None
    if (latest := conversations.latest()) is None:
        note("there is no conversation to go on with: a new one begins")
    return latest


def _import_what_shows(has_editor: bool) -> None:
    if has_editor:
        from lcspec.cli.chat import editor  # noqa: F401
    if sys.stdout.isatty() and not is_dumb():
        from lcspec.cli.chat.markdown_display import MarkdownDisplay

        MarkdownDisplay.warm_up()


def _display(show_drafts: bool) -> Display:
    if not sys.stdout.isatty() or is_dumb():
        return PlainDisplay()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the terminal has no characters for
    if show_drafts:
        from lcspec.cli.chat.drafts_display import DraftsDisplay

        return DraftsDisplay()
    from lcspec.cli.chat.markdown_display import MarkdownDisplay

    return MarkdownDisplay()


def _reader(has_editor: bool, no_save: bool, conversations: Conversations, typed: str) -> Reader:
    if not has_editor:
        return LineReader(is_interactive=sys.stdin.isatty() and sys.stdout.isatty())
    arguments: Mapping[str, Callable[[], Iterable[str]]] = {
        "load": conversations.names,
        "model": _model_names,
        "draft": lambda: ["off", *_model_names()],
    }
    return Editor(None if no_save else user_data_path("lcspec") / "chat_history", arguments, typed)


def _model_names() -> list[str]:
    here = sorted(model.name for model in local_models() if model.is_complete)
    return list(dict.fromkeys([*here, *sorted(catalog())]))


def _greet(session: "Session", *, is_resumed: bool) -> None:
    from lcspec.cli.chat.commands import HINT, about

    engine = session.in_use.engine
    note(f"{engine.target.path.name}, {engine.n_ctx:,} tokens of context")
    if sys.stdin.isatty():
        note(HINT)
    if is_resumed:
        conversation = session.conversation
        session.keeping.restore_cache(engine, conversation)
        note(about(conversation))
        session.show_last_turn()
        if conversation.unanswered is not None:
            note("the last message has no answer: /retry answers it")


def _talk(session: "Session", reader: Reader) -> None:
    from lcspec.cli.chat.commands import Leave, run

    if sys.stdin.isatty() and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # when the terminal goes, input ends, and what is needed is kept
    try:
        while (line := reader.read()) is not None:
            try:
                if not run(session, line) and (turn := line.strip()):
                    session.ask(turn)
            except LcspecError as error:
                print_error(error)
            except KeyboardInterrupt:  # not in an answer, which it ends, but while a model is loaded or the like
                note("stopped")
    except Leave:
        pass
    finally:
        session.keep_cache()
    keeping, conversation = session.keeping, session.conversation
    if problem := keeping.problem(conversation):
        print_error(f"the conversation is not kept as it is now: {problem}")
    elif sys.stdin.isatty() and keeping.is_kept(conversation):
        note(f"kept as {conversation.name}; `lcspec chat --continue` goes on with it")
