"""`lcspec summarize`: files in, what they say in short out."""

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from lcspec.cli.options import (
    encoding_option,
    engine_options,
    load_engine,
    sampling_options,
    seeded,
    split_sampling,
)
from lcspec.cli.report import INTERRUPTED, is_quiet, note, print_error, print_sum, printable, report_options, write
from lcspec.engine import SpeculativeLM
from lcspec.errors import FileError
from lcspec.stats import Stats
from lcspec.tasks.documents import Document
from lcspec.tasks.sentences import count_words
from lcspec.tasks.summarize import DEFAULT_WORDS, SummaryStream
from lcspec.tasks.summary import Progress, Summary


@click.command()
@click.argument("files", metavar="[FILE]...", nargs=-1)
@engine_options
@sampling_options
@click.option(
    "--words",
    type=click.IntRange(1, 100_000),
    default=DEFAULT_WORDS,
    show_default=True,
    help="Words of the summary at the most; one sentence it always has.",
)
@click.option("--bullets", is_flag=True, help="List the main points.")
@click.option("--title", is_flag=True, help="Find a title, too.")
@click.option("--each", is_flag=True, help="Write a summary of each file, not one of all files together.")
@encoding_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with --each a list of them.")
@report_options
def summarize(
    files: tuple[str, ...],
    words: int,
    bullets: bool,
    title: bool,
    each: bool,
    encoding: str | None,
    as_json: bool,
    stats: bool,
    **options: Any,
) -> None:
    """Summarize text, Markdown, HTML and PDF files; '-', or no FILE at all, is standard input.

    Several files become one summary, unless you ask for one of --each. What does not fit into the context is
    summarized in pieces, and then the summaries are; more context (-c) means fewer pieces. PDF files need an extra:
    pip install 'lcspec[pdf]'.

    \b
    Examples:
      lcspec summarize report.pdf
      lcspec summarize --bullets --words 60 notes.md
      lcspec summarize --each --title chapters/*.html
      curl -s https://example.com/ | lcspec summarize
    """  # noqa: D301  click needs the backspace itself
    if not files and sys.stdin.isatty():
        raise click.UsageError("there is no FILE: name one, or pipe text in")
    if files.count("-") > 1:
        raise click.UsageError("standard input (-) can be summarized only once")
    wanted, engine_options = split_sampling(options)
    sampling = seeded(wanted["sampling"])
    documents, failed = _read_all(files or ("-",), encoding, forgiving=each)
    if not documents:
        raise click.exceptions.Exit(1)
    asked: dict[str, Any] = {"words": words, "bullets": bullets, "title": title, **wanted, "sampling": sampling}
    groups = [[document] for document in documents] if each else [documents]
    done: list[dict[str, Any]] = []
    total = Stats()
    with load_engine(**engine_options) as engine:
        for number, group in enumerate(groups):
            writer = _Writer(silent=as_json, head=group[0].name if len(groups) > 1 else "", first=number == 0)
            summary = writer.write(engine, _text_of(group), asked)
            done.append({"files": [document.name for document in group], **summary.as_dict()})
            total += summary.stats
            failed = failed or not summary.text
            if writer.interrupted:
                break
    if as_json:
        write(json.dumps(done if each else done[0], ensure_ascii=False) + "\n")
    print_sum(total, full=stats, seed=sampling.seed if sampling.temperature > 0 else None)
    if writer.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if failed:
        raise click.exceptions.Exit(1)


def _read_all(names: tuple[str, ...], encoding: str | None, *, forgiving: bool) -> tuple[list[Document], bool]:
    """Return the documents, and whether some could not be read, where that shall not end everything."""
    documents = []
    failed = False
    for name in names:
        try:
            if name == "-":
                documents.append(Document.of("standard input", sys.stdin.buffer.read(), encoding))
            else:
                documents.append(Document.read(Path(name), encoding))
        except FileError as error:
            if not forgiving:
                raise
            failed = True
            print_error(error)
    return documents, failed


def _text_of(documents: list[Document]) -> str:
    """Return the text of a document, or of several, each with its name above it."""
    if len(documents) == 1:
        return documents[0].text
    return "\n\n".join(f"# {document.name}\n\n{document.text}" for document in documents)


class _Writer:
    """Writes a summary to standard output as it comes, and what there is to say of it to standard error.

    Args:
        silent: write nothing to standard output.
        head: the name of the file, to stand above its summary among others.
        first: whether nothing was written before.
    """

    def __init__(self, *, silent: bool, head: str, first: bool) -> None:
        self._silent = silent
        self._heads = [printable(head)] if head else []
        self._first = first
        self._written = ""
        self.interrupted = False
        """Whether Ctrl-C ended it."""

    def write(self, engine: SpeculativeLM, text: str, asked: dict[str, Any]) -> Summary:
        """Write the summary of a text, and return it."""
        with _ProgressBar() as bar, SummaryStream(engine, text, on_progress=bar.show, **asked) as stream:
            try:
                for part in stream:
                    bar.close()
                    self._print(part, stream.summary.title)
            except KeyboardInterrupt:
                self.interrupted = True
            bar.close()
            summary = stream.summary
        if rest := summary.text[len(self._written) :]:
            self._print(rest, summary.title)
        if self._written and not self._silent:
            click.echo()
        self._tell(summary, asked["words"])
        return summary

    def _print(self, part: str, title: str | None) -> None:
        if not self._silent:
            if not self._written:
                heads = [*self._heads, *([title] if title else [])]
                write("" if self._first else "\n")
                write(f"# {': '.join(heads)}\n\n" if heads else "")
            write(part)
        self._written += part

    def _tell(self, summary: Summary, words: int) -> None:
        if not summary.text and not self.interrupted:
            click.echo("Error: the model wrote nothing; another one (-m) may", err=True)
        elif summary.text.endswith(" …"):
            note("its last sentence is cut off: give it more --words")
        elif summary.finish_reason == "length":
            note(f"more sentences are left out, as they would pass {words:,} words (--words)")
        elif summary.finish_reason == "repetition":
            note("the model began to repeat itself, so the summary ends there")
        if (n := count_words(summary.text)) > words:
            note(f"its first sentence alone has {n:,} words")


class _ProgressBar:
    """A bar for each level on standard error; without a terminal a quiet line, after --quiet nothing."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        bar = Bar(*columns, console=console, transient=True, redirect_stdout=False)
        self._bar = bar if console.is_interactive and not is_quiet() else None
        self._tasks: dict[int, TaskID] = {}

    def show(self, progress: Progress) -> None:
        """Show how far a summary is."""
        if self._bar is not None:
            self._bar.start()
            if progress.level not in self._tasks:
                self._tasks[progress.level] = self._bar.add_task(_what(progress), total=progress.pieces)
            self._bar.update(self._tasks[progress.level], completed=progress.done, refresh=True)
        elif (progress.level, progress.done) == (1, 0) and progress.pieces > 1:
            note(f"{progress.pieces:,} pieces are summarized, then their summaries")

    def close(self) -> None:
        """Take the bars away, for good."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> "_ProgressBar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _what(progress: Progress) -> str:
    if progress.pieces == 1:
        return "summary"
    return "pieces" if progress.level == 1 else f"summaries, level {progress.level}"
