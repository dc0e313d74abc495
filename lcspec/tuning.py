"""The threads and the weight layout that suit a file on this machine, found by trying."""

import math
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from lcspec.costs import keep_costs, keep_layouts, measure_costs, time_pass
from lcspec.exactness import LoadOptions
from lcspec.llama import (
    MAX_THREADS,
    Context,
    Header,
    Model,
    free_memory,
    machine,
    memory_need,
    usable_physical_cores,
)
from lcspec.measurements import Measurements
from lcspec.planner import BATCH, CostCurve, LayoutChoice

_KIND = "tuned"
_ROUNDS = 5
_DEPTH = 64
_DRAFTED = 4  # tokens of a pass with a short draft
_CLEARLY = 1.05
_PREFILLS = 2


@dataclass(frozen=True)
class Trial:
    """One way to load and run a model, and what it took.

    Attributes:
        options: the way.
        single: seconds of a pass over one token.
        drafted: seconds of a pass over four.
    """

    options: LoadOptions
    single: float
    drafted: float


@dataclass(frozen=True)
class Tuning:
    """What was measured of a file, and chosen.

    Attributes:
        trials: all that were tried.
        chosen: the options that are used from now on.
        costs: what passes cost with them.
        other_costs: what they cost in the other weight layout; None where there is only one.
        prefill_speedup: how much faster the other layout evaluates a prompt; None where there is only one.
    """

    trials: tuple[Trial, ...]
    chosen: LoadOptions
    costs: CostCurve
    other_costs: CostCurve | None
    prefill_speedup: float | None

    @property
    def has_two_layouts(self) -> bool:
        """Whether both ways to lay the weights out were tried."""
        return len({trial.options.repack for trial in self.trials}) > 1


def tuned_threads(header: Header) -> int | None:
    """Return the threads that were found to be fastest for a file; None where it was not tuned."""
    kept = _measurements(header).recall(_KIND)
    threads = kept.get("threads") if isinstance(kept, dict) else None
    return threads if isinstance(threads, int) and 1 <= threads <= MAX_THREADS else None


def tuned_repack(header: Header) -> bool:
    """Return whether laying the weights of a file out anew was found to be faster; True where it was not tuned."""
    kept = _measurements(header).recall(_KIND)
    return not (isinstance(kept, dict) and kept.get("repack") is False)


def tune(header: Header, seconds: float, say: Callable[[str], None]) -> Tuning:
    """Try threads and weight layouts, measure what passes cost in the best way, and keep all of it.

    Args:
        header: the file.
        seconds: about how long measuring the passes may take for each layout.
        say: told what happens.

    Raises:
        ModelError: the file can't be loaded, or nothing can be drafted for it.
    """
    with ExitStack() as stack:
        models = {True: stack.enter_context(Model(header))}
        has_two = models[True].is_repacked and memory_need(header, BATCH).total < free_memory()
        if has_two:
            models[False] = stack.enter_context(Model(header, repack=False))
        say(f"trying {', '.join(map(str, _thread_counts()))} threads" + (" in two weight layouts" if has_two else ""))
        trials = _trials(models)
        chosen = _best(trials)
        say(f"measuring passes with {chosen.threads} threads")
        curves = {}
        for repack, model in models.items():
            options = replace(chosen, repack=repack)
            curves[repack] = measure_costs(model, options, seconds) or CostCurve()
            keep_costs(header, options, curves[repack])
        _measurements(header).keep(_KIND, {"threads": chosen.threads, "repack": chosen.repack})
        if not (has_two and chosen.repack):
            return Tuning(tuple(trials), chosen, curves[chosen.repack], None, None)
        say("measuring how fast prompts are evaluated in both weight layouts")
        choice = LayoutChoice((curves[True], curves[False]))
        _measure_prefill(models, chosen, choice)
        keep_layouts(header, chosen, choice)
        return Tuning(tuple(trials), chosen, curves[True], curves[False], choice.speedup())


def _thread_counts() -> list[int]:
    cores = usable_physical_cores()
    return sorted({1, max(1, cores // 2), max(1, cores - 1), cores})


def _trials(models: dict[bool, Model]) -> list[Trial]:
    """Time each way in turn, several times, so that a busy moment hits all of them."""
    with ExitStack() as stack:
        contexts: dict[LoadOptions, Context] = {}
        for repack, model in models.items():
            for threads in _thread_counts():
                context = stack.enter_context(Context(model, BATCH, threads=threads))
                context.prefill([0] * _DEPTH)
                contexts[LoadOptions(repack, batch_invariant=False, threads=threads)] = context
        widths = (1, _DRAFTED) if all(context.can_truncate for context in contexts.values()) else ()
        times = {
            (options, width): [time_pass(context, width)] for options, context in contexts.items() for width in widths
        }
        for _ in range(_ROUNDS):
            for (options, width), taken in times.items():
                taken.append(time_pass(contexts[options], width))
        return [
            Trial(options, statistics.median(times[options, 1]), statistics.median(times[options, _DRAFTED]))
            for options in contexts
        ]


def _measure_prefill(models: dict[bool, Model], options: LoadOptions, choice: LayoutChoice) -> None:
    """Time whole batches of a prompt in both layouts, in turn."""
    with ExitStack() as stack:
        contexts = [
            stack.enter_context(Context(models[repack], 2 * BATCH, threads=options.threads)) for repack in (True, False)
        ]
        for _ in range(_PREFILLS):
            for layout, context in enumerate(contexts):
                context.clear()
                started = time.perf_counter()
                context.prefill([0] * BATCH)
                choice.record_batch(layout, BATCH, time.perf_counter() - started)


def _best(trials: list[Trial]) -> LoadOptions:
    """Return the fastest way; the usual one (all cores, weights laid out anew) unless another is clearly faster."""
    usual = max(trials, key=lambda trial: (trial.options.threads, trial.options.repack))
    best = min(trials, key=_score)
    return best.options if _score(best) * _CLEARLY < _score(usual) else usual.options


def _score(trial: Trial) -> float:
    """Weigh plain decoding and short drafts alike."""
    return math.sqrt(trial.single * trial.drafted)


def _measurements(header: Header) -> Measurements:
    return Measurements({"file": header.digest, **machine()})
