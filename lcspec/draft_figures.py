"""How often a draft is right and what it costs, measured on this machine, and what that is expected to bring."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lcspec.costs import keep_costs, known_costs, measure_costs
from lcspec.exactness import LoadOptions
from lcspec.gguf_edit import target_digest
from lcspec.hub import DerivedDraft, derived_drafts, local_models
from lcspec.layer_search import Sample, agreed_tokens
from lcspec.llama import Context, Header, Model, read_header, usable_physical_cores
from lcspec.measurements import Measurements
from lcspec.planner import FLATTER, MACHINES, CostCurve, Gain, curve_of, expected_gain
from lcspec.tuning import tuned_repack, tuned_threads

DEPTHS = 4
"""Tokens of a draft of which it is told how likely they are to be right."""

_KIND = "draft-acceptance"


@dataclass(frozen=True)
class Figures:
    """What is known of a draft of a target.

    Attributes:
        acceptance: how likely the first, second, ... token of a draft is to be the target's likeliest, where those
            before it were; empty where that was not measured.
        cost: of a draft token, in the target's passes over one; None where that was not measured.
        here: what drafts are expected to bring on this machine; None where that is not known.
        elsewhere: the same by the name of a machine with a flatter cost curve, as far as it is known.
    """

    acceptance: tuple[float, ...]
    cost: float | None
    here: Gain | None
    elsewhere: dict[str, Gain]


def threads_of(target: Header) -> int:
    """Return the threads with which an engine evaluates if it is not told."""
    return tuned_threads(target) or usable_physical_cores()


def target_options(target: Header) -> LoadOptions:
    """Return how an engine loads a target if it is not told."""
    return LoadOptions(repack=tuned_repack(target), batch_invariant=False, threads=threads_of(target))


def draft_options(target: Header) -> LoadOptions:
    """Return how an engine loads a draft model."""
    return LoadOptions(repack=True, batch_invariant=False, threads=threads_of(target))


def figures(target: Header, draft: Header) -> Figures:
    """Return what is known of a draft model."""
    acceptance = _recalled(target, draft)
    costs, own = known_costs(target, target_options(target)), known_costs(draft, draft_options(target))
    return figures_of(acceptance, costs, own.seconds(1) / costs.seconds(1) if _both_measured(costs, own) else None)


def figures_of(acceptance: Sequence[float], costs: CostCurve, cost: float | None) -> Figures:
    """Return what is to be expected of a draft, by how often it is right and what its tokens cost.

    Args:
        acceptance: by depth; empty where it is not known.
        costs: of the target.
        cost: of a draft token, in the target's passes over one; None where it is not known.
    """
    if cost is None or not acceptance:
        return Figures(tuple(acceptance), cost, None, {})
    here = expected_gain(costs, cost, acceptance) if costs.is_measured else None
    elsewhere = {name: expected_gain(curve_of(MACHINES[name][0]), cost, acceptance) for name in FLATTER}
    return Figures(tuple(acceptance), cost, here, elsewhere)


def measure_target(target: Header) -> CostCurve:
    """Return what a target's passes cost, measured if they were not."""
    return _measured_costs(target, target_options(target))


def measure_draft(target: Header, draft: Header, samples: Sequence[Sample]) -> Figures:
    """Measure what a draft model costs, if it was not measured, and how often it is right, and keep both.

    Args:
        target: the target.
        draft: the draft model.
        samples: what the target wrote.
    """
    measure_target(target)
    options = draft_options(target)
    with Model(draft, repack=options.repack) as model:
        _measured_costs(draft, options, model)
        longest = max(len(sample.prompt) + len(sample.written) for sample in samples)
        with Context(model, longest + 1, threads=options.threads) as context:
            agreed = []
            for sample in samples:
                context.clear()
                context.prefill(sample.prompt[:-1])
                agreed.append(agreed_tokens(context, sample)[0])
    _acceptance_of(target, draft).keep(_KIND, list(acceptance_by_depth(agreed)))
    return figures(target, draft)


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


def best_draft(target: Header) -> tuple[Path | None, str]:
    """Return the draft that is expected to bring most here, of those that were measured, and say why in a line."""
    known = [(name, path, gain) for name, path, gain in _measured(target)]
    paying = [one for one in known if one[2].pays]
    if not known:
        return None, "no draft was measured: `lcspec draft list --measure` does, `lcspec draft make` makes one"
    if not paying:
        name, _, gain = max(known, key=lambda one: one[2].speed)
        return None, f"no draft pays here: the best, {name}, would give {gain.speed:.2f} times plain decoding"
    name, path, gain = max(paying, key=lambda one: one[2].speed)
    return path, f"{name} drafts: {gain.speed:.2f} times plain decoding are expected of it"


def _measured(target: Header) -> list[tuple[str, Path, Gain]]:
    """Return the drafts on this machine that were measured with a target: names, files and expected gains."""
    found = []
    for name, path, derived in drafts_here(target):
        if derived is not None and derived.is_head:
            continue
        gain = figures(target, read_header(path)).here
        if gain is not None:
            found.append((name, path, gain))
    return found


def drafts_here(target: Header) -> list[tuple[str, Path, DerivedDraft | None]]:
    """Return the models on this machine that may draft for a target: names, files, and what derived ones say."""
    derived = [(draft.name, draft.path, draft) for draft in derived_drafts(target_digest(target))]
    smaller = [
        (model.name, model.files[0], None)
        for model in local_models()
        if model.is_complete and model.size < target.file_size
    ]
    return [*derived, *smaller]


def _both_measured(*curves: CostCurve) -> bool:
    return all(curve.is_measured for curve in curves)


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


def _acceptance_of(target: Header, draft: Header) -> Measurements:
    return Measurements({"target": target_digest(target), "draft": draft.digest})


def _recalled(target: Header, draft: Header) -> tuple[float, ...]:
    kept = _acceptance_of(target, draft).recall(_KIND)
    if not isinstance(kept, list) or not all(isinstance(one, float) and 0 <= one <= 1 for one in kept):
        return ()
    return tuple(kept)
