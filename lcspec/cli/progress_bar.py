"""A bar on standard error that says how far something is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lcspec.cli.report import is_quiet, printable


class Advance(Protocol):
    """Moves a bar."""

    def __call__(self, done: float, total: float | None = None, what: str | None = None) -> None:
        """Tell how much is done, and of how much and of what, if that is not as it was."""


@contextmanager
def progress_bar(what: str, total: float | None = 1.0) -> Iterator[Advance]:
    """Show a bar while the block runs, if standard error is a terminal and --quiet was not given."""
    if is_quiet() or not sys.stderr.isatty():
        yield lambda done, total=None, what=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(what), total=total)

        def advance(done: float, total: float | None = None, what: str | None = None) -> None:
            progress.update(task, completed=done, total=total, description=what)

        yield advance
