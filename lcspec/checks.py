"""Checks of arguments, with errors that say what would do."""

import math
import operator
from numbers import Real

from lcspec.errors import PromptError

_LONGEST = 60  # of a value in a message


def check_whole(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as an int, having made sure that it is a whole number from `low` to `high`.

    Raises:
        PromptError: it is not.
    """
    if isinstance(value, bool):
        raise PromptError(f"{name} must be a whole number, not {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise PromptError(f"{name} must be a whole number, not {shown(value)}") from None
    if number < low or (high is not None and number > high):
        raise PromptError(f"{name} is {shown(number)}; it must be {low} {'or more' if high is None else f'to {high}'}")
    return number


def check_number(name: str, value: object, low: float, high: float) -> float:
    """Return `value` as a float, having made sure that it is a number from `low` to `high`; NaN is none.

    Raises:
        PromptError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise PromptError(f"{name} must be a number, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not low <= number <= high:
        raise PromptError(f"{name} is {shown(value)}; it must be {low:g} to {high:g}")
    return number


def shown(value: object) -> str:
    """Return how a value looks, in one line that is not too long."""
    try:
        text = " ".join((str(value) if isinstance(value, Real) else repr(value)).split())
    except ValueError:  # a number of thousands of digits
        text = "a huge number"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
