"""How often a draft is right, and what it costs, measured."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from lcspec.costs import cost_ratio, keep_costs, known_costs, measure_costs
from lcspec.draft_figures import KIND, Figures, acceptance_of, draft_options, figures, keep_cost, target_options
from lcspec.errors import EvaluationError
from lcspec.exactness import LoadOptions
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.hub import check_pair
from lcspec.layer_search import DEPTHS, Sample, agreed_tokens
from lcspec.llama import Context, Header, Model, take_blocks
from lcspec.planner import CostCurve


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
        with Model(target, repack=target_options(target, threads).repack) as whole:
            keep_cost(target, draft, threads, cost_ratio(whole, model, threads))
        right = _right_as_shared(target, model, samples, threads) or _right_alone(model, samples, threads)
    acceptance_of(target, draft).keep(KIND, list(acceptance_by_depth(right)))
    return figures(target, draft, threads)


def acceptance_by_depth(right: Sequence[NDArray[np.bool_]]) -> tuple[float, ...]:
    """Return how likely the tokens of a draft are right, each where those before it were.

    Args:
        right: for each text, whether the tokens of drafts from its places are right behind right ones, shape
            (places, depth).
    """
    drafts = np.concatenate(right)
    found = []
    for depth in range(drafts.shape[1]):
        reached = drafts[drafts[:, :depth].all(axis=1), depth]
        if not len(reached):
            break
        found.append(float(reached.mean()))
    return tuple(found)


def _right_alone(draft: Model, samples: Sequence[Sample], threads: int) -> list[NDArray[np.bool_]]:
    """Judge a draft model that evaluates all of a text itself.

    As long as a draft is right it goes on behind the very tokens of the target, so that one evaluation of these tells
    what drafts would have been from every place on.
    """
    found = []
    with Context(draft, _longest(samples), threads=threads) as context:
        for sample in samples:
            context.clear()
            context.prefill(sample.prompt[:-1])
            agreed = agreed_tokens(context, sample)
            if len(agreed) >= DEPTHS:
                found.append(np.lib.stride_tricks.sliding_window_view(agreed, DEPTHS))
    return found or [np.zeros((0, DEPTHS), dtype=bool)]


def _right_as_shared(
    target: Header, draft: Model, samples: Sequence[Sample], threads: int
) -> list[NDArray[np.bool_]] | None:
    """Judge a draft model that is made of the target's blocks: it has the target's keys and values of what is written.

    Returns:
        None where it is not made of them, or these can't be moved.
    """
    provenance, n_blocks = Provenance.of(draft.header), target.of_architecture("block_count")
    if provenance is None or provenance.target != target_digest(target) or not isinstance(n_blocks, int):
        return None
    blocks = provenance.layers or tuple(range(n_blocks))
    found = []
    with (
        Model(target, repack=target_options(target, threads).repack) as model,
        Context(model, _longest(samples), threads=threads) as whole,
        Context(draft, _longest(samples), threads=threads) as context,
        suppress(EvaluationError),
    ):
        for sample in samples:
            text = [*sample.prompt, *sample.written]
            whole.clear()
            whole.prefill(text)
            cells = take_blocks(whole.save(), n_blocks, blocks)
            right = []
            for place in range(len(sample.prompt) - 1, len(text) - DEPTHS):
                context.restore(cells)
                context.truncate(place)
                logits = context.evaluate(text[place : place + DEPTHS])
                right.append(logits.argmax(axis=1) == text[place + 1 : place + 1 + DEPTHS])
            found.append(np.array(right, dtype=bool).reshape(-1, DEPTHS))
        return found
    return None


def _longest(samples: Sequence[Sample]) -> int:
    return max(len(sample.prompt) + len(sample.written) for sample in samples) + DEPTHS


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
