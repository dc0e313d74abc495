"""What an engine's caches hold, kept in files and moved when turns of a conversation go."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lcspec.context_shift import span_to_drop
from lcspec.errors import EvaluationError
from lcspec.exactness import ExactCells, LoadOptions
from lcspec.kept_state import KeptState, keep_state, model_conditions, recall_state
from lcspec.layouts import TwoLayouts
from lcspec.llama import Context, Model, machine

_log = logging.getLogger(__name__)


class Caches:
    """The caches of a target and maybe of a draft model, which follows by itself: only the target's is kept.

    Args:
        target: the target.
        options: how it is loaded.
        context: where it evaluates.
        cells: knows which of its cells are exact.
        draft: where the draft model evaluates; None without one.
        exact: whether texts have to be exact.
    """

    def __init__(
        self,
        target: Model,
        options: LoadOptions,
        context: Context | TwoLayouts,
        cells: ExactCells,
        draft: Context | None,
        *,
        exact: bool,
    ) -> None:
        self._target = target
        self._options = options
        self._context = context
        self._cells = cells
        self._draft = draft
        self._exact = exact

    def keep(self, path: Path) -> bool:
        """Write the target's cache to a file, and tell whether that was possible."""
        if not self._context.tokens:
            return False
        try:
            return keep_state(path, KeptState(self._context.save(), self._inexact_from()), self._conditions())
        except (OSError, EvaluationError, MemoryError) as error:
            _log.warning("the state can't be kept: %s", error)
            return False

    def recall(self, path: Path) -> int:
        """Replace the target's cache by one that was kept, and return how many tokens it has; 0 where none fits."""
        try:
            conditions = self._conditions()
            kept = recall_state(path, conditions, n_vocab=self._target.n_vocab, n_ctx=self._context.n_ctx)
            if kept is None:
                return 0
            self._context.restore(kept.state)
        except (OSError, EvaluationError, MemoryError) as error:
            _log.warning("the state in %s can't be used: %s", path, error)
            return 0
        self._cells.inexact_from = kept.inexact_from
        return len(kept.state.tokens)

    def shift_to(self, prompt: Sequence[int]) -> int:
        """Leave out of the caches what `prompt` leaves out, and return how many of the target's tokens went."""
        if self._exact:
            return 0
        if self._draft is not None:
            _shift(self._draft, prompt)
        start, end = _shift(self._context, prompt)
        if start < end:
            self._cells.mark(start)
        return end - start

    def _inexact_from(self) -> int | None:
        """Return the first cell in use that is not known to be exact."""
        if isinstance(self._context, TwoLayouts) and self._context.is_mixed:
            return 0
        start = self._cells.inexact_from
        return None if start is None or start >= len(self._context.tokens) else start

    def _conditions(self) -> dict[str, Any]:
        """Return all that the use of a kept cache depends on; for an exact text every bit counts."""
        options = asdict(self._options)
        known = machine()
        if not self._exact:
            del options["threads"]
            known = {"library": known["library"]}
        return model_conditions(self._target.header) | options | known | {"exact": self._exact}


def _shift(context: Context | TwoLayouts, prompt: Sequence[int]) -> tuple[int, int]:
    """Cut a span from a cache, and return it; an empty one where there is nothing to gain, or it can't be."""
    span = span_to_drop(context.tokens, prompt) if context.can_shift else None
    if span is None:
        return 0, 0
    context.cut(*span)
    return span
