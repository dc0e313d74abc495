"""How often a draft is right, and what it costs, measured."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lcspec.costs import keep_costs, known_costs, measure_costs
from lcspec.draft_figures import KIND, Figures, acceptance_of, draft_options, figures, target_options
from lcspec.exactness import LoadOptions
from lcspec.hub import check_pair
from lcspec.layer_search import Sample, agreed_tokens
from lcspec.llama import Context, Header, Model
from lcspec.planner import CostCurve

DEPTHS = 4
"""Tokens of a draft of which it is measured how likely they are to be right."""


def measure_target(target: Header, threads: int) -> CostCurve:
    """Return what a target's passes cost, measured if they were not."""
    return _measured_costs(target, target_options(target, threads))


def measure_draft(target: Header, draft: Header, samples: Sequence[Sample], threads: int) -> Figures:
    """Measure what a draft model costs, if it was not measured, and how often it is right, and keep both.

    Args:
        target: the target.
        draft: the draft model.
        samples: what the target wrote.
        threads: threads that evaluate.

    Raises:
        PairError: the draft model has another vocabulary.
    """
    options = draft_options(threads)
    with Model(draft, repack=options.repack) as model:
        with Model(target, vocabulary_only=True) as vocabulary:
            check_pair(vocabulary, model)
        measure_target(target, threads)
        _measured_costs(draft, options, model)
        longest = max(len(sample.prompt) + len(sample.written) for sample in samples)
        with Context(model, longest + 1, threads=threads) as context:
            agreed = []
            for sample in samples:
                context.clear()
                context.prefill(sample.prompt[:-1])
                agreed.append(agreed_tokens(context, sample)[0])
    acceptance_of(target, draft).keep(KIND, list(acceptance_by_depth(agreed)))
    return figures(target, draft, threads)


def acceptance_by_depth(agreed: Sequence[NDArray[np.bool_]]) -> tuple[float, ...]:
    """Return how likely the tokens of a draft are right, each where those before it were.

    As long as a draft is right it goes on behind the very tokens of the target, so that what it says of these tells
    what its drafts would have been from every place on.

    Args:
        agreed: for each text, whether each of its tokens was the draft's likeliest behind those before it.
    """
    found = []
    for depth in range(1, DEPTHS + 1):
        before = sum(int(_runs(right, depth - 1)[: len(right) - depth + 1].sum()) for right in agreed)
        after = sum(int(_runs(right, depth).sum()) for right in agreed)
        if before == 0:
            break
        found.append(after / before)
    return tuple(found)


def _runs(right: NDArray[np.bool_], length: int) -> NDArray[np.bool_]:
    """Return for each place, from which there are so many tokens, whether they all were right."""
    places = max(len(right) - length + 1, 0)
    return np.array([bool(right[i : i + length].all()) for i in range(places)], dtype=bool)


def _measured_costs(header: Header, options: LoadOptions, model: Model | None = None) -> CostCurve:
    known = known_costs(header, options)
    if known.is_measured:
        return known
    if model is None:
        with Model(header, repack=options.repack) as loaded:
            return _measured_costs(header, options, loaded)
    costs = measure_costs(model, options) or CostCurve()
    keep_costs(header, options, costs)
    return costs
