"""The search for a draft's blocks from the target's file to the choice."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lcspec.engine import SpeculativeLM
from lcspec.exactness import LoadOptions
from lcspec.gguf_edit import target_digest
from lcspec.layer_search.calibration import Sample, own_prompts, prompts_of_text, text_digest, written_samples
from lcspec.layer_search.frontier import Frontier, cut_costs, frontier_of
from lcspec.layer_search.scores import KeptScores, Score, Scorer
from lcspec.layer_search.search import Budget, Found, search
from lcspec.layer_search.switched import SwitchedBlocks
from lcspec.llama import Header
from lcspec.planner import CostCurve, expected_gain

_log = logging.getLogger(__name__)

_LONGEST_PROMPT = 192  # tokens
_SEARCHED, _TOKENS = 8, 48
"""Samples that a search goes by, and the tokens of each."""
_HELD_OUT, _HELD_OUT_TOKENS = 6, 64
"""Samples by which what it chose is judged."""
_KEEP_EVERY = 8  # sets


@dataclass(frozen=True)
class Texts:
    """What a target wrote: samples to search by, and others to judge by."""

    searched: tuple[Sample, ...]
    held_out: tuple[Sample, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of what is searched by."""
        return text_digest(self.searched)


def texts_of(target: Header, texts: Sequence[str], threads: int) -> Texts:
    """Let a target write behind prompts of given texts, or built-in ones."""
    n_ctx = _LONGEST_PROMPT + max(_TOKENS, _HELD_OUT_TOKENS)
    with SpeculativeLM(target.files[0], drafter="none", n_ctx=n_ctx, threads=threads, measure=False) as lm:
        prompts: Iterator[list[int]] = prompts_of_text(lm, texts) if texts else own_prompts(lm)
        by = list(prompts)
        # of two neighbours one for each, so that both have prompts of all kinds
        searched = written_samples(lm, iter(by[::2]), _SEARCHED, _TOKENS, _LONGEST_PROMPT)
        held_out = written_samples(lm, iter(by[1::2] or by), _HELD_OUT, _HELD_OUT_TOKENS, _LONGEST_PROMPT)
    return Texts(tuple(searched), tuple(held_out))


@dataclass(frozen=True)
class Searched:
    """What a search found.

    Attributes:
        frontier: the best sets by number of blocks.
        chosen: the blocks that are kept.
        agreed: of each held-out sample, whether each token was the chosen blocks' likeliest, behind a prompt that all
            blocks evaluated.
        tried: sets that were scored.
    """

    frontier: Frontier
    chosen: tuple[int, ...]
    agreed: list[NDArray[np.bool_]]
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
    costs = cut_costs(target, options.threads, options.repack, folder)
    kept = KeptScores({"target": target_digest(target), "samples": texts.digest})
    if kept.scores:
        _log.info("going on with %d sets that were tried before", len(kept.scores))
    n_ctx = _LONGEST_PROMPT + max(_TOKENS, _HELD_OUT_TOKENS)
    with SwitchedBlocks(target, n_ctx, options.threads, folder) as blocks:
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
                Scorer(blocks, texts.searched),
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
        agreed, _ = Scorer(blocks, texts.held_out).tokens(set(range(blocks.n_layers)) - set(chosen.kept))
    return Searched(frontier, chosen.kept, agreed, found.tried)
