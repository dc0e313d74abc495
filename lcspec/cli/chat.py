"""`lcspec chat`: a conversation in the terminal."""

import sys
from contextlib import suppress
from typing import Any

import click

from lcspec.cli.options import engine_options, load_engine
from lcspec.cli.report import note, summary
from lcspec.engine import SpeculativeLM
from lcspec.errors import PromptError

with suppress(ImportError):
    import readline  # noqa: F401  gives input() line editing and a history


@click.command()
@engine_options
@click.option("-s", "--system", metavar="TEXT", help="A system message, before the first turn.")
@click.option("-n", "--max-tokens", type=click.IntRange(1), help="Most tokens of an answer.")
def chat(system: str | None, max_tokens: int | None, **engine_options: Any) -> None:
    """Talk to a model; each turn evaluates only what is new.

    Ctrl-C ends an answer and keeps what was said, /clear starts anew, Ctrl-D leaves.
    """
    opening = [{"role": "system", "content": system}] if system else []
    with load_engine(**engine_options) as engine:
        engine.chat_prompt([*opening, {"role": "user", "content": ""}])  # fails now if there is no template
        note(f"{engine.target.path.name}, {engine.n_ctx:,} tokens of context; /clear starts anew, Ctrl-D leaves")
        messages = list(opening)
        while (turn := _read_turn()) is not None:
            if turn == "/clear":
                messages = list(opening)
            elif turn:
                _answer(engine, messages, turn, max_tokens)


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


def _answer(engine: SpeculativeLM, messages: list[dict[str, str]], turn: str, max_tokens: int | None) -> None:
    """Stream the answer to `turn` and append both to `messages`; a turn that does not fit is left out."""
    asked = {"role": "user", "content": turn}
    try:
        stream = engine.stream(engine.chat_prompt([*messages, asked]), max_tokens=max_tokens)
    except PromptError as error:
        note(f"{error}; /clear starts anew")
        return
    with stream, suppress(KeyboardInterrupt):
        for piece in stream:
            click.echo(piece.text, nl=False)
    click.echo()
    completion = stream.completion
    messages += [asked, {"role": "assistant", "content": completion.text}]
    note(summary(completion.stats))
