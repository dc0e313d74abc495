"""`lcspec completion`: what a shell needs to complete command lines, quickly."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)
from platformdirs import user_cache_path, user_config_path

import lcspec
from lcspec.errors import LcspecError
from lcspec.toml_file import read_toml

_CATALOGS = (
    Path(lcspec.__file__).parent / "hub" / "catalog.toml",  # in a wheel
    Path(lcspec.__file__).parents[1] / "models" / "catalog.toml",  # in a checkout
)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that makes a SHELL complete commands, options, models and templates.

    \b
    Examples:
      lcspec completion bash > ~/.local/share/bash-completion/completions/lcspec
      lcspec completion zsh > "${fpath[1]}/_lcspec"
      lcspec completion fish > ~/.config/fish/completions/lcspec.fish
      source <(lcspec completion bash)
    """  # noqa: D301  click needs the backspace itself
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "lcspec", "_LCSPEC_COMPLETE").source(), nl=False)


def complete_model(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the models whose names go on like this, files where there are none."""
    names = [name for name in dict.fromkeys(model_names()) if name.startswith(incomplete)]
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def complete_template(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the templates whose names go on like this."""
    from lcspec.tasks.templates import template_names

    return [name for name in template_names() if name.startswith(incomplete)]


def model_names() -> Iterator[str]:
    """Yield what models can be called: by the catalogs, those in the hub's cache, and drafts that were made here.

    What `lcspec.hub` knows better, but not in the time that a shell has.
    """
    known = set()
    for path in (*_CATALOGS, user_config_path("lcspec") / "catalog.toml"):
        with suppress(LcspecError, KeyError, TypeError, AttributeError):
            for model in read_toml(path)["model"]:
                known.add((model["hub"]["repository"], model["files"][0]["name"]))
                yield str(model["name"])
    for repository, name, at in _in_hub_cache():
        if (repository, name) not in known:
            yield f"hf:{repository}/{name}{at}"
    yield from (path.stem for path in (user_cache_path("lcspec") / "drafts").glob("[!.]*.*"))


def _in_hub_cache() -> Iterator[tuple[str, str, str]]:
    """Yield repository, file and revision of the models in the hub's cache, of a split one the first file."""
    from huggingface_hub import constants

    for folder in Path(constants.HF_HUB_CACHE).glob("models--*"):
        repository = folder.name.removeprefix("models--").replace("--", "/")
        main = ""
        with suppress(OSError):
            main = (folder / "refs" / "main").read_text().strip()
        for snapshot in folder.glob("snapshots/*"):
            at = "" if snapshot.name == main else f"@{snapshot.name}"
            for file in snapshot.rglob("*.gguf"):
                if "-of-" not in file.name or "-00001-of-" in file.name:
                    yield repository, file.relative_to(snapshot).as_posix(), at


@add_completion_class
class _Bash(BashComplete):
    """Bash takes ':' and '=' for borders of words, but the names of models have colons."""

    source_template = BashComplete.source_template.replace(
        'COMP_WORDS="${COMP_WORDS[*]}"', 'COMP_WORDS="${COMP_WORDS[*]}" COMP_LINE="${COMP_LINE:0:COMP_POINT}"'
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one that is to be completed."""
        line = os.environ.get("COMP_LINE", "")
        words = split_arg_string(line)
        if not line or line[-1].isspace():
            words.append("")
        self._typed = words[-1]
        return words[1:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return an item without what stands before the last colon that was typed: for bash that is another word."""
        value = str(item.value)
        typed = self._typed.partition("=")[2] if self._typed.startswith("--") else self._typed
        start = typed.rpartition(":")[0]
        return f"{item.type},{value[len(start) + 1 :] if start and value.startswith(start) else value}"
