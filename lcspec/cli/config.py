"""`lcspec config`: what options default to, and where that is from."""

import json
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any

import click
from click.core import ParameterSource

from lcspec.cli.commands import COMMANDS
from lcspec.cli.group import option_name
from lcspec.cli.options import engine_options, sampling_options
from lcspec.cli.report import note, report_options, table
from lcspec.configuration import Configuration, configuration_of, configuration_path, read_configuration
from lcspec.errors import FileError
from lcspec.files import write_atomically
from lcspec.toml_file import content_of, parse_toml, with_value

_UNCONFIGURED = ("config", "completion")

_BEGINNING = """\
# Defaults for options of lcspec: their long names, without dashes. `lcspec config` shows what is in force.
#
# model = "qwen2.5-coder-1.5b"
# draft = "qwen2.5-coder-0.5b"
# threads = 4
#
# [chat]
# temperature = 0.7
"""


@click.command()
@engine_options
@sampling_options
@report_options
def _shared(**_: Any) -> None:
    """Has the options that commands share, and does nothing."""


def defaults_for(command: str) -> dict[str, Any]:
    """Return the configured defaults of a command, in the form of click's `default_map`.

    Raises:
        FileError: the configuration file can't be read, or is wrong.
    """
    if command in _UNCONFIGURED:
        return {}
    configuration = read_configuration()
    if not configuration.options and not configuration.tables:
        return {}
    _check(configuration)
    loaded = COMMANDS[command].load()
    if command in configuration.tables:
        configuration.check(_options(loaded), command)
    return {command: _for_command(loaded, configuration.wanted(command))}


def _check(configuration: Configuration) -> None:
    configuration.check(_options(_shared))
    configuration.check_tables(COMMANDS)


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by what they are called in the configuration."""
    return {option_name(one).replace("-", "_"): one for one in command.params if isinstance(one, click.Option)}


def _for_command(command: click.Command, wanted: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        option.name: _as_text(wanted[name], option.multiple)
        for name, option in _options(command).items()
        if name in wanted and option.name is not None
    }
    subcommands = command.commands if isinstance(command, click.Group) else {}
    return defaults | {name: _for_command(subcommand, wanted) for name, subcommand in subcommands.items()}


def _as_text(value: Any, is_multiple: bool) -> Any:
    """Return a value as it would be on the command line, where click checks it."""
    if not is_multiple:
        return str(value)
    return list(map(str, value)) if isinstance(value, list) else [str(value)]


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of a table.")
@click.pass_context
def config(context: click.Context, as_json: bool) -> None:
    """Show what options default to, and where each value is from.

    An option on the command line counts most, then an environment variable (LCSPEC_ and the option's long name, such
    as LCSPEC_MODEL or LCSPEC_DRAFT_TOKENS), then the configuration file, then what is built in. In the file, what
    stands in a command's table comes before what stands at the top:

    \b
      model = "qwen2.5-coder-1.5b"
      draft = "qwen2.5-coder-0.5b"
      exact = true
      [chat]
      temperature = 0.7

    At the top may stand what `lcspec config` lists; a table takes all options of its command. A draft model belongs
    to the model beside it: with another model, of -m or LCSPEC_MODEL, the file's draft model is not used. What is
    switched on there, --no-exact and its like switch off.

    \b
    Examples:
      lcspec config
      lcspec config set model qwen2.5-coder-1.5b
      lcspec config edit
      LCSPEC_THREADS=2 lcspec generate "Why is the sky blue?"
    """  # noqa: D301  click needs the backspace itself
    if context.invoked_subcommand is not None:
        return
    values = list(_in_force(read_configuration()))
    if as_json:
        click.echo(json.dumps([asdict(one) for one in values], indent=2))
    else:
        click.echo(table(("option", "value", "from"), [(one.title, _shown(one.value), one.source) for one in values]))


@config.command()
def path() -> None:
    """Print where the configuration file is looked for.

    \b
    Example:
      cat "$(lcspec config path)"
    """  # noqa: D301  click needs the backspace itself
    click.echo(configuration_path())


@config.command("set")
@click.argument("key")
@click.argument("value")
def set_value(key: str, value: str) -> None:
    """Give an option a default in the configuration file: KEY is its long name, or COMMAND.NAME for one command.

    \b
    Examples:
      lcspec config set model qwen2.5-coder-1.5b
      lcspec config set chat.temperature 0.7
    """  # noqa: D301  click needs the backspace itself
    file = configuration_path()
    table, _, name = key.rpartition(".")
    try:
        old = content_of(file) if file.exists() else b""
        parse_toml(file, old)
        new = with_value(old.decode(), table or None, name, value).encode()
        _check_all(configuration_of(file, parse_toml(file, new)))
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, new)
    except OSError as error:
        raise FileError(f"{file} can't be changed: {error.strerror}") from error
    except ValueError as error:
        raise FileError(f"{file} can't be changed so: {error}; `lcspec config edit` opens it") from error


@config.command()
def edit() -> None:
    """Open the configuration file in an editor ($VISUAL or $EDITOR), and check it.

    \b
    Example:
      EDITOR=nano lcspec config edit
    """  # noqa: D301  click needs the backspace itself
    file = configuration_path()
    try:
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, _BEGINNING.encode())
    except OSError as error:
        raise FileError(f"{file} can't be written: {error.strerror}") from error
    click.edit(filename=str(file))
    _check_all(read_configuration())
    note(f"{file} is in order")


@dataclass(frozen=True)
class _Value:
    """What an option defaults to."""

    command: str | None
    """The command for which it does; None for all."""
    option: str
    value: Any
    source: str

    @property
    def title(self) -> str:
        """What it is called in a list."""
        return self.option if self.command is None else f"[{self.command}] {self.option}"


def _check_all(configuration: Configuration) -> None:
    """Make sure that all names and values are right, those of all commands too."""
    list(_in_force(configuration))


def _in_force(configuration: Configuration) -> Iterator[_Value]:
    """Yield the values of shared options, and of those that a command's table sets, having checked them."""
    _check(configuration)
    yield from _values(configuration, None, _options(_shared), configuration.options)
    for command, wanted in configuration.tables.items():
        options = _options(COMMANDS[command].load())
        configuration.check(options, command)
        yield from _values(configuration, command, {name: options[name] for name in wanted}, wanted)


def _values(
    configuration: Configuration, command: str | None, options: Mapping[str, click.Option], wanted: Mapping[str, Any]
) -> Iterator[_Value]:
    """Yield what options are when nothing is said on the command line."""
    stand_in = click.Command(command or "config", params=[_silent(option) for option in options.values()])
    with stand_in.make_context(stand_in.name, [], default_map=_for_command(stand_in, wanted)) as context:
        for option in options.values():
            source = context.get_parameter_source(option.name)
            where = {
                ParameterSource.ENVIRONMENT: str(option.envvar),
                ParameterSource.DEFAULT_MAP: str(configuration.path),
            }.get(source or ParameterSource.DEFAULT, "built in")
            yield _Value(command, option_name(option), context.params[option.name], where)


def _silent(option: click.Option) -> click.Option:
    """Return an option whose value is only kept."""
    silent = copy(option)
    silent.expose_value, silent.callback = True, None
    return silent


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "-"
    return "-" if value is None else str(value)
