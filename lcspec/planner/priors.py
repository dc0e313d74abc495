"""How often draft tokens of each kind are accepted, as recordings of real models have it."""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import combinations
from typing import TypeAlias

Priors: TypeAlias = Mapping[str, Mapping[str, float]]
"""By drafter and kind of token, the chance that it is accepted when those before it were."""

_LEAST, _MOST = 0.01, 0.999


class LookupPriors(dict[str, float]):
    """The chance of each kind of lookup token, by logistic regression.

    A kind is named by what is known of its tokens, a word for each thing. Each word has a weight, and each pair of
    words; so a kind that was hardly ever seen is estimated by others that have much in common with it.

    Args:
        weights: of words and pairs, in log-odds; and of the empty word, which all kinds have.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__()
        self._weights = weights

    def __missing__(self, kind: str) -> float:
        log_odds = sum(self._weights.get(trait, 0.0) for trait in traits(kind))
        chance = self[kind] = min(max(1 / (1 + math.exp(-log_odds)), _LEAST), _MOST)
        return chance


def traits(kind: str) -> Iterator[str]:
    """Yield what has a weight: nothing, each word of a kind, and each pair of them.

    What comes from a store is told by the words of what comes from the text.
    """
    words = kind.replace("stored", "suffix").split()
    yield ""
    yield from words
    yield from map(" ".join, combinations(words, 2))


@cache
def shipped_priors() -> Priors:
    """Return what `python -m bench.calibration ... --fit-on ... --write` fitted."""
    shipped = json.loads(resources.files("lcspec.planner").joinpath("priors.json").read_text(encoding="utf-8"))
    return {"lookup": LookupPriors(shipped["lookup"]["weights"]), "model": shipped["model"]["chances"]}
