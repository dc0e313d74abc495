"""The search for a draft's blocks from the target's file to the choice."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lcspec.exactness import LoadOptions
from lcspec.gguf_edit import target_digest
from lcspec.layer_search.calibration import LONGEST_SAMPLE, Texts
from lcspec.layer_search.frontier import Frontier, cut_costs, frontier_of
from lcspec.layer_search.scores import KeptScores, Score, Scorer
from lcspec.layer_search.search import Budget, Found, search
from lcspec.layer_search.switched import SwitchedBlocks
from lcspec.llama import Header
from lcspec.planner import CostCurve, expected_gain

_log = logging.getLogger(__name__)

_KEEP_EVERY = 8  # sets

DEPTHS = 4
"""Tokens of a draft of which it is told how likely they are to be right."""


@dataclass(frozen=True)
class Searched:
    """What a search found.

    Attributes:
        frontier: the best sets by number of blocks.
        chosen: the blocks that are kept.
        right: of each sample by which drafts are judged, whether drafts of these blocks would be right, as of
            `Scorer.right`.
        tried: sets that were scored.
    """

    frontier: Frontier
    chosen: tuple[int, ...]
    right: list[NDArray[np.bool_]]
    tried: int


def search_layers(
    target: Header,
    texts: Texts,
    *,
    options: LoadOptions,
    target_costs: CostCurve,
    budget: Budget,
    seed: int,
    count: int | None,
    folder: Path,
    tell: Callable[[float, Found], None],
) -> Searched:
    """Search for the blocks of a target that its draft should keep.

    Args:
        target: the target.
        texts: what it wrote.
        options: how it is loaded otherwise.
        target_costs: what its passes cost.
        budget: what the search may take.
        seed: of its exchanges.
        count: blocks to keep; None for the number that brings most.
        folder: where temporary copies of the model have room.
        tell: told how far it is, and what was found.

    Raises:
        ModelError: this model can't do without some of its blocks.
        FileError: there is no room.
    """
    costs = cut_costs(target, options, folder)
    samples, judged = texts.searched, texts.judged
    kept = KeptScores(target_digest(target), samples)
    if kept.scores:
        _log.info("going on with %d sets that were tried before", len(kept.scores))
    with ExitStack() as stack:
        blocks = stack.enter_context(SwitchedBlocks(target, LONGEST_SAMPLE, options.threads, folder))
        score = stack.enter_context(Scorer(blocks, samples, options.threads))
        wanted = None if count is None else blocks.n_layers - count

        def worth(skipped: int, score: Score) -> float:
            if wanted is not None:
                return -abs(skipped - wanted)
            return expected_gain(target_costs, costs.of(blocks.n_layers - skipped), [score.agreement]).speed

        def told(share: float, found: Found) -> None:
            if found.tried % _KEEP_EVERY == 0:
                kept.keep()
            tell(share, found)

        try:
            found = search(
                blocks.n_layers,
                score,
                known=kept.scores,
                budget=budget,
                seed=seed,
                wanted=wanted,
                worth=worth,
                tell=told,
            )
        finally:
            kept.keep()
        frontier = frontier_of(found, blocks.n_layers, costs, target_costs)
        chosen = frontier.best if wanted is None else frontier.of(blocks.n_layers - wanted)
        score.close()
        judge = stack.enter_context(Scorer(blocks, judged, options.threads))
        right = judge.right(set(range(blocks.n_layers)) - set(chosen.kept), DEPTHS)
    return Searched(frontier, chosen.kept, right, found.tried)
