"""`lcspec templates`: the frequent tasks that `lcspec generate --template` knows."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from lcspec.cli.completion import complete_template
from lcspec.cli.report import note, printable, table
from lcspec.errors import LcspecError
from lcspec.tasks.templates import Template, find_template, template_folder, template_names


@click.command()
@click.argument("name", required=False, shell_complete=complete_template)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def templates(name: str | None, as_json: bool) -> None:
    """List the templates, or show the one of a NAME.

    A template is a prompt with places: $input is the text that `generate` is given, other names are parameters (-p
    NAME=VALUE), $$ is a dollar. One of your own is a file in the folder that the list names at its end, and is called
    like the file: NAME.txt has just the prompt, NAME.toml can say more:

    \b
      about = "answer a letter"
      system = "You are $who."
      prompt = "Answer this letter in one paragraph: $input"
      defaults = { who = "a patient clerk" }
      git_diff = false    # true: without a text, what is staged in git

    \b
    Examples:
      lcspec templates
      lcspec templates translate
      lcspec generate --template translate -p language=German < letter.txt
    """  # noqa: D301  click needs the backspace itself
    if name is not None:
        _show(find_template(name), as_json)
        return
    if as_json:
        click.echo(json.dumps(list(_usable()), indent=2))
        return
    click.echo(table(("name", "parameters", "what it does"), [_row(one) for one in template_names()]))
    click.echo(f"Your own are looked for in {template_folder()}")


def _usable() -> Iterator[dict[str, Any]]:
    """Yield the templates, and say which can't be used."""
    for name in template_names():
        try:
            yield _as_dict(find_template(name))
        except LcspecError as error:
            note(printable(f"{name} can't be used: {error}"))


def _row(name: str) -> tuple[str, str, str]:
    try:
        template = find_template(name)
    except LcspecError as error:
        return name, "?", f"can't be used: {error}"
    return name, ", ".join(map(_parameter(template), template.parameters)) or "-", template.about or "-"


def _parameter(template: Template) -> Any:
    return lambda name: f"{name}={template.defaults[name]!r}" if name in template.defaults else name


def _show(template: Template, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_dict(template), indent=2))
        return
    if template.system is not None:
        click.echo(f"system: {template.system}\n")
    click.echo(template.prompt)


def _as_dict(template: Template) -> dict[str, Any]:
    file = None if template.file is None else str(template.file)
    return {**asdict(template), "parameters": list(template.parameters), "file": file}
