"""What the options of `lcspec draft make` ask for."""

import re
from dataclasses import dataclass

import click

from lcspec.layer_search import Budget

SETS_A_BLOCK = 6
"""Sets of blocks that a search tries by default, for each block of the target."""

_SPAN = re.compile(r"(\d{1,4})(?:(-)(\d{1,4})?)?")
_BUDGET = re.compile(r"(\d{1,7}(?:\.\d+)?)([smh]?)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Layers:
    """What --layers asks for: given blocks, or a search for the best, of a number or of the number that pays most."""

    given: tuple[int, ...] = ()
    count: int | None = None

    @property
    def is_searched(self) -> bool:
        """Whether which blocks are kept has to be found."""
        return not self.given


def parse_layers(text: str, total: int) -> Layers:
    """Return what a value of --layers asks for, of a model that has so many blocks."""
    text = text.replace(" ", "")
    if text == "auto":
        return Layers()
    if text.isdecimal() and len(text) < 5:
        if not 1 <= int(text) <= total:
            raise click.UsageError(f"--layers {text}: the model has {total} blocks, of which 1 to {total} can be kept")
        return Layers(tuple(range(total)) if int(text) == total else (), count=int(text))
    kept: set[int] = set()
    for part in filter(None, text.split(",")):
        span = _SPAN.fullmatch(part)
        first = int(span[1]) if span else 0
        last = first if span is None or not span[2] else int(span[3] or total - 1)
        if span is None or not first <= last < total:
            raise click.UsageError(
                f"--layers: {part[:40]!r} names no blocks of a model that has the blocks 0 to {total - 1}; "
                "give auto, a number of them, or a list such as 0-9,12,20-"
            )
        kept.update(range(first, last + 1))
    if not kept:
        raise click.UsageError("--layers: the list is empty")
    return Layers(tuple(sorted(kept)))


def parse_budget(text: str | None, blocks: int) -> Budget:
    """Return what a value of --budget allows, by default some sets for each block."""
    if text is None:
        return Budget(SETS_A_BLOCK * blocks)
    parsed = _BUDGET.fullmatch(text)
    if parsed is None or float(parsed[1]) == 0 or (not parsed[2] and not parsed[1].isdecimal()):
        raise click.UsageError(f"--budget: {text[:40]!r} is neither a number of sets nor a time such as 90s, 10m or 1h")
    return Budget(None, float(parsed[1]) * _SECONDS[parsed[2]]) if parsed[2] else Budget(int(parsed[1]))
