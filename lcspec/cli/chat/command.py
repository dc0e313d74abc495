"""`lcspec chat`: a conversation in the terminal."""

import io
import sys
from contextlib import suppress
from typing import Any

import click

from lcspec.cli.options import engine_options, load_engine, sampling_options, split_sampling
from lcspec.cli.report import note, print_statistics, print_text, report_options
from lcspec.engine import SpeculativeLM, StreamOptions
from lcspec.errors import PromptError

with suppress(ImportError):
    import readline  # noqa: F401  gives input() line editing and a history


_HELP = "/clear starts anew, /exit or Ctrl-D leaves, Ctrl-C ends an answer"


@click.command()
@engine_options
@sampling_options
@click.option("-s", "--system", metavar="TEXT", help="A system message, before the first turn.")
@click.option("-n", "--max-tokens", type=click.IntRange(1), help="Most tokens of an answer.")
@report_options
def chat(system: str | None, max_tokens: int | None, stats: bool, **options: Any) -> None:
    """Talk to a model; each turn evaluates only what is new.

    Ctrl-C ends an answer and keeps what was said, /clear starts anew, /exit or Ctrl-D leaves. Without a
    terminal, each line of standard input is a turn.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")  # some locales let broken UTF-8 through
    sampling, engine_options = split_sampling(options)
    opening = [{"role": "system", "content": system}] if system else []
    with load_engine(**engine_options) as engine:
        engine.chat_prompt([*opening, {"role": "user", "content": ""}])  # fails now if there is no template
        note(f"{engine.target.path.name}, {engine.n_ctx:,} tokens of context; {_HELP}")
        messages = list(opening)
        while (turn := _read_turn()) not in (None, "/exit", "/quit"):
            if turn == "/clear":
                messages = list(opening)
                note("the conversation starts anew")
            elif turn == "/help":
                note(_HELP)
            elif turn:
                _answer(engine, messages, turn, stats, {"max_tokens": max_tokens, **sampling})


def _read_turn() -> str | None:
    """Return the next line, empty after Ctrl-C, None at the end of input."""
    prompt = "> " if sys.stdin.isatty() and sys.stdout.isatty() else ""
    try:
        return input(prompt).strip()
    except EOFError:
        return None
    except KeyboardInterrupt:
        click.echo(err=True)
        return ""
    except UnicodeDecodeError as error:
        raise click.ClickException("standard input is not UTF-8 text") from error


def _answer(
    engine: SpeculativeLM, messages: list[dict[str, str]], turn: str, stats: bool, options: StreamOptions
) -> None:
    """Stream the answer to `turn` and append both to `messages`; a turn that does not fit is left out."""
    asked = {"role": "user", "content": turn}
    try:
        stream = engine.stream(engine.chat_prompt([*messages, asked]), **options)
    except PromptError as error:
        note(f"{error}; /clear starts anew")
        return
    print_text(stream)
    click.echo()
    completion = stream.completion
    messages += [asked, {"role": "assistant", "content": completion.text}]
    print_statistics(completion, full=stats)
