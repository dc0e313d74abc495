"""What commands print, and how they end."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from lcspec.stats import Stats
    from lcspec.stream import Completion, Stream

_ENDS = {"length": "; cut off there", "cancelled": "; stopped there"}  # where the model would have gone on

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

UNREAD = 141
"""Exit status when the reader of a pipe left, as of programs that SIGPIPE ends."""


_QUIET = f"{__name__}.quiet"  # in the context of the command that runs

_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_C1 = dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_HARMLESS = _PICTURES | {ord("\r"): None, 0x7F: 0x2421} | _C1

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _be_quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    context.meta[_QUIET] = quiet
    if quiet and not context.resilient_parsing:
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

        disable_progress_bars()


quiet_option = click.option(
    "-q",
    "--quiet/--no-quiet",
    envvar="LCSPEC_QUIET",
    expose_value=False,
    callback=_be_quiet,
    help="Print nothing but the result, and errors.",
)
"""Gives a command --quiet, which `note` obeys."""


def report_options(command: _Command) -> _Command:
    """Give `command` the options that say how much it tells: --quiet, and --stats as its argument."""
    stats = click.option("--stats/--no-stats", envvar="LCSPEC_STATS", help="Print all statistics, not only one line.")
    return quiet_option(stats(command))


def is_quiet() -> bool:
    """Whether the command that runs was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def note(message: str) -> None:
    """Print a quiet line about what happens, unless nothing is to be told; what would control a terminal is escaped."""
    if not is_quiet():
        line = "\n".join(map(printable, f"lcspec: {message}".split("\n")))
        click.secho(_wrapped(line) if sys.stderr.isatty() else line, err=True, dim=not is_dumb())


def print_error(error: Exception | str) -> None:
    """Print what went wrong, in a program that goes on."""
    line = f"Error: {printable(str(error))}"
    click.echo(_wrapped(line) if sys.stderr.isatty() else line, err=True)


def is_dumb() -> bool:
    """Whether the terminal knows no escape sequences."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


def _wrapped(line: str) -> str:
    """Return a line without words that a terminal would cut in two."""
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def confirmed(question: str) -> bool:
    """Ask on the terminal, yes being the default and no the end of input; Ctrl-C ends the command."""
    while True:
        click.echo(f"{question} [Y/n] ", nl=False, err=True)
        with _lines_typed():
            answer = sys.stdin.readline()
        if not answer:
            click.echo(err=True)
            return False
        if (short := answer.strip().lower()) in ("", "y", "yes", "n", "no"):
            return not short.startswith("n")


@contextmanager
def _lines_typed() -> Iterator[None]:
    """Let what is typed be seen, and Enter end it, also where a terminal was set to keep it for an editor."""
    if not sys.stdin.isatty() or sys.platform == "win32":
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    lines = [*before]
    lines[0] |= termios.ICRNL
    lines[3] |= termios.ECHO | termios.ICANON
    termios.tcsetattr(sys.stdin, termios.TCSANOW, lines)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class _Notes(logging.Handler):
    """Prints log messages as quiet lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        note(record.getMessage())


def announce_long_work() -> None:
    """Print a quiet line about whatever is fetched or measured, as it takes a while."""
    for name in ("hub", "exactness", "costs", "store", "layer_search", "loaded_draft", "server"):
        log = logging.getLogger(f"lcspec.{name}")
        if not log.handlers:
            log.addHandler(_Notes())
            log.setLevel(logging.INFO)
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # it retries, and says so in several lines


def size_text(n_bytes: int) -> str:
    """Return a number of bytes in words."""
    return f"{n_bytes / 1e9:,.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:,.0f} MB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a head in columns, without blanks at the ends of lines."""
    lines = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def printable(text: str) -> str:
    """Return a text with escapes in the place of what would control a terminal."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def harmless(text: str) -> str:
    """Return a text of several lines whose control characters can be seen instead of controlling the terminal."""
    return text.translate(_HARMLESS)


def write(text: str) -> None:
    """Write what a model says to standard output: as it is, but to a terminal without what would control it."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)  # click.echo would take escape sequences out
    sys.stdout.flush()


def print_text(stream: Stream, *, silent: bool = False) -> bool:
    """Print the text to standard output as it comes, and tell whether Ctrl-C ended it."""
    try:
        with stream:
            for piece in stream:
                if not silent:
                    write(piece.text)
    except KeyboardInterrupt:
        return True
    return False


def print_statistics(completion: Completion, *, full: bool) -> None:
    """Print one line, or all statistics, to standard error."""
    if full:
        rows: list[tuple[str, str]] = [("ended by", completion.finish_reason)]
        if completion.seed is not None:
            rows.append(("seed", str(completion.seed)))
        click.echo(details(completion.stats, rows), err=True)
    else:
        seed = "" if completion.seed is None else f"; seed {completion.seed}"
        note(summary(completion.stats) + _ENDS.get(completion.finish_reason, "") + seed)


def print_sum(stats: Stats, *, full: bool, seed: int | None = None) -> None:
    """Print one line, or all statistics, of texts together, to standard error."""
    if full:
        click.echo(details(stats, [] if seed is None else [("seed", str(seed))]), err=True)
    else:
        note(summary(stats) + ("" if seed is None else f"; seed {seed}"))


def summary(stats: Stats) -> str:
    """Return one line: how fast, and why, and whether the text is exactly the model's."""
    return f"{_speed(stats)}; {_exactness(stats)}" if stats.target_passes else _speed(stats)


def _exactness(stats: Stats) -> str:
    return "exact" if stats.exact is True else f"known to be exact for {stats.exact:,} tokens (--exact: for all)"


def _speed(stats: Stats) -> str:
    if stats.tokens == 0:
        return "0 tokens"
    line = f"{stats.tokens:,} tokens, the first after {stats.prefill_seconds:.2f} s"
    if stats.texts > 1:
        line = f"{stats.tokens:,} tokens in {stats.texts:,} texts, the first ones after {stats.prefill_seconds:.2f} s"
    if not stats.target_passes:
        return line
    line += f", then {stats.tokens_per_second:,.1f} tokens/s"
    if not stats.drafters:
        return f"{line}, one a pass: nothing was drafted"
    shares = ", ".join(
        f"{name} drafted {share.drafted:,} of which {share.accepted:,} were right"
        for name, share in stats.drafters.items()
    )
    line += f", {stats.tokens_per_pass:.2f} a pass: {shares}"
    return line if stats.speedup is None else f"{line}; about {stats.speedup:.1f} times plain decoding (estimated)"


def _estimate(stats: Stats) -> list[tuple[str, str]]:
    if stats.speedup is None:
        return []
    return [("plain decoding", f"about {stats.plain_seconds:.3f} s, {stats.speedup:.2f} times as long (estimated)")]


def details(stats: Stats, more: Sequence[tuple[str, str]] = ()) -> str:
    """Return statistics, a line each, with `more` names and values in their midst."""
    rows = [
        ("prompt", f"{stats.prompt_tokens:,} tokens, {stats.cached_tokens:,} of them cached"),
        ("first token after", f"{stats.prefill_seconds:.3f} s"),
        ("decoding", f"{stats.tokens - stats.texts:,} tokens in {stats.decode_seconds:.3f} s"),
        ("", f"{stats.tokens_per_second:,.1f} tokens/s"),
        *_estimate(stats),
        ("target passes", f"{stats.target_passes:,}, {stats.tokens_per_pass:.2f} tokens each"),
        ("exact", "yes" if stats.exact is True else f"known of the first {stats.exact:,} tokens (see lcspec inspect)"),
        *more,
    ]
    for name, share in stats.drafters.items():
        rate = share.accepted / share.drafted
        rows.append(
            (
                name,
                f"{share.drafts:,} drafts, {share.drafted:,} tokens, {share.accepted:,} accepted ({rate:.0%})",
            )
        )
    if stats.plan is not None:
        rows += [("plan" if i == 0 else "", reason) for i, reason in enumerate(stats.plan.reasons)]
    return "\n".join(f"{name:>18}  {value}" for name, value in rows)
