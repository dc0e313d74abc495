"""`lcspec draft`: drafts that are made from the target itself."""

import click

from lcspec.cli.draft_list import list_drafts, remove
from lcspec.cli.draft_make import make
from lcspec.cli.draft_train import train


@click.group()
def draft() -> None:
    """Make drafts from a model itself, and say which drafts pay.

    \b
    Examples:
      lcspec draft make smollm2-135m --layers 20
      lcspec draft train smollm2-135m
      lcspec draft list smollm2-135m
    """  # noqa: D301  click needs the backspace itself


for command in (make, train, list_drafts, remove):
    draft.add_command(command)
