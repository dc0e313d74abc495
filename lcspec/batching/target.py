"""A target in memory, and what is known of it on this machine."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from lcspec.batching.cuts import any_cut_is_exact, any_threads_are_exact
from lcspec.costs import keep_costs, known_costs, measure_costs
from lcspec.errors import LcspecWarning, PromptError
from lcspec.exactness import LoadOptions, exact_widths
from lcspec.hub import find_model
from lcspec.llama import (
    MAX_SEQUENCES,
    MAX_WIDTH,
    Context,
    Model,
    SharedContext,
    check_memory,
    read_header,
    slack,
    usable_physical_cores,
)
from lcspec.loaded import default_context, load_options
from lcspec.planner import CostCurve
from lcspec.tuning import tuned_threads


@dataclass
class Pace:
    """A way to go on with texts.

    Attributes:
        options: how the model is loaded, and with how many threads it is evaluated.
        costs: what passes cost then.
    """

    options: LoadOptions
    costs: CostCurve


class Target:
    """A model that is loaded to be shared.

    Args:
        target: as of `BatchingEngine`, like the others.
        n_ctx: tokens of KV cache; None for the default.
        max_sequences: texts that are written together.
        threads: threads that evaluate; None for those found fastest, or the physical cores. While prompts are read
            beside texts, these and those have half of them each, and one at least.
        exact: load so that texts depend neither on drafts nor on each other.
        download: fetch a model that is not on this machine.
    """

    def __init__(
        self,
        target: str | Path,
        *,
        n_ctx: int | None,
        max_sequences: int,
        threads: int | None,
        exact: bool,
        download: bool,
    ) -> None:
        header = read_header(find_model(target, download=download))
        self.n_ctx = n_ctx or default_context(header)
        check_memory(header, None, self.n_ctx + slack(self.n_ctx) if exact else self.n_ctx, caches=2)
        self.exact = exact
        self.options = load_options(header, threads or tuned_threads(header) or usable_physical_cores(), exact)
        self.alone = Pace(self.options, known_costs(header, self.options))
        """How texts go on while no prompt is read."""
        beside = replace(self.options, threads=max(1, self.options.threads // 2))
        self.beside = Pace(beside, known_costs(header, beside, beside=True))
        """How they do while one is."""
        self.threads_reading = max(1, self.options.threads - beside.threads)
        """Threads that read it."""
        self.n_sequences = max_sequences
        """Sequences of a context."""
        if max_sequences > MAX_SEQUENCES:
            raise PromptError(f"max_sequences is {max_sequences}; it must be 1 to {MAX_SEQUENCES}")
        with ExitStack() as undo:
            self.model = undo.enter_context(Model(header, repack=self.options.repack))
            if self.n_ctx > self.model.n_ctx_train:
                _warn(
                    f"{self.model.path.name} was trained for {self.model.n_ctx_train:,} tokens of context, "
                    f"not {self.n_ctx:,}"
                )
            self.max_width = MAX_WIDTH
            """The most tokens of a pass over texts."""
            self.any_cut = True
            """Whether tokens may be put together into passes in any way."""
            self.any_threads = True
            """Whether it does not matter how many threads evaluate what."""
            if exact:
                widths = exact_widths(self.model, self.options)
                self.any_cut = any_cut_is_exact(self.model, self.options, widths)
                self.any_threads = any_threads_are_exact(
                    self.model, self.options, (self.beside.options.threads, self.threads_reading)
                )
                if not self.any_cut:
                    self.max_width = widths.everywhere
            undo.pop_all()

    def make_context(self) -> SharedContext:
        """Make an empty KV cache."""
        return SharedContext(
            self.model,
            self.n_ctx,
            self.n_sequences,
            threads=self.options.threads,
            batch_invariant=self.options.batch_invariant,
            in_order=self.exact,
        )

    def make_reading_context(self) -> Context:
        """Make an empty KV cache for one prompt."""
        return Context(
            self.model,
            self.n_ctx,
            threads=self.options.threads,
            batch_invariant=self.options.batch_invariant,
            repeatable=True,
        )

    def measure_costs(self, should_stop: Callable[[], bool]) -> bool:
        """Measure what passes cost, unless that was done on this machine before, and tell whether it is known now."""
        for pace in (self.alone, self.beside):
            if not pace.costs.is_measured:
                costs = measure_costs(self.model, pace.options, should_stop=should_stop)
                if costs is None:
                    return False
                pace.costs = costs
                self._keep_costs()
        return True

    def close(self) -> None:
        """Remember what passes cost, and free all of it."""
        self._keep_costs()
        self.model.close()

    def _keep_costs(self) -> None:
        for pace in (self.alone, self.beside):
            if pace.costs.has_scale:
                keep_costs(self.model.header, pace.options, pace.costs, beside=pace is self.beside)


def _warn(message: str) -> None:
    warnings.warn(message, LcspecWarning, stacklevel=4)
