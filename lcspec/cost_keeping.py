"""What passes of an engine's models cost, measured once on a machine and remembered."""

from collections.abc import Callable
from dataclasses import replace

from lcspec.costs import keep_costs, keep_layouts, measure_costs
from lcspec.exactness import LoadOptions
from lcspec.llama import Model
from lcspec.planner import Planner


class CostKeeping:
    """Gives a planner measured costs, and keeps what it then sees.

    Args:
        planner: the planner.
        target: the target.
        options: how it is loaded.
        draft: the draft model; None without one.
        draft_options: how that is loaded.
        two_layouts: whether the target may be loaded in a second weight layout, too.
    """

    def __init__(
        self,
        planner: Planner,
        target: Model,
        options: LoadOptions,
        draft: Model | None,
        draft_options: LoadOptions,
        *,
        two_layouts: bool,
    ) -> None:
        self._planner = planner
        self._target, self._options = target, options
        self._draft, self._draft_options = draft, draft_options
        self._two_layouts = two_layouts

    def measure(
        self, seconds: float | None, again: bool = False, should_stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Measure what passes cost, of each model that was not measured on this machine before.

        Args:
            seconds: about how long, for each model; None for the default.
            again: measure in any case.
            should_stop: asked before each pass, whether to give up.

        Returns:
            Whether all is measured that can be.
        """
        layouts, model = self._planner.layouts, self._planner.model
        if again or not layouts.curves[0].is_measured:
            costs = measure_costs(self._target, self._options, seconds, should_stop)
            if costs is None:
                return False
            layouts.curves = costs, layouts.curves[1]
        if self._draft is not None and model is not None and (again or not model.costs.is_measured):
            costs = measure_costs(self._draft, self._draft_options, seconds, should_stop)
            if costs is None:
                return False
            model.costs = costs
        self.keep()
        return True

    def keep(self) -> None:
        """Remember what passes were seen to cost."""
        header, layouts, model = self._target.header, self._planner.layouts, self._planner.model
        if self._two_layouts:
            keep_layouts(header, self._options, layouts)
        both = (self._options, replace(self._options, repack=False))
        for costs, options in zip(layouts.curves, both, strict=True):
            if costs is not None and costs.has_scale:
                keep_costs(header, options, costs)
        if self._draft is not None and model is not None and model.costs.has_scale:
            keep_costs(self._draft.header, self._draft_options, model.costs)
