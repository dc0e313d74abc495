"""The configuration file: what a user wants as defaults of options."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from lcspec.errors import FileError
from lcspec.toml_file import read_toml


@dataclass(frozen=True)
class Configuration:
    """Defaults by the names of options, with underscores.

    Attributes:
        path: the file.
        options: for all commands that have them.
        tables: for one command, by its name; they come before those for all.
    """

    path: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def wanted(self, command: str) -> dict[str, Any]:
        """Return the defaults for a command; a draft model goes only with the model beside it."""
        table = self.tables.get(command, {})
        shared = dict(self.options)
        if "model" in table:
            shared.pop("draft", None)
        return {**shared, **table}

    def check(self, known: Collection[str], table: str | None = None) -> None:
        """Make sure that there are options of all names in the file, or in one of its tables.

        Raises:
            FileError: there is none of some name.
        """
        where = str(self.path) if table is None else f"{self.path}: [{table}]"
        missing = "there is no option" if table is None else f"{table} has no option"
        others = (
            "`lcspec config` lists those that commands share; those of one stand in its table, such as [generate]"
            if table is None
            else f"`lcspec {table} --help` lists those it has"
        )
        for name, value in (self.options if table is None else self.tables[table]).items():
            if name not in known:
                raise FileError(f"{where}: {missing} {_quoted(name)}; {_near(name, known) or others}")
            if isinstance(value, Mapping):
                raise FileError(f"{where}: {_quoted(name)} is a table, not a value")

    def check_tables(self, commands: Collection[str]) -> None:
        """Make sure that there are commands of the names of all tables.

        Raises:
            FileError: there is none of some name.
        """
        for name in self.tables:
            if name not in commands:
                others = "`lcspec --help` lists those there are"
                raise FileError(f"{self.path}: there is no command {name!r}; {_near(name, commands) or others}")


def configuration_path() -> Path:
    """Return where the configuration file is looked for."""
    return user_config_path("lcspec") / "config.toml"


def read_configuration() -> Configuration:
    """Return what the configuration file says, nothing where there is none.

    Raises:
        FileError: it can't be read, or is no TOML; says on which line.
    """
    path = configuration_path()
    try:
        content = read_toml(path)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Configuration(path)
        raise
    return configuration_of(path, content)


def configuration_of(path: Path, content: Mapping[str, Any]) -> Configuration:
    """Return what the parsed content of a file says."""
    options = {_name(key): value for key, value in content.items() if not isinstance(value, dict)}
    tables = {
        key: {_name(name): one for name, one in value.items()}
        for key, value in content.items()
        if isinstance(value, dict)
    }
    return Configuration(path, options, tables)


def _name(key: str) -> str:
    return key.replace("-", "_")


def _quoted(name: str) -> str:
    return repr(name.replace("_", "-"))


def _near(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"did you mean {_quoted(near[0])}?" if near else ""
