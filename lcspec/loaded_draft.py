"""What drafts for a target beside its own text: a draft model, a draft head, or nothing."""

import logging
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lcspec.costs import known_costs
from lcspec.draft_figures import best_draft, draft_options, figures, figures_of_head
from lcspec.draft_head import HeadReader, TargetRows, head_for
from lcspec.drafters import HeadDrafter, ModelDrafter, SharedPrompt
from lcspec.errors import LcspecWarning, ModelError, PairError
from lcspec.exactness import LoadOptions
from lcspec.hub import check_pair, find_model, pre_tokenizer_difference
from lcspec.limits import AUTO_DRAFT, DrafterName
from lcspec.llama import Context, Header, Model, check_memory, read_header
from lcspec.planner import CostCurve, Planner, shipped_priors

_log = logging.getLogger(__name__)


class LoadedDraft:
    """A draft model or head of a target; its files are found here, and loaded by `load`.

    Args:
        target: the target.
        draft: name or file of a draft model or head; "auto" for the best of those that were measured, if it pays and
            there is memory for it; None for none.
        n_ctx: tokens of context.
        threads: threads that evaluate.
        download: fetch a model that is not on this machine.

    Raises:
        ModelError: the draft can't be used, or there is too little memory.
    """

    def __init__(self, target: Header, draft: str | Path | None, *, n_ctx: int, threads: int, download: bool) -> None:
        self._target = target
        self._head = self._header = self._head_cost = None
        self._acceptance: tuple[float, ...] = ()
        file: Path | None
        if draft == AUTO_DRAFT:
            file, reason = best_draft(target, threads)
            _log.info("%s", reason)
        else:
            file = None if draft is None else find_model(draft, download=download)
        if file is not None:
            if (found := head_for(target, file)) is not None:
                self._head, provenance = found
                known = figures_of_head(target, provenance, threads)
                self._head_cost, self._acceptance = known.cost, known.acceptance
            else:
                self._header = read_header(file)
                self._acceptance = figures(target, self._header, threads).acceptance
        try:
            check_memory(target, self._header, n_ctx, 0 if self._head is None else self._head.memory)
        except ModelError as error:
            if draft != AUTO_DRAFT or file is None:
                raise
            check_memory(target, None, n_ctx)
            _log.info("decoding without a draft: %s", error)
            self._head = self._header = None
        self.shared = None if self._header is None else SharedPrompt.between(target, self._header)
        """Moves the target's keys and values to a draft model that is made of its blocks; None for any other."""
        self.context: Context | None = None
        """Where the draft model evaluates; None without one, and before it is loaded."""
        self.options = draft_options(threads)
        """How the draft model is loaded."""
        self._reader: HeadReader | None = None

    @property
    def name(self) -> DrafterName | None:
        """Who drafts with it: 'model' or 'head'; None where there is neither."""
        return "head" if self._head is not None else "model" if self._header is not None else None

    @property
    def needs_hidden(self) -> bool:
        """Whether the target has to give its hidden states."""
        return self._head is not None

    def load(self, target: Model, decoding: Context, options: LoadOptions) -> None:
        """Load it.

        Args:
            target: the target.
            decoding: where the target decodes.
            options: how the target is loaded.

        Raises:
            ModelError: it can't be loaded.
            PairError: it does not fit the target.
        """
        if self._head is not None:
            self._reader = HeadReader(self._head, TargetRows(self._target))
        if self._header is None:
            return
        with ExitStack() as undo:
            model = undo.enter_context(Model(self._header))
            check_pair(target, model)
            if (difference := pre_tokenizer_difference(target, model)) is not None:
                warnings.warn(f"{difference}: drafts may be worse", LcspecWarning, stacklevel=5)
            if self.shared is not None:  # needs cells of the same types
                self.options = replace(self.options, batch_invariant=options.batch_invariant)
            context = Context(
                model,
                decoding.n_ctx,
                threads=self.options.threads,
                batch_invariant=self.options.batch_invariant,
                repeatable=self.shared is not None,
            )
            if not context.can_truncate:
                raise PairError(f"a {model.architecture} model can't draft: its cache can't be truncated")
            if self.shared is not None and not self.shared.works(decoding, context):
                self.shared = None
            undo.pop_all()
        self.context = context

    def drafter(
        self, target: Model, hidden: Callable[[], NDArray[np.float32] | None], length: int
    ) -> ModelDrafter | HeadDrafter | None:
        """Return a drafter that drafts with it, when it is loaded; None where there is nothing to draft with.

        Args:
            target: the target.
            hidden: gives the target's final hidden states of its last pass.
            length: most tokens of a draft.
        """
        if self._reader is not None:
            return HeadDrafter(self._reader, hidden, target.n_vocab, target.is_eog, length)
        if self.context is None:
            return None
        return ModelDrafter(self.context, target.n_vocab, length, self.shared)

    def planner(self, target: Model, costs: CostCurve) -> Planner:
        """Return a planner that knows what it costs, when it is loaded.

        Args:
            target: the target.
            costs: what passes of the target cost.
        """
        usual = float(np.mean(self._acceptance)) if self._acceptance else None
        if self._reader is not None:
            ratio = self._head_cost or self._reader.size / target.size
            return Planner(costs, shipped_priors(), CostCurve(), draft_ratio=ratio, drafter="head", usual=usual)
        if self.context is None:
            return Planner(costs, shipped_priors())
        draft = self.context.model
        own = known_costs(draft.header, self.options)
        return Planner(costs, shipped_priors(), own, draft_ratio=draft.size / target.size, usual=usual)
