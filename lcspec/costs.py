"""What passes of a model cost on this machine: measured, kept, and recalled."""

import logging
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from lcspec.exactness import LoadOptions, measurements_of
from lcspec.llama import Context, Header, Model
from lcspec.planner import WIDEST, CostCurve, LayoutChoice

_log = logging.getLogger(__name__)

_KIND, _BESIDE, _LAYOUTS = "cost-curve", "cost-curve-beside-prompts", "layout-prefill"
_DEPTH = 64  # tokens before the measured passes
_COPIES = 15  # of these, for passes behind a long context
_DEEP_WIDTHS = (1, 8, 32)
_WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 5, 7, 24, 48, 10, 20, 14, 96, 128)  # the more important first
_LARGE_MODEL = 500_000_000  # bytes; smaller ones are measured in less time
_QUICK, _QUICK_LARGE = 2.5, 9.0  # seconds
_DEEP_SHARE = 0.2  # of the time, for passes behind a long context
_ROUNDS = 5
_RATIO_ROUNDS = 9


def known_costs(header: Header, options: LoadOptions, *, beside: bool = False) -> CostCurve:
    """Return what passes cost, as measured or seen on this machine before; else what is safe to assume.

    Args:
        header: the model's file.
        options: how it is loaded, and the threads.
        beside: while other threads read prompts.
    """
    kinds = (_BESIDE, _KIND) if beside else (_KIND,)
    kept = (CostCurve.from_dict(measurements_of(header, options).recall(kind)) for kind in kinds)
    return next((curve for curve in kept if curve is not None), CostCurve())


def keep_costs(header: Header, options: LoadOptions, costs: CostCurve, *, beside: bool = False) -> None:
    """Remember a curve."""
    measurements_of(header, options).keep(_BESIDE if beside else _KIND, costs.as_dict())


def recall_layouts(header: Header, options: LoadOptions, choice: LayoutChoice) -> None:
    """Tell a choice what is known of the other weight layout of a file that is loaded with `options`."""
    other = known_costs(header, replace(options, repack=False))
    choice.curves = choice.curves[0], other if other.is_measured else None
    choice.restore(measurements_of(header, options).recall(_LAYOUTS))


def keep_layouts(header: Header, options: LoadOptions, choice: LayoutChoice) -> None:
    """Remember how fast the layouts evaluate prompts."""
    measurements_of(header, options).keep(_LAYOUTS, choice.as_dict())


def _quick_seconds(model: Model) -> float:
    """Return how long a measurement on the side should take."""
    return _QUICK_LARGE if model.size > _LARGE_MODEL else _QUICK


def measure_costs(
    model: Model,
    options: LoadOptions,
    seconds: float | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> CostCurve | None:
    """Measure what passes of a loaded model cost, within about so many seconds.

    Rounds go over all widths that fit into the time, so that a busy moment hits all of them. What counts is a
    width's median over the rounds, of its time in proportion to single tokens in the same round. What a single token
    takes longer behind a wider pass counts as part of that.

    Args:
        model: the model.
        options: how it was loaded, and the threads.
        seconds: time for all; by default 2.5, and 9 for files of more than 500 MB. A short time leaves out wide
            passes and repetitions.
        should_stop: asked before each pass, whether to give up.

    Returns:
        The curve; None where measuring was given up, or the cache can't be truncated.
    """
    seconds = _quick_seconds(model) if seconds is None else seconds
    deadline = time.perf_counter() + (1 - _DEEP_SHARE) * seconds
    n_ctx = _DEPTH * (1 + _COPIES) + WIDEST
    with Context(
        model, n_ctx, threads=options.threads, batch_invariant=options.batch_invariant, repeatable=True
    ) as context:
        context.prefill([0] * _DEPTH)
        if not context.can_truncate:
            return None
        for _ in range(2):  # the first pass is slower
            time_pass(context, 1)
        shallow = _measure(context, _WIDTHS, deadline, should_stop)
        if should_stop():
            return None
        if shallow.keys() <= {1} or not context.repeat(_COPIES):
            return CostCurve(shallow)
        widths = tuple(width for width in _DEEP_WIDTHS if width in shallow)
        time_pass(context, 1)  # moves the copied keys to their places
        deep = _measure(context, widths, time.perf_counter() + _DEEP_SHARE * seconds, should_stop)
        if should_stop():
            return None
        per_cell = {width: max(0.0, deep[width] - shallow[width]) / (_DEPTH * _COPIES) for width in deep}
        return CostCurve(shallow, per_cell)


def _measure(
    context: Context, widths: tuple[int, ...], deadline: float, should_stop: Callable[[], bool]
) -> dict[int, float]:
    """Return the seconds of passes by width, as far as there is time."""
    alone: list[float] = []
    ratios: dict[int, list[float]] = defaultdict(list)
    expected: dict[int, float] = {}
    for number in range(_ROUNDS):
        started = time.perf_counter()
        taken: dict[int, float] = {}
        ones: list[float] = []
        time_pass(context, 1)  # behind a wider pass, another one takes longer
        for width in _this_round(widths, number):
            if should_stop():
                return {1: 0.0}
            guess = expected.get(width, _extrapolated(expected | taken, width))
            if number and time.perf_counter() + guess > deadline:
                continue
            if not number and width > 1 and time.perf_counter() + guess > started + 0.7 * (deadline - started):
                continue
            ones.append(time_pass(context, 1))
            if width > 1:
                wide = time_pass(context, width)
                taken[width] = wide + max(0.0, time_pass(context, 1) - ones[-1])
        if not ones:
            break
        single = statistics.median(ones)
        alone.append(single)
        for width, time_taken in taken.items():
            ratios[width].append(time_taken / single)
        expected = {1: single} | expected | taken
        if time.perf_counter() > deadline:
            break
    one = statistics.median(alone)
    return {1: one} | {width: one * statistics.median(found) for width, found in ratios.items()}


def _this_round(widths: tuple[int, ...], number: int) -> Iterator[int]:
    """Yield the widths of a round; every other one goes backwards, so that a drift of the machine cancels out."""
    yield from widths if number % 2 == 0 else reversed(widths)


def _extrapolated(taken: dict[int, float], width: int) -> float:
    """Guess the seconds of a pass from those of narrower ones."""
    if not taken:
        return 0.0
    widest = max(taken)
    return taken[widest] * max(1.0, width / widest)


def cost_ratio(model: Model, other: Model, threads: int) -> float:
    """Return what a pass of another model over one token takes in proportion to one of a model, both timed in turn."""
    with Context(model, 2 * _DEPTH, threads=threads) as first, Context(other, 2 * _DEPTH, threads=threads) as second:
        for context in (first, second):
            context.prefill([0] * _DEPTH)
            time_pass(context, 1)  # the first pass is slower
        ratios = []
        for _ in range(_RATIO_ROUNDS):
            whole, part = time_pass(first, 1), time_pass(second, 1)
            ratios.append(part / whole)
    return statistics.median(ratios)


def time_pass(context: Context, width: int) -> float:
    """Return the seconds of a pass over `width` tokens, of which the cache keeps none."""
    depth = len(context.tokens)
    started = time.perf_counter()
    context.evaluate([0] * width)
    seconds = time.perf_counter() - started
    context.truncate(depth)
    return seconds
