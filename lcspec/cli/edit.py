"""`lcspec edit`: files edited by an instruction."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import click

from lcspec.cli.diffs import can_apply, print_diff
from lcspec.cli.options import (
    encoding_option,
    engine_options,
    load_engine,
    sampling_options,
    seeded,
    split_sampling,
)
from lcspec.cli.progress_bar import progress_bar
from lcspec.cli.report import note, print_error, print_sum, printable, report_options, write
from lcspec.errors import LcspecError
from lcspec.stats import Stats
from lcspec.tasks.edit import Edited, edit_text
from lcspec.tasks.text_file import TextFile, check_new, write_new


def _line_range(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    """Return the first and the last line of A:B, A:, :B or A; None as the last is the end."""
    if value is None:
        return None
    first, colon, last = value.partition(":")
    try:
        lines = int(first or 1), int(last) if last else None if colon else int(first)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no range of lines such as 10:20, 10: or :20") from None
    if lines[0] < 1 or (lines[1] is not None and lines[1] < lines[0]):
        raise click.BadParameter(f"{value!r} has no lines: they count from 1, and the last is not before the first")
    return lines


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("-i", "--instruction", required=True, metavar="TEXT", help="What to do, such as 'Correct the spelling.'")
@click.option("-w", "--in-place", is_flag=True, help="Write the edited text into the file, in the place of a diff.")
@click.option("--backup", is_flag=True, help="With --in-place, keep the old file as FILE~.")
@click.option("-o", "--output", metavar="FILE", help="Write the edited text into another file, '-' to standard output.")
@click.option(
    "--lines", callback=_line_range, metavar="A:B", help="Edit only these lines; the others stay as they are."
)
@click.option("--force", is_flag=True, help="Take answers that are cut off, or don't look like the edited file, too.")
@encoding_option
@engine_options
@sampling_options
@click.option(
    "-n",
    "--max-tokens",
    type=click.IntRange(1),
    help="Most tokens of an answer, for each piece of a file [1.5 times those of the piece, and 64].",
)
@report_options
def edit(
    files: tuple[str, ...],
    instruction: str,
    in_place: bool,
    backup: bool,
    output: str | None,
    lines: tuple[int, int | None] | None,
    force: bool,
    encoding: str | None,
    max_tokens: int | None,
    stats: bool,
    **options: Any,
) -> None:
    """Edit each FILE by an instruction, and print how it would change.

    The diff can be applied with `git apply` or `patch -p1`; --in-place writes the file instead, whole or not at all.
    '-', or no FILE at all, edits standard input and prints the edited text. Line endings, encoding and permissions
    stay as they are, and long files are edited in pieces that the context holds.

    \b
    Examples:
      lcspec edit letter.txt -i "Correct the spelling."
      lcspec edit *.md -i "Use American English." --in-place --backup
      lcspec edit app.py --lines 40:80 -i "Add type hints." | git apply
      lcspec edit - -i "Translate the comments to English." < old.py > new.py
    """  # noqa: D301  click needs the backspace itself
    files = files or _piped()
    _check_usage(files, instruction, in_place, backup, output)
    stream_options, engine_options = split_sampling(options)
    sampling = seeded(stream_options["sampling"])
    if output is not None and output != "-":
        check_new(Path(output))
    failures = _Failures()
    all_stats: list[Stats] = []
    with ExitStack() as stack:
        engine = None
        for name in files:
            file = edited = None
            with failures.told():
                file = _read(name, encoding, in_place)
            if file is None:
                continue
            if engine is None:
                engine = stack.enter_context(load_engine(**engine_options))
                engine.chat_prompt([{"role": "user", "content": ""}])  # fails now if there is no template
            with failures.told(file.name), progress_bar(file.name, None) as on_progress:
                edited = edit_text(
                    engine,
                    file.text,
                    instruction,
                    lines=lines,
                    max_tokens=max_tokens,
                    on_progress=on_progress,
                    force=force,
                    sampling=sampling,
                    rule=stream_options["rule"],
                )
            if edited is not None:
                all_stats.append(edited.stats)
                with failures.told():
                    _put(file, edited, in_place, backup, output)
    if all_stats:
        print_sum(reduce(add, all_stats), full=stats, seed=sampling.seed)
    if failures.count:
        raise click.exceptions.Exit(1)


def _piped() -> tuple[str, ...]:
    if sys.stdin.isatty():
        raise click.UsageError("there is no FILE: name one, or pipe text in")
    return ("-",)


def _check_usage(files: Sequence[str], instruction: str, in_place: bool, backup: bool, output: str | None) -> None:
    if not instruction.strip():
        raise click.UsageError("--instruction is empty: say what to do")
    if "-" in files and len(files) > 1:
        raise click.UsageError("'-', standard input, can't be edited together with files")
    if "-" in files and in_place:
        raise click.UsageError("--in-place needs files, not standard input")
    if backup and not in_place:
        raise click.UsageError("--backup means nothing without --in-place")
    if output is not None and in_place:
        raise click.UsageError("--output and --in-place can't be had together")
    if output is not None and len(files) > 1:
        raise click.UsageError("--output takes the text of one FILE only")


def _read(name: str, encoding: str | None, in_place: bool) -> TextFile:
    if name == "-":
        return TextFile.of("standard input", sys.stdin.buffer.read(), encoding)
    file = TextFile.read(Path(name), encoding)
    if in_place:
        file.check_writable()
    return file


def _put(file: TextFile, edited: Edited, in_place: bool, backup: bool, output: str | None) -> None:
    """Write or print what came out."""
    for problem in edited.problems:
        note(f"warning: {printable(file.name)}: the answer {problem}")
    if edited.text == file.text:
        note(f"{printable(file.name)}: nothing was changed")
    if in_place:
        if edited.text != file.text:
            file.write(edited.text, backup=backup)
            note(f"{printable(file.name)}: edited")
    elif output == "-" or (output is None and file.path is None):
        if sys.stdout.isatty():
            write(edited.text)
        else:
            sys.stdout.buffer.write(file.encoded(edited.text))
            sys.stdout.buffer.flush()
    elif output is not None:
        write_new(Path(output), file.encoded(edited.text), file.mode)
    else:
        if not can_apply(file) and not sys.stdout.isatty():
            note(
                f"{printable(file.name)}: the diff is in UTF-8 and can't be applied to {file.encoding}; see --in-place"
            )
        print_diff(file, edited.text)


class _Failures:
    """Prints the errors of single files, so that the others go on."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def told(self, name: str = "") -> Iterator[None]:
        """Print an error within the block, behind the name of the file that it is about."""
        try:
            yield
        except KeyboardInterrupt:
            if name:
                note(f"{printable(name)}: stopped, so that nothing is written")
            raise
        except LcspecError as error:
            if click.get_current_context().find_root().params["debug"]:
                raise
            self.count += 1
            reason = " ".join(str(error).splitlines())
            print_error(f"{name}: {reason}" if name else reason)
