"""An engine's models in memory, and what is known of them on this machine."""

import warnings
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lcspec.auto import AutoDrafter
from lcspec.caches import Caches
from lcspec.cost_keeping import CostKeeping
from lcspec.costs import known_costs, recall_layouts
from lcspec.drafters import Drafter, LookupDrafter, NoDrafter
from lcspec.errors import LcspecWarning
from lcspec.exactness import (
    ExactCells,
    LoadOptions,
    exact_widths,
    fastest_exact_options,
    known_widths,
)
from lcspec.hub import find_model
from lcspec.layouts import TwoLayouts
from lcspec.limits import DRAFTERS, DrafterName
from lcspec.llama import (
    MAX_WIDTH,
    Context,
    ExactWidths,
    Header,
    Model,
    check_whole,
    free_memory,
    memory_need,
    read_header,
    usable_physical_cores,
)
from lcspec.loaded_draft import LoadedDraft
from lcspec.loop import Pass
from lcspec.planner import WIDEST, Explanation, Planner
from lcspec.store import NgramStore, StoreOfModel
from lcspec.tuning import tuned_repack, tuned_threads

_DEFAULT_CONTEXT = 4096
_MODEL_LENGTH = 4
_SHORTEST_MATCH, _LONGEST_MATCH = 3, 64  # of lookup, where the planner judges its drafts


class Loaded:
    """A target, maybe a draft model or head, and the drafters that they make possible.

    Args:
        target: as of `SpeculativeLM`, like the others.
        draft: the draft model, or the file of a draft head; None without one, and "auto" for the best of those that
            were measured.
        n_ctx: tokens of context; None for the default.
        threads: threads that evaluate; None for those found fastest, or the physical cores.
        draft_tokens: tokens of a draft; None for the defaults.
        exact: load so that passes of several tokens are exact.
        one_layout: never load the target's weights in a second layout.
        store: earlier texts to draft from; None without.
        learns: add texts to the store.
        download: fetch a model that is not on this machine.
    """

    def __init__(
        self,
        target: str | Path,
        draft: str | Path | None,
        *,
        n_ctx: int | None,
        threads: int | None,
        draft_tokens: int | None,
        exact: bool,
        one_layout: bool,
        store: NgramStore | None,
        learns: bool,
        download: bool,
    ) -> None:
        target_header = read_header(find_model(target, download=download))
        check_whole(target_header)
        threads = threads or tuned_threads(target_header) or usable_physical_cores()
        n_ctx = n_ctx or default_context(target_header)
        self.draft = LoadedDraft(target_header, draft, n_ctx=n_ctx, threads=threads, download=download)
        """The draft model or head."""
        self.exact = exact
        self._options = load_options(target_header, threads, exact)
        with ExitStack() as undo:
            self.target = undo.enter_context(Model(target_header, repack=self._options.repack))
            if n_ctx > self.target.n_ctx_train:
                _warn(
                    f"{self.target.path.name} was trained for {self.target.n_ctx_train:,} tokens of context, "
                    f"not {n_ctx:,}",
                    4,
                )
            self.store = None if store is None else StoreOfModel(store, self.target, learns=learns)
            """Texts that were written earlier."""
            self._cells = ExactCells(self._exact_widths())
            self._decoding = self._make_context(self.target, n_ctx)
            self.context: Context | TwoLayouts = self._decoding
            """Where the target evaluates."""
            self.drafters = self._load_drafters(draft_tokens)
            """By name."""
            can_move = self._decoding.can_truncate and self._decoding.can_move
            if not (one_layout or exact) and self.target.is_repacked and can_move:
                self.context = self._two_layouts()
            if self.draft.shared is not None:
                self.draft.shared.source = self.context
            self.caches = Caches(self.target, self._options, self.context, self._cells, self.draft.context, exact=exact)
            """Their contents, to keep and to move."""
            self.costs = self._keep_costs()
            """What passes cost; None where nothing can be drafted."""
            undo.pop_all()

    @property
    def threads(self) -> int:
        """Threads that evaluate."""
        return self._decoding.threads

    @property
    def max_width(self) -> int:
        """The most tokens that a pass may have."""
        return self._cells.widths.everywhere if self.exact else MAX_WIDTH

    @property
    def planner(self) -> Planner | None:
        """The planner of the drafter 'auto'; None where nothing can be drafted."""
        auto = self.drafters["auto"]
        return auto.planner if isinstance(auto, AutoDrafter) else None

    def record(self, done: Pass, drafter: Drafter) -> Pass:
        """Take note of a pass, and say in it whether it was exact, and what plain decoding would have taken."""
        exact = self._cells.record(done)
        if isinstance(self.context, TwoLayouts):
            exact = exact and not self.context.is_mixed
        plain = None
        if isinstance(drafter, AutoDrafter):
            seconds = done.seconds - done.drafting_seconds
            plain = drafter.planner.plain_seconds(done.evaluated, done.reused, len(done.emitted), seconds)
        return replace(done, exact=exact, plain_seconds=plain)

    def explain(self, drafter: Drafter) -> Explanation | None:
        """Say why the passes of the request that ends now were planned as they were; None for a fixed drafter."""
        if not isinstance(drafter, AutoDrafter):
            return None
        explanation = drafter.explain()
        if self.exact:
            explanation.reasons.append(f"passes of {self.max_width:,} tokens at most, as wider ones are not exact")
        if isinstance(self.context, TwoLayouts) and (reason := self.context.reason()):
            explanation.reasons.append(reason)
        return explanation

    def clear(self) -> None:
        """Forget what was evaluated."""
        self.context.clear()
        if self.draft.context is not None:
            self.draft.context.clear()

    def close(self) -> None:
        """Free all of it."""
        with ExitStack() as free:
            free.callback(self.target.close)
            if isinstance(self.context, TwoLayouts):
                free.callback(self.context.close)
            for drafter in self.drafters.values():
                free.callback(drafter.close)

    def _make_context(self, model: Model, n_ctx: int) -> Context:
        options = self._options
        return Context(
            model,
            n_ctx,
            threads=options.threads,
            batch_invariant=options.batch_invariant,
            repeatable=self.draft.shared is not None,
            hidden=self.draft.needs_hidden,
        )

    def _exact_widths(self) -> ExactWidths:
        """Return what passes are known to be exact; what is only for information is not probed here."""
        if not self.exact:
            return known_widths(self.target.header, self._options)
        widths = exact_widths(self.target, self._options)
        if widths.everywhere == 1:
            _warn(f"{self.target.path.name} gives the same bits one token at a time only: exact means no drafts")
        return widths

    def _keep_costs(self) -> CostKeeping | None:
        if self.planner is None:
            return None
        draft = None if self.draft.context is None else self.draft.context.model
        two_layouts = isinstance(self.context, TwoLayouts)
        return CostKeeping(self.planner, self.target, self._options, draft, self.draft.options, two_layouts=two_layouts)

    def _two_layouts(self) -> TwoLayouts:
        assert self.planner is not None
        recall_layouts(self.target.header, self._options, self.planner.layouts)
        return TwoLayouts(self._decoding, self._load_other_layout, self.planner.layouts)

    def _load_other_layout(self) -> Context | None:
        """Load the target's weights as the file has them, if there is memory for both."""
        header, n_ctx = self.target.header, self._decoding.n_ctx
        if memory_need(header, n_ctx).total > free_memory():
            return None
        with ExitStack() as undo:
            model = undo.enter_context(Model(header, repack=False))
            context = self._make_context(model, n_ctx)
            undo.pop_all()
        return context

    def _load_drafters(self, length: int | None) -> dict[DrafterName, Drafter]:
        plain = NoDrafter()
        if not self._decoding.can_truncate:
            _warn(f"the cache of a {self.target.architecture} model can't be truncated: decoding without drafts")
            return dict.fromkeys(DRAFTERS, plain)
        self.draft.load(self.target, self._decoding, self._options)
        drafters: dict[DrafterName, Drafter] = {"none": plain, "lookup": LookupDrafter(self.target.is_eog, length)}
        drafter = self.draft.drafter(self.target, self._hidden, length or _MODEL_LENGTH)
        if drafter is not None and self.draft.name is not None:
            drafters[self.draft.name] = drafter
        return drafters | {"auto": self._load_auto(length)}

    def _load_auto(self, length: int | None) -> AutoDrafter:
        lookup = LookupDrafter(
            self.target.is_eog,
            WIDEST - 1,
            min_match=_SHORTEST_MATCH,
            max_match=_LONGEST_MATCH,
            digits=self.target.digits,
            store=self.store,
        )
        planner = self.draft.planner(self.target, known_costs(self.target.header, self._options))
        return AutoDrafter(planner, lookup, self.draft.drafter(self.target, self._hidden, WIDEST - 1), length)

    def _hidden(self) -> NDArray[np.float32] | None:
        return self.context.hidden


def load_options(header: Header, threads: int, exact: bool) -> LoadOptions:
    """Return how a target is loaded."""
    if exact:
        return fastest_exact_options(header, threads)
    return LoadOptions(repack=tuned_repack(header), batch_invariant=False, threads=threads)


def default_context(header: Header) -> int:
    """Return as much context as the model was trained for, within reason."""
    trained = header.of_architecture("context_length")
    return min(trained, _DEFAULT_CONTEXT) if isinstance(trained, int) and trained >= 2 else _DEFAULT_CONTEXT


def _warn(message: str, stacklevel: int = 5) -> None:
    warnings.warn(message, LcspecWarning, stacklevel=stacklevel)
