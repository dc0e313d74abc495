"""The question before a model is fetched that is not here."""

import sys

import click

from lcspec.cli.report import confirmed, size_text
from lcspec.errors import ModelError

_YES = f"{__name__}.yes"  # in the context of the command that runs


def _keep_yes(context: click.Context, _: click.Parameter, yes: bool) -> None:
    context.meta[_YES] = yes


yes_option = click.option(
    "-y",
    "--yes",
    is_flag=True,
    envvar="LCSPEC_YES",
    expose_value=False,
    callback=_keep_yes,
    help="Fetch a model that is not here without asking (as without a terminal).",
)
"""Gives a command --yes, which `offer_to_fetch` obeys."""


def offer_to_fetch(model: str) -> None:
    """Ask whether to fetch a model that is not on this machine.

    Without a terminal, and with --yes, nothing is asked: it is fetched, and the log says so.

    Raises:
        ModelError: it is not wanted, or there is no such model.
    """
    from huggingface_hub import constants

    from lcspec.hub import cached_path, entry_of  # takes a while, which completion does not have

    context = click.get_current_context(silent=True)
    is_answered = context is not None and context.meta.get(_YES)
    if is_answered or constants.HF_HUB_OFFLINE or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    entry = entry_of(model, ask_hub=True)
    if entry is None or cached_path(entry) is not None:
        return
    size = [size_text(entry.size)] if entry.size else []
    about = ", ".join(size + [entry.licence] * bool(entry.licence))
    if not confirmed(f"{entry.name} is not on this machine. Fetch it{f' ({about})' if about else ''}?"):
        raise ModelError(f"{entry.name} is not on this machine: `lcspec pull {entry.name}`, or name another with -m")
