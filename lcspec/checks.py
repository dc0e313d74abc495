"""Checks of arguments, with errors that say what would do."""

import operator

from lcspec.errors import PromptError


def check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Make sure that `value` is a whole number from `low` to `high`.

    Raises:
        PromptError: it is not.
    """
    if isinstance(value, bool):
        raise PromptError(f"{name} must be a whole number, not {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise PromptError(f"{name} must be a whole number, not {value!r}") from None
    if number < low or (high is not None and number > high):
        raise PromptError(f"{name} is {number}; it must be {low} {'or more' if high is None else f'to {high}'}")


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Make sure that `value` is a number from `low` to `high`; NaN is none.

    Raises:
        PromptError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PromptError(f"{name} must be a number, not {value!r}")
    if not low <= value <= high:
        raise PromptError(f"{name} is {value}; it must be {low:g} to {high:g}")
