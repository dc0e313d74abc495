"""How well a target without some of its blocks foretells what the whole target writes."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from lcspec.layer_search.branches import MOST_BRANCHES, BranchedText
from lcspec.layer_search.calibration import Sample, text_digest
from lcspec.layer_search.switched import SwitchedBlocks
from lcspec.limits import MAX_WIDTH
from lcspec.llama import Context, machine
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
    """Scores sets of blocks by what the target wrote, as drafts of these blocks run.

    They are given the target's keys and values of all that stands before a draft, so what is evaluated without some of
    the blocks is only the draft's own tokens, from each place of a text on. Usable as a context manager.

    Args:
        blocks: the target.
        samples: what it wrote.
        threads: threads that evaluate.
    """

    def __init__(self, blocks: SwitchedBlocks, samples: Sequence[Sample], threads: int) -> None:
        self._blocks = blocks
        self._samples = samples
        longest = max(len(sample.prompt) + len(sample.written) for sample in samples)
        self._text = BranchedText(blocks.model, longest, threads)
        blocks.skip(())
        self._cells = [self._text.read([*sample.prompt, *sample.written]) for sample in samples]

    def __call__(self, skipped: Collection[int]) -> Score:
        """Return the score of the target without some blocks."""
        right, likely = zip(*self._judged(skipped, 1), strict=True)
        return Score(float(np.concatenate(right).mean()), float(np.concatenate(likely).mean()))

    def right(self, skipped: Collection[int], depth: int) -> list[NDArray[np.bool_]]:
        """Return for each sample whether drafts from its places would be right, shape (places, depth).

        A token of a draft is judged behind right ones.
        """
        return [right for right, _ in self._judged(skipped, depth)]

    def close(self) -> None:
        """Free what it evaluates with."""
        self._text.close()

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _judged(self, skipped: Collection[int], depth: int) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.float64]]]:
        self._blocks.skip(skipped)
        for sample, cells in zip(self._samples, self._cells, strict=True):
            self._text.recall(cells)
            text = [*sample.prompt, *sample.written]
            places = range(len(sample.prompt) - 1, len(text) - depth)
            at_once = min(MOST_BRANCHES, MAX_WIDTH // depth)
            found = []
            for first in range(0, len(places), at_once):
                some = places[first : first + at_once]
                logits = self._text.branch(some, [text[place : place + depth] for place in some])
                wanted = np.array([text[place + 1 : place + 1 + depth] for place in some])
                found.append(_judge(logits, wanted))
            yield np.concatenate([right for right, _ in found]), np.concatenate([likely for _, likely in found])


def agreed_tokens(context: Context, sample: Sample) -> NDArray[np.bool_]:
    """Return for each token of a sample whether it was the likeliest behind those before it.

    The context has evaluated all of the prompt but its last token, and evaluates the others itself.
    """
    tokens = [sample.prompt[-1], *sample.written[:-1]]
    likeliest = [
        context.evaluate(tokens[start : start + MAX_WIDTH]).argmax(axis=1) for start in range(0, len(tokens), MAX_WIDTH)
    ]
    right: NDArray[np.bool_] = np.concatenate(likeliest) == np.array(sample.written)
    return right


def _judge(logits: NDArray[np.float32], wanted: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Tell whether tokens are the likeliest, and how likely they are; logits have one dimension more."""
    best = logits.max(axis=-1)
    of_wanted = np.take_along_axis(logits, wanted[..., None], axis=-1)[..., 0]
    likely = np.exp(of_wanted - best) / np.exp(logits - best[..., None]).sum(axis=-1, dtype=np.float64)
    return logits.argmax(axis=-1) == wanted, likely


class KeptScores:
    """Scores of a search, kept so that it goes on where it was ended.

    Args:
        target: the target's digest.
        samples: what is searched by.
    """

    def __init__(self, target: str, samples: Sequence[Sample]) -> None:
        self._measurements = Measurements({"target": target, "samples": text_digest(samples), **machine()})
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
