"""`python -m lcspec` is the `lcspec` command."""

from lcspec.cli import main

main(prog_name="lcspec")
