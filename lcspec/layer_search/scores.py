"""How well a target without some of its blocks foretells what the whole target writes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lcspec.layer_search.calibration import Sample
from lcspec.layer_search.switched import SwitchedBlocks
from lcspec.limits import MAX_WIDTH
from lcspec.llama import Context, State, machine
from lcspec.measurements import Measurements

_KIND = "layer-search"


@dataclass(frozen=True)
class Score:
    """Of a set of blocks.

    Attributes:
        agreement: the share of the target's tokens that were the likeliest.
        likelihood: how likely they were on average: it tells sets of one agreement apart.
    """

    agreement: float
    likelihood: float

    @property
    def value(self) -> float:
        """What a search compares."""
        return (self.agreement + self.likelihood) / 2


class Scorer:
    """Scores sets of blocks by samples whose prompts all blocks have evaluated.

    Args:
        blocks: the target.
        samples: what it wrote.
    """

    def __init__(self, blocks: SwitchedBlocks, samples: Sequence[Sample]) -> None:
        self._blocks = blocks
        self._samples = samples
        self._states: list[State] = []
        blocks.skip(())
        for sample in samples:
            blocks.context.clear()
            blocks.context.prefill(sample.prompt[:-1])
            self._states.append(blocks.context.save())

    def __call__(self, skipped: Collection[int]) -> Score:
        """Return the score of the target without some blocks."""
        agreed, likelihoods = self.tokens(skipped)
        return score_of(agreed, likelihoods)

    def tokens(self, skipped: Collection[int]) -> tuple[list[NDArray[np.bool_]], list[NDArray[np.float64]]]:
        """Return for each sample's tokens whether they were the likeliest, and how likely they were."""
        self._blocks.skip(skipped)
        agreed, likelihoods = [], []
        for sample, state in zip(self._samples, self._states, strict=True):
            self._blocks.context.restore(state)
            right, likely = agreed_tokens(self._blocks.context, sample)
            agreed.append(right)
            likelihoods.append(likely)
        return agreed, likelihoods


def agreed_tokens(context: Context, sample: Sample) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Return for each token of a sample whether it was the likeliest behind those before it, and how likely.

    The context has evaluated all of the prompt but its last token.
    """
    written = np.array(sample.written)
    tokens = [sample.prompt[-1], *sample.written[:-1]]
    agreed, likelihoods = [], []
    for start in range(0, len(tokens), MAX_WIDTH):
        wanted = written[start : start + MAX_WIDTH]
        rows = context.evaluate(tokens[start : start + MAX_WIDTH])
        rows = rows[:, : context.model.n_vocab]
        best = rows.max(axis=1)
        inside = wanted < rows.shape[1]
        logits = np.where(inside, rows[np.arange(len(wanted)), np.where(inside, wanted, 0)], -np.inf)
        agreed.append(rows.argmax(axis=1) == wanted)
        likelihoods.append(np.exp(logits - best) / np.exp(rows - best[:, None]).sum(axis=1, dtype=np.float64))
    return np.concatenate(agreed), np.concatenate(likelihoods)


def score_of(agreed: Sequence[NDArray[np.bool_]], likelihoods: Sequence[NDArray[np.float64]]) -> Score:
    """Return the score of all tokens together."""
    return Score(float(np.concatenate(agreed).mean()), float(np.concatenate(likelihoods).mean()))


class KeptScores:
    """Scores of a search, kept so that it goes on where it was ended.

    Args:
        conditions: all that a score depends on.
    """

    def __init__(self, conditions: Mapping[str, Any]) -> None:
        self._measurements = Measurements({**conditions, **machine()})
        kept = self._measurements.recall(_KIND)
        self.scores: dict[frozenset[int], Score] = {}
        """By the blocks that were left out."""
        if isinstance(kept, dict):
            self.scores = {
                frozenset(map(int, filter(None, key.split(",")))): Score(*map(float, value))
                for key, value in kept.items()
            }

    def keep(self) -> None:
        """Remember them."""
        self._measurements.keep(
            _KIND,
            {
                ",".join(map(str, sorted(skipped))): [score.agreement, score.likelihood]
                for skipped, score in self.scores.items()
            },
        )
