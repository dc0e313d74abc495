"""What a pass over several tokens costs."""

import math
import statistics
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDEST = 128
"""The most tokens of a pass that a curve knows of."""

_WIDTHS: NDArray[np.int64] = np.arange(WIDEST + 1)

_DEFAULT_SLOPE = 0.6  # of a pass over one token, for each further one: two cores; others are cheaper
_RECENT_PASSES = 15  # that say how busy the machine is
_ENOUGH_SINGLE = 3  # of them over one token, to go by these alone
_RECENT_OF_A_WIDTH = 9
_MEASURED_WEIGHT = 1.0  # passes of a width that a measurement counts as
_FORGOTTEN = 2_000  # passes after which what was seen of a width counts no more, if it was measured


class CostCurve:
    """Seconds of a pass over n tokens behind d tokens of context.

    A curve begins with what was measured, or with the dear passes of a small machine, so that at first only
    drafts are tried that would pay there. Every real pass corrects it: a common factor follows how busy or hot the
    machine is, and a factor for each width how its passes differ from what was measured. Widths that were
    not seen share the factors of those beside them. Medians of recent passes forget a busy moment; and since a width
    that seemed dear may not be tried again, what was seen of it is forgotten after a while, and not kept.

    Args:
        seconds: by width, of a pass behind few tokens; what lies between is interpolated, what is wider goes on
            in a line. By default only the shape is known, and the first pass gives the scale.
        seconds_per_cell: by width, what each token of context adds.
    """

    def __init__(
        self, seconds: Mapping[int, float] | None = None, seconds_per_cell: Mapping[int, float] | None = None
    ) -> None:
        self._began_with_seconds = seconds is not None
        self.is_measured = seconds is not None
        """Whether it began with a measurement."""
        self.measured = dict(sorted((seconds or {1: 1.0, WIDEST: 1 + _DEFAULT_SLOPE * (WIDEST - 1)}).items()))
        """Seconds by measured width; only their proportions mean something where nothing was measured."""
        self.measured_per_cell = dict(sorted((seconds_per_cell or {1: 0.0}).items()))
        self._base: list[float] = _through(self.measured).tolist()
        per_cell = list(self.measured_per_cell), list(self.measured_per_cell.values())
        self._per_cell: list[float] = np.interp(_WIDTHS, *per_cell).tolist()
        self._recent: deque[tuple[int, float]] = deque(maxlen=_RECENT_PASSES)
        self._last: tuple[int, int, float] | None = None  # width, depth and seconds of the last pass, if it was wide
        self._of_width: dict[int, deque[float]] = {}
        self._seen: dict[int, int] = {}  # by width, the number of its last pass
        self._n_passes = 0
        self._log_scale: float | None = 0.0  # None while it is not known what the latest passes make of it
        self._log_factors = [0.0] * (WIDEST + 1)
        self._factor_of: dict[int, float] = {}  # by width that was seen, the logarithm of its factor
        self._padded: dict[int, tuple[NDArray[np.float64], NDArray[np.int64]]] = {}  # by depth, without the scale
        self._scaled: dict[int, NDArray[np.float64]] = {}
        self._proportions: dict[int, list[float]] = {}

    @property
    def has_scale(self) -> bool:
        """Whether seconds mean seconds: something was measured, or a pass was seen."""
        return self._began_with_seconds or bool(self._recent)

    def seconds(self, width: int, depth: int = 0) -> float:
        """Return the seconds of a pass over `width` tokens, 1 or more, behind `depth` tokens."""
        known = min(width, WIDEST)
        seconds = self._at_first(known, depth) * math.exp(self._log_factors[known] + self._scale())
        return seconds * width / known

    def padded(self, depth: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return for each width, 0 to `WIDEST`, the least seconds of a pass at least as wide, and that width."""
        bucket = depth // 64
        found = self._padded.get(bucket)
        if found is None:
            seconds = self._unscaled(depth)
            least = np.minimum.accumulate(seconds[::-1])[::-1]
            widths = np.where(seconds <= least, _WIDTHS, WIDEST + 1)
            found = self._padded[bucket] = least, np.minimum.accumulate(widths[::-1])[::-1]
        if bucket not in self._scaled:
            self._scaled[bucket] = found[0] * math.exp(self._scale())
        return self._scaled[bucket], found[1]

    def proportions(self, depth: int = 0) -> list[float]:
        """Return for each width, 0 to `WIDEST`, the seconds that `padded` gives in those of a pass over one token."""
        bucket = depth // 64
        found = self._proportions.get(bucket)
        if found is None:
            seconds = self.padded(depth)[0]
            found = self._proportions[bucket] = (seconds / seconds[1]).tolist()
        return found

    def alone_beside(self, width: int, depth: int, seconds: float) -> float:
        """Return about what a pass over one token would take at a moment when one over `width` takes `seconds`.

        That is what such passes took lately, but no more than this one says by what was known of their proportions
        at first: single passes can all have been in a busy moment.
        """
        first = self._at_first(1, depth) / self._at_first(min(width, WIDEST), depth)
        proportion = first if self._began_with_seconds else 1.0
        return min(self.seconds(1, depth), seconds * min(proportion, 1.0))

    def record(self, width: int, depth: int, seconds: float) -> None:
        """Learn from a pass over `width` tokens behind `depth` that took `seconds`.

        A pass is prepared anew where the one before had another width. So what a single token takes beyond the usual
        behind a wider pass counts as part of that one.
        """
        if not 1 <= width <= WIDEST or seconds <= 0:
            return
        last, self._last = self._last, None
        if width > 1:
            self._last = width, depth, seconds
        elif last is not None:
            wide, wide_depth, wide_seconds = last
            self._of_width[wide].pop()
            self._learn_width(wide, wide_depth, wide_seconds + max(0.0, seconds - self.seconds(1, depth)))
        self._recent.append((width, self._ratio(width, depth, seconds) - self._log_factors[width]))
        self._log_scale = None
        self._scaled.clear()
        self._n_passes += 1
        if self.is_measured and self._n_passes % _FORGOTTEN == 0:
            self._forget()
        if width > 1:
            self._learn_width(width, depth, seconds)

    def best_speedup(self, depth: int = 0) -> float:
        """Return the most that drafts can bring if they are always right: the largest n T(1) / T(n)."""
        seconds = self._all(depth)
        return float((np.arange(1, WIDEST + 1) * seconds[1] / seconds[1:]).max())

    def as_dict(self) -> dict[str, Any]:
        """Return the curve as JSON types: as measured, or where it was not, as seen."""
        seconds = self._base if self.is_measured else self._all(0)
        widths = sorted({*self.measured, *(() if self.is_measured else self._of_width)})
        scale = 1.0 if self.is_measured else math.exp(self._scale())
        return {
            "is_measured": self.is_measured,
            "seconds": {str(width): float(seconds[width]) for width in widths},
            "seconds_per_cell": {str(width): value * scale for width, value in self.measured_per_cell.items()},
        }

    @classmethod
    def from_dict(cls, kept: Any) -> "CostCurve | None":
        """Return the curve that `as_dict` gave, None where that is damaged."""
        try:
            seconds = {int(width): float(value) for width, value in kept["seconds"].items()}
            per_cell = {int(width): float(value) for width, value in kept["seconds_per_cell"].items()}
            is_measured = bool(kept["is_measured"])
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        plausible = 1 in seconds and all(1 <= n <= WIDEST and 0 < value < 1e4 for n, value in seconds.items())
        if not plausible or not per_cell or not all(0 <= value < 1 for value in per_cell.values()):
            return None
        curve = cls(seconds, per_cell)
        curve.is_measured = is_measured
        return curve

    def _at_first(self, width: int, depth: int) -> float:
        """Return the seconds of a pass by what was known of its width at first."""
        return self._base[width] + self._per_cell[width] * depth

    def _ratio(self, width: int, depth: int, seconds: float) -> float:
        """Return the logarithm of what a pass took in proportion to what was known of its width at first."""
        return math.log(seconds / self._at_first(width, depth))

    def _scale(self) -> float:
        """Return the logarithm of the factor that all passes share: how busy or hot the machine is."""
        if self._log_scale is None:
            of_single = [one for width, one in self._recent if width == 1]
            enough = len(of_single) >= _ENOUGH_SINGLE
            self._log_scale = statistics.median(of_single if enough else [one for _, one in self._recent])
        return self._log_scale

    def _all(self, depth: int) -> NDArray[np.float64]:
        return self._unscaled(depth) * math.exp(self._scale())

    def _unscaled(self, depth: int) -> NDArray[np.float64]:
        seconds: NDArray[np.float64] = np.array(self._base) + np.array(self._per_cell) * depth
        return seconds * np.exp(self._log_factors)

    def _forget(self) -> None:
        """Go by the measurement again for widths that were not seen lately."""
        for width in [width for width, at in self._seen.items() if at <= self._n_passes - _FORGOTTEN]:
            del self._seen[width], self._of_width[width], self._factor_of[width]
        self._spread()

    def _learn_width(self, width: int, depth: int, seconds: float) -> None:
        """Learn the factor of a width."""
        weight = _MEASURED_WEIGHT if self.is_measured else 0.0
        self._seen[width] = self._n_passes
        ratios = self._of_width.setdefault(width, deque(maxlen=_RECENT_OF_A_WIDTH))
        ratios.append(self._ratio(width, depth, seconds) - self._scale())
        self._factor_of[width] = statistics.median(ratios) * len(ratios) / (len(ratios) + weight)
        self._spread()

    def _spread(self) -> None:
        """Spread the factors of the widths that were seen over those between them."""
        seen = sorted(self._factor_of)
        factors = [0.0, *(self._factor_of[one] for one in seen)]
        self._log_factors = np.interp(_WIDTHS, [1, *seen], factors).tolist()
        self._padded.clear()
        self._scaled.clear()
        self._proportions.clear()


def _through(points: Mapping[int, float]) -> NDArray[np.float64]:
    """Interpolate between points, and go on behind the last in the direction from the first."""
    known, values = list(points), list(points.values())
    seconds: NDArray[np.float64] = np.interp(_WIDTHS, known, values)
    slope = max(0.0, values[-1] - values[0]) / (known[-1] - known[0]) if len(known) > 1 else _DEFAULT_SLOPE * values[0]
    behind = known[-1] < _WIDTHS
    seconds[behind] = values[-1] + slope * (_WIDTHS[behind] - known[-1])
    return seconds
