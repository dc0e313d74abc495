"""The commands there are, each with what it is for and an example; none is imported before it runs."""

import importlib
from dataclasses import dataclass

import click

_NAME_WIDTH, _ABOUT_WIDTH = 10, 22


@dataclass(frozen=True)
class Listed:
    """A command as lists show it.

    Attributes:
        name: of the command, of its module in this package, and of its function there.
        about: what it is for, in a few words.
        example: how it is called.
    """

    name: str
    about: str
    example: str

    def load(self) -> click.Command:
        """Import the command."""
        command: click.Command = getattr(importlib.import_module(f"lcspec.cli.{self.name}"), self.name)
        return command


GROUPS = {
    "Write": (
        Listed("generate", "answer one prompt", 'generate "Why is the sky blue?"'),
        Listed("chat", "have a conversation", "chat -m qwen2.5-coder-1.5b"),
        Listed("edit", "change a file", 'edit a.txt -i "Fix the spelling."'),
        Listed("summarize", "sum up a document", "summarize report.pdf"),
        Listed("templates", "frequent tasks", "generate --template explain < x.log"),
    ),
    "Models": (
        Listed("pull", "fetch models", "pull qwen2.5-coder-1.5b"),
        Listed("models", "list what is here", "models --all"),
        Listed("inspect", "what a file is", "inspect smollm2-135m"),
        Listed("pair", "who can draft for whom", "pair qwen2.5-coder-1.5b"),
    ),
    "Speed": (
        Listed("draft", "drafts from a model", "draft make smollm2-135m"),
        Listed("tune", "measure this machine", "tune smollm2-135m"),
        Listed("store", "draft from old texts", "store add notes.md"),
    ),
    "Settings": (
        Listed("config", "defaults for options", "config edit"),
        Listed("completion", "for bash, zsh and fish", "completion --help"),
    ),
}
"""The commands, in groups and in the order in which they are shown."""

COMMANDS = {listed.name: listed for group in GROUPS.values() for listed in group}
"""By name."""


def overview() -> str:
    """Return what lcspec can do, on a screen of 24 lines by 80 columns."""
    lines = ["lcspec: language models on the CPU, faster by speculative decoding", ""]
    for title, group in GROUPS.items():
        lines.append(click.style(f"{title}:", bold=True))
        lines += [
            f"  {one.name:{_NAME_WIDTH}}  {one.about:{_ABOUT_WIDTH}}  " + click.style(f"lcspec {one.example}", dim=True)
            for one in group
        ]
    lines += ["", "`lcspec COMMAND --help` says more of each, `lcspec --help` of all."]
    return "\n".join(lines)
