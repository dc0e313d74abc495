"""The `lcspec` command; one module per subcommand, which `commands` lists."""

import logging
import os
import sys
import warnings
from typing import Any

import click

from lcspec.cli import completion as _completion  # noqa: F401  how bash is answered
from lcspec.cli.commands import overview
from lcspec.cli.config import defaults_for
from lcspec.cli.group import CommandGroup, wants_help
from lcspec.cli.report import announce_long_work, note
from lcspec.errors import LcspecWarning

_EXIT_STATUSES = """\
Exit status: 0 when all went well, 1 after an error, 2 after wrong usage, 130 after Ctrl-C (what was written until
then stays), 141 when the reader of a pipe left. The result goes to standard output, everything else to standard
error.

Options have defaults in a configuration file and in environment variables: see `lcspec config --help`.
"""


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_STATUSES,
)
@click.option("--debug", is_flag=True, help="Show llama.cpp's log and the traceback of an error.")
@click.version_option(package_name="lcspec")
@click.pass_context
def main(context: click.Context, debug: bool) -> None:
    """Run language models on the CPU, faster by speculative decoding.

    \b
    Examples:
      lcspec generate "Why is the sky blue?"
      lcspec generate --template translate -p language=German < letter.txt
      lcspec chat
    """  # noqa: D301  click needs the backspace itself
    _open_missing_streams()
    if debug:
        logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(name)s: %(message)s")
    else:
        announce_long_work()
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    if context.invoked_subcommand is None:
        click.echo(overview())
    elif not wants_help(context):
        context.default_map = defaults_for(context.invoked_subcommand)


def _open_missing_streams() -> None:
    """Put the null device in the place of standard streams that were closed when the process began."""
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _show_warning(message: Warning | str, category: type[Warning], *_: Any) -> None:
    if issubclass(category, LcspecWarning):
        note(f"warning: {message}")
