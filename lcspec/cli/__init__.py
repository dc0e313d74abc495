"""The `lcspec` command; one module per subcommand."""

import logging
import os
import sys
import warnings
from typing import Any

import click

from lcspec.cli.chat import chat
from lcspec.cli.edit import edit
from lcspec.cli.generate import generate
from lcspec.cli.inspect import inspect
from lcspec.cli.models import models
from lcspec.cli.pair import pair
from lcspec.cli.pull import pull
from lcspec.cli.report import INTERRUPTED, announce_long_work, note
from lcspec.cli.store import store
from lcspec.cli.summarize import summarize
from lcspec.cli.tune import tune
from lcspec.errors import LcspecError, LcspecWarning


class _Group(click.Group):
    """Prints errors in one line, unless --debug asks for the traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except Exception as error:
            if ctx.params["debug"]:
                raise
            known = isinstance(error, LcspecError)
            reason = str(error) if known else f"{type(error).__name__}: {error} (--debug shows where)"
            raise click.ClickException(" ".join(reason.splitlines())) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show llama.cpp's log and the traceback of an error.")
@click.version_option(package_name="lcspec")
def main(debug: bool) -> None:
    """Run language models on the CPU, faster by speculative decoding."""
    _open_missing_streams()
    if debug:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s: %(message)s")
    else:
        announce_long_work()
    warnings.showwarning = _show_warning  # type: ignore[assignment]


def _open_missing_streams() -> None:
    """Put the null device in the place of standard streams that were closed when the process began."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, LcspecWarning):
        note(f"warning: {message}")


for command in (generate, chat, edit, summarize, pull, models, pair, inspect, tune, store):
    main.add_command(command)
