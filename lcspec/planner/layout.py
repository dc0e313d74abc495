"""In which of two weight layouts tokens are evaluated."""

import statistics
from collections import deque
from typing import Any

from lcspec.planner.choice import Length
from lcspec.planner.cost import CostCurve

BATCH = 512
"""Tokens of a prompt that are evaluated together; timing fewer says little."""

_RECENT = 5
_USUAL_TEXT = 64  # tokens that a text is expected to have
_TRIED_FROM = 2 * BATCH + 64  # tokens of a prompt for which the other layout is tried out


class LayoutChoice:
    """Weighs what a layout saves against what moving the sequence there costs.

    Layout 0 is the one that decodes, layout 1 the other. What is not known of the other layout is tried out on a
    long prompt, where a batch that turns out slower does not matter.

    Args:
        curves: what passes cost in each layout; None where that was not measured, or where there is no other.
    """

    LEAST_GAIN = 1.1
    """By which the other layout has to evaluate prompts faster to be worth having."""

    def __init__(self, curves: tuple[CostCurve, CostCurve | None]) -> None:
        self.curves = curves
        self.here = 0
        """The layout that holds the sequence."""
        self.wanted = 0
        """The layout for the next pass."""
        self.moving_seconds = 0.0
        """Seconds of the last move, if it belongs to the pass that is to be recorded next."""
        self._prefill: tuple[deque[float], deque[float]] = (deque(maxlen=_RECENT), deque(maxlen=_RECENT))
        self._move = deque([0.0001], maxlen=_RECENT)
        self._loading = 1.0
        self._is_loaded = False
        self._regret = 0.0

    @property
    def costs(self) -> CostCurve:
        """What the next pass costs, in the layout that is wanted for it."""
        return self.curves[self.wanted] or self.curves[0]

    @property
    def alternative(self) -> CostCurve | None:
        """What it would cost in the other one; None where that is not known."""
        return self.curves[1 - self.wanted]

    def stay(self) -> None:
        """Want the layout that holds the sequence: a request begins, or it could not be moved."""
        self.wanted, self._regret = self.here, 0.0

    def for_batch(self, n_left: int, n_held: int) -> int:
        """Return the layout for the next batch of a prompt.

        Args:
            n_left: tokens of the prompt that are not evaluated yet.
            n_held: tokens in the cache, which move along.
        """
        here = self.here
        here_seconds, there_seconds = self._prefill_seconds(here), self._prefill_seconds(1 - here)
        if here_seconds is None or (there_seconds is None and (here or n_left < _TRIED_FROM - BATCH)):
            return here
        if there_seconds is None:
            return 1
        if here == 0 and here_seconds < there_seconds * self.LEAST_GAIN:
            return 0
        saved = n_left * (here_seconds - there_seconds)
        moving = self.moving(n_held, 1 - here)
        if here == 0:
            moving += self.moving(n_held + n_left, 0)  # to decode there
        return 1 - here if saved > moving else here

    def for_text(self, n_held: int) -> int:
        """Return the layout for the text behind a prompt that was evaluated in layout 1."""
        other = self.curves[1]
        if other is None:
            return 0
        saved = _USUAL_TEXT * (other.seconds(1, n_held) - self.curves[0].seconds(1, n_held))
        return 0 if saved > self.moving(n_held, 0) else 1

    def weigh(self, here: Length, there: Length, depth: int) -> bool:
        """Tell whether the next pass is to be in the other layout, and want that then.

        Where the other layout would have been faster lately, by more than it costs to move there and back, it pays to
        move: like buying what was rented for its price (ski rental), that is never worse than twice the best decision.
        The way back has been paid for then, and is gone as soon as the text would be faster there.

        Args:
            here: the pass that pays most in the layout that is wanted so far.
            there: the pass that pays most in the other.
            depth: tokens in the cache, which move along.
        """
        self._regret = max(0.0, self._regret + here.seconds * (1 - here.rate / there.rate))
        price = self.moving(depth, 1) + self.moving(depth, 0) if self.wanted == 0 else 0.0
        if self._regret <= price:
            return False
        self.wanted, self._regret = 1 - self.wanted, 0.0
        return True

    def record_batch(self, layout: int, n: int, seconds: float) -> None:
        """Learn what evaluating `n` tokens of a prompt together took."""
        if n >= BATCH // 2:
            self._prefill[layout].append(seconds / n)

    def record_move(self, to: int, n: int, seconds: float) -> None:
        """Learn that `n` tokens moved to a layout, and what that took."""
        self.here, self.moving_seconds = to, seconds
        self.stay()
        if n:
            self._move.append(seconds / n)

    def record_loading(self, seconds: float) -> None:
        """Learn what loading the other layout took; it is loaded from now on."""
        self._loading, self._is_loaded = seconds, True

    def as_dict(self) -> dict[str, Any]:
        """Return what is known of prefill as JSON types."""
        return {"prefill": [list(times) for times in self._prefill], "loading": self._loading}

    def restore(self, kept: Any) -> None:
        """Begin with what `as_dict` gave earlier, or with nothing where that is damaged."""
        try:
            times = [[float(one) for one in layout] for layout in kept["prefill"]]
            loading = float(kept["loading"])
        except (KeyError, TypeError, ValueError):
            return
        if len(times) == 2 and all(0 < one < 100 for layout in times for one in layout) and loading >= 0:
            for known, layout in zip(self._prefill, times, strict=True):
                known.extend(layout)
            self._loading = loading

    def speedup(self) -> float | None:
        """Return how much faster the other layout evaluates prompts; None where that is not known."""
        here, there = self._prefill_seconds(0), self._prefill_seconds(1)
        return None if here is None or there is None else here / there

    def _prefill_seconds(self, layout: int) -> float | None:
        """Return the least that a token took lately: what took longer was beside other work, or read from a disk."""
        return min(self._prefill[layout], default=None)

    def moving(self, n: int, to: int) -> float:
        """Return the seconds of moving `n` tokens to a layout, and of loading it."""
        seconds = statistics.median(self._move) * n
        return seconds if to == 0 or self._is_loaded else seconds + self._loading
