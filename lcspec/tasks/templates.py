"""Templates: the prompts of frequent tasks, with places for a text and for parameters."""

import difflib
import os
import re
import string
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from lcspec.errors import FileError, PromptError
from lcspec.toml_file import content_of, read_toml

_SHIPPED = Path(__file__).with_suffix(".toml")
_INPUT = "input"
_NAME = re.compile(r"\w[\w.-]*")
_KEYS = {"about": str, "prompt": str, "system": str, "defaults": dict, "git_diff": bool}


@dataclass(frozen=True)
class Template:
    """A prompt with places, $input for the text and others for parameters; $$ is a dollar.

    Attributes:
        name: what it is called.
        prompt: the message; a text goes behind it where it has no $input.
        about: what it is for.
        system: the system message; None without one.
        defaults: values of parameters that need not be given.
        git_diff: whether it is about a diff, by default that of what is staged in a git repository.
        file: where it was read; None of those that come with lcspec.
    """

    name: str
    prompt: str
    about: str = ""
    system: str | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    git_diff: bool = False
    file: Path | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters, in the order of their places."""
        return tuple(name for name in self._places if name != _INPUT)

    @property
    def has_input(self) -> bool:
        """Whether it has a place for a text."""
        return _INPUT in self._places

    @property
    def _places(self) -> tuple[str, ...]:
        found = string.Template.pattern.finditer(f"{self.system or ''}\n{self.prompt}")
        return tuple(dict.fromkeys(name for one in found if (name := one["named"] or one["braced"])))

    def check(self, parameters: Mapping[str, str]) -> None:
        """Make sure that these are its parameters.

        Raises:
            PromptError: one is missing, or there is no such parameter.
        """
        for name in parameters:
            if name not in self.parameters:
                has = f"it has {', '.join(self.parameters)}" if self.parameters else "it has none"
                raise PromptError(f"the template {self.name} has no parameter {name!r}: {has}")
        for name in self.parameters:
            if name not in {**self.defaults, **parameters}:
                raise PromptError(f"the template {self.name} needs a {name}: --param {name}=...")

    def fill(self, text: str | None, parameters: Mapping[str, str]) -> tuple[str | None, str]:
        """Return the system message, None without one, and the prompt.

        Args:
            text: what it is about; None without.
            parameters: values by name.

        Raises:
            PromptError: the text or a parameter is missing, or there is no such parameter.
        """
        self.check(parameters)
        if self.has_input and not (text or "").strip():
            raise PromptError(f"the template {self.name} needs a text: give one, or pipe it in")
        values = {**self.defaults, **parameters, _INPUT: text or ""}
        prompt = string.Template(self.prompt).substitute(values)
        if text and not self.has_input:
            prompt = f"{prompt}\n\n{text}"
        return None if self.system is None else string.Template(self.system).substitute(values), prompt


def template_folder() -> Path:
    """Return where a user's own templates are: NAME.toml, or NAME.txt with the prompt alone."""
    return user_config_path("lcspec") / "templates"


def template_names() -> list[str]:
    """Return the names of all templates, those of the user's own last."""
    files = (file for file in sorted(template_folder().glob("*")) if file.suffix in (".toml", ".txt"))
    own = (file.stem for file in files if _NAME.fullmatch(file.stem) and os.path.isfile(file))
    return list(dict.fromkeys([*_shipped(), *own]))


def find_template(name: str) -> Template:
    """Return a template; one of the user's own is taken in place of a shipped one.

    Raises:
        PromptError: there is none of this name.
        FileError: its file can't be read or used.
    """
    if _NAME.fullmatch(name):
        for file in (template_folder() / f"{name}.toml", template_folder() / f"{name}.txt"):
            if file.exists():
                return _read(file)
        if name in _shipped():
            return _shipped()[name]
    near = difflib.get_close_matches(name, template_names(), n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "`lcspec templates` lists those there are"
    raise PromptError(f"there is no template {name!r}; {hint}")


def staged_diff() -> str:
    """Return what is staged in the git repository of this folder.

    Raises:
        PromptError: there is no git, no repository, or nothing staged.
    """
    _git("rev-parse", "--git-dir")  # outside of a repository, git diff has other errors
    diff = _git("diff", "--staged", "--no-color", "--no-ext-diff").decode("utf-8", "replace")
    if not diff.strip():
        raise PromptError("nothing is staged: `git add` what the commit should have, or pipe a diff in")
    return diff


def _git(*arguments: str) -> bytes:
    """Return what git says."""
    environment = os.environ | {"LC_ALL": "C"}
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, stdin=subprocess.DEVNULL, env=environment)
    except OSError as error:
        raise PromptError(f"git can't be run to ask for a diff ({error.strerror}): pipe one in") from error
    if done.returncode == 0:
        return done.stdout
    if b"not a git repository" in done.stderr:
        raise PromptError("this folder is in no git repository: pipe a diff in, as of `git diff`")
    reason = done.stderr.decode("utf-8", "replace").split("\n")[0] or f"its status is {done.returncode}"
    raise PromptError(f"git gives no diff ({reason}): pipe one in")


@cache
def _shipped() -> dict[str, Template]:
    return {name: _template(name, table, None) for name, table in read_toml(_SHIPPED).items()}


def _read(file: Path) -> Template:
    if file.suffix == ".toml":
        return _template(file.stem, read_toml(file), file)
    try:
        text = content_of(file).decode("utf-8").replace("\r\n", "\n")
        return _template(file.stem, {"prompt": text}, file)
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is no text in UTF-8") from error


def _template(name: str, table: Mapping[str, Any], file: Path | None) -> Template:
    for key, value in table.items():
        if key not in _KEYS:
            raise FileError(f"{file}: there is no key {key!r}; there are {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]):
            raise FileError(f"{file}: {key} is {value!r}, not {_KIND[_KEYS[key]]}")
    if not table.get("prompt", "").strip():
        raise FileError(f"{file}: it has no prompt")
    for key in ("prompt", "system"):
        for found in string.Template.pattern.finditer(table.get(key, "")):
            if found["invalid"] is not None:
                raise FileError(f"{file}: a dollar in the {key} begins no name; a dollar as such is written $$")
    defaults = {str(key): str(value) for key, value in table.get("defaults", {}).items()}
    return Template(name, **{**table, "prompt": table["prompt"].strip("\n"), "defaults": defaults}, file=file)


_KIND = {str: "a text", dict: "a table", bool: "true or false"}
