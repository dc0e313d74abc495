"""`lcspec draft list` and `lcspec draft remove`."""

import click

from lcspec.cli.report import note, quiet_option, size_text
from lcspec.errors import ModelError
from lcspec.hub import DerivedDraft, derived_drafts, remove_draft


def complete_draft(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the derived drafts whose names go on like this."""
    return [draft.name for draft in derived_drafts() if draft.name.startswith(incomplete)]


@click.command("list")
def list_drafts() -> None:
    """List drafts."""
    for draft in derived_drafts():
        click.echo(draft.name)


@click.command()
@click.argument("drafts", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_draft)
@quiet_option
def remove(drafts: tuple[str, ...]) -> None:
    """Delete derived drafts.

    \b
    Example:
      lcspec draft remove smollm2-135m-20of30-1f4d
    """  # noqa: D301  click needs the backspace itself
    for draft in [_named(name) for name in dict.fromkeys(drafts)]:
        note(f"{draft.name} is deleted; {size_text(remove_draft(draft))} are free again")


def _named(name: str) -> DerivedDraft:
    for draft in derived_drafts():
        if draft.name == name:
            return draft
    raise ModelError(f"there is no derived draft {name!r}; `lcspec draft list` lists them")
