"""Whether a text is bit for bit that of plain decoding, and the load options that make it so."""

import logging
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from lcspec.errors import LcspecError
from lcspec.llama import NOT_PROBED, WIDEST_PROBED, Context, ExactWidths, Header, Model, machine, probe_exact_widths
from lcspec.loop import Pass
from lcspec.measurements import Measurements

_log = logging.getLogger(__name__)

_KIND = "exact-widths"
_ACCEPTED = 0.7  # of draft tokens, where one has to be assumed to compare widths
_REPEATS = 5
_DEPTH = 64  # tokens of context to measure behind


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded, as far as the bits of its logits depend on it.

    Attributes:
        repack: as of `Model`.
        batch_invariant: as of `Context`.
        threads: as of `Context`.
    """

    repack: bool
    batch_invariant: bool
    threads: int


class ExactCells:
    """Knows which leading cells of a cache hold the very bits that plain decoding would have put there.

    Args:
        widths: the exact widths of passes on the cache's context.
    """

    def __init__(self, widths: ExactWidths) -> None:
        self.widths = widths
        self.inexact_from: int | None = None
        """The first cell of which that is not known; None without one."""

    def record(self, done: Pass) -> bool:
        """Take note of a pass, and tell whether its logits are exact."""
        if self.inexact_from is not None and done.reused <= self.inexact_from:
            self.inexact_from = None  # those cells are gone
        width = 1 + len(done.draft.tokens)  # a prompt is cut alike with and without drafts, and is wide in both
        if self.inexact_from is None and width > self.widths.at(done.reused + done.evaluated):
            self.inexact_from = done.reused
        return self.inexact_from is None

    def mark(self, start: int) -> None:
        """Take note that the cells from `start` on are others now."""
        self.inexact_from = start if self.inexact_from is None else min(start, self.inexact_from)


def known_widths(header: Header, options: LoadOptions) -> ExactWidths:
    """Return the widths that were probed on this machine before, else those that are certain."""
    return _probed_before(header, options) or NOT_PROBED


def exact_widths(model: Model, options: LoadOptions) -> ExactWidths:
    """Return the widths of a loaded model, probed unless that was done on this machine before."""
    known = _probed_before(model.header, options)
    if known is not None:
        return known
    _log.info("probing how many tokens of %s give the same bits together as alone", model.path.name)
    probed = probe_exact_widths(model, threads=options.threads, batch_invariant=options.batch_invariant)
    measurements_of(model.header, options).keep(_KIND, probed.as_dict())
    return probed


def _probed_before(header: Header, options: LoadOptions) -> ExactWidths | None:
    kept = measurements_of(header, options).recall(_KIND)
    if not isinstance(kept, dict) or kept.keys() != NOT_PROBED.as_dict().keys():
        return None
    if not all(type(width) is int and 1 <= width <= WIDEST_PROBED for width in kept.values()):
        return None
    return ExactWidths(**kept)


def fastest_exact_options(header: Header, threads: int) -> LoadOptions:
    """Return the fastest load options with which attention does not depend on the width of a pass.

    Whether weights are laid out anew decides how fast a token is and how wide an exact pass may be. Both ways
    are measured the first time, where llama.cpp does it at all for this file.
    """
    measurements = Measurements({"file": header.digest, "threads": threads, **machine()})
    repack = measurements.recall("exact-repack")
    if not isinstance(repack, bool):
        try:
            repack = _is_faster_repacked(header, threads)
        except LcspecError:  # no memory for both layouts: another time, then
            return LoadOptions(True, batch_invariant=True, threads=threads)
        measurements.keep("exact-repack", repack)
    return LoadOptions(repack, batch_invariant=True, threads=threads)


def _is_faster_repacked(header: Header, threads: int) -> bool:
    with ExitStack() as stack:
        models = [stack.enter_context(Model(header))]
        if not models[0].is_repacked:
            return True
        _log.info("measuring which layout of weights is faster for exact passes")
        models.append(stack.enter_context(Model(header, repack=False)))
        widths = [
            exact_widths(model, LoadOptions(repack, batch_invariant=True, threads=threads)).everywhere
            for model, repack in zip(models, (True, False), strict=True)
        ]
        contexts = [Context(model, 2 * _DEPTH + 64, threads=threads, batch_invariant=True) for model in models]
        for context in contexts:
            context.prefill([0] * _DEPTH)
        times: dict[tuple[int, int], list[float]] = {}
        for _ in range(_REPEATS):  # interleaved, so that a busy moment hits both
            for i, context in enumerate(contexts):
                for width in {1, widths[i]}:
                    times.setdefault((i, width), []).append(_pass_seconds(context, width))
        repacked, plain = (
            min(statistics.median(times[i, width]) / _expected_tokens(width) for width in {1, widths[i]})
            for i in range(2)
        )
        return repacked <= plain


def _pass_seconds(context: Context, width: int) -> float:
    started = time.perf_counter()
    context.evaluate([0] * width)
    seconds = time.perf_counter() - started
    context.truncate(_DEPTH)
    return seconds


def _expected_tokens(width: int) -> float:
    """Return the tokens that a pass emits on average, with `width` - 1 draft tokens."""
    return (1 - _ACCEPTED**width) / (1 - _ACCEPTED)


def measurements_of(header: Header, options: LoadOptions) -> Measurements:
    """Return what was measured of a file, loaded in this way on this machine."""
    conditions = {"repack": options.repack, "batch_invariant": options.batch_invariant, "threads": options.threads}
    return Measurements({"file": header.digest, **conditions, **machine()})
