"""The group of all commands: it imports the one that runs, and says in one line what went wrong."""

import errno
import os
import shlex
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from lcspec.cli.commands import COMMANDS, GROUPS
from lcspec.cli.report import INTERRUPTED, UNREAD, printable
from lcspec.configuration import configuration_path
from lcspec.errors import LcspecError

_OF_A_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_WANTS_HELP = f"{__name__}.wants_help"  # in the context of the group


def wants_help(context: click.Context) -> bool:
    """Whether the command that comes next will only print its help."""
    return bool(context.meta.get(_WANTS_HELP))


class CommandGroup(click.Group):
    """Commands that are imported when they run, and errors of one line, unless --debug asks for the traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the group's own options."""
        rest = super().parse_args(ctx, args)
        before = rest[: rest.index("--")] if "--" in rest else rest
        ctx.meta[_WANTS_HELP] = not {"-h", "--help"}.isdisjoint(before)
        return rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that comes next, or say which may be meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"To ask a model: lcspec generate {shlex.quote(name)}"
            raise click.UsageError(f"No such command {name!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        listed = COMMANDS.get(cmd_name)
        return None if listed is None else listed.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups."""
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(listed.name, listed.about) for listed in group])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that go on like this."""
        items = [CompletionItem(one.name, help=one.about) for one in COMMANDS.values()]
        return [item for item in items if item.value.startswith(incomplete)] + click.Command.shell_complete(
            self, ctx, incomplete
        )

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command line to its end, which is only when what it printed is written."""
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()
            sys.exit(UNREAD)
        except OSError as error:
            if not _is_of_output(error):
                raise
            _drop_output()
            click.echo(f"Error: {_unwritten(error)}", err=True)
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; no error carries what would control a terminal, as names of files may."""
        try:
            return self._invoke(ctx)
        except click.ClickException as error:
            object.__setattr__(error, "message", "\n".join(map(printable, error.message.split("\n"))))
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.BadParameter as error:
            raise _with_source(error) from None
        except click.Abort as abort:
            if isinstance(abort.__context__, KeyboardInterrupt):
                raise click.exceptions.Exit(INTERRUPTED) from None
            raise
        except (click.ClickException, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _drop_output()
            raise click.exceptions.Exit(UNREAD) from None
        except Exception as error:
            if isinstance(error, OSError) and _is_of_output(error):
                _drop_output()
                raise click.ClickException(_unwritten(error)) from error
            if ctx.params["debug"]:
                raise
            known = isinstance(error, LcspecError)
            reason = str(error) if known else f"{type(error).__name__}: {error} (--debug shows where)"
            raise click.ClickException(printable(" ".join(reason.splitlines()))) from error


def _with_source(error: click.BadParameter) -> click.ClickException:
    """Say where a wrong value is from, if it was not on the command line."""
    if error.ctx is None or error.param is None or error.param.name is None:
        return error
    source = error.ctx.get_parameter_source(error.param.name)
    if source == ParameterSource.ENVIRONMENT:
        return click.ClickException(f"{error.param.envvar}: {error.message}")
    if source == ParameterSource.DEFAULT_MAP:
        return click.ClickException(f"{configuration_path()}: {option_name(error.param)}: {error.message}")
    return error


def option_name(option: click.Parameter) -> str:
    """Return what an option is called in the configuration: its long name."""
    return next((name for name in option.opts if name.startswith("--")), option.opts[0]).lstrip("-")


def _is_of_output(error: OSError) -> bool:
    """Whether standard output can't be written, as it has no name that was opened."""
    return error.errno in _OF_A_FULL_DISK and error.filename is None


def _unwritten(error: OSError) -> str:
    return f"standard output can't be written: {error.strerror or error}"


def _drop_output() -> None:
    """Let what is still to be written vanish, so that Python does not try, and fail, to write it at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
