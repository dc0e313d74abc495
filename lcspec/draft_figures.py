"""How often a draft is right and what it costs, measured on this machine, and what that is expected to bring."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lcspec.costs import known_costs
from lcspec.drafters import SharedPrompt
from lcspec.errors import ModelError
from lcspec.exactness import LoadOptions
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.hub import DerivedDraft, derived_drafts, local_models
from lcspec.llama import Header, machine, read_header, usable_physical_cores
from lcspec.measurements import Measurements
from lcspec.planner import FLATTER, MACHINES, CostCurve, Gain, curve_of, expected_gain, reading_cost
from lcspec.tuning import tuned_repack, tuned_threads

KIND = "draft-acceptance"
"""Of what is kept there."""

_COST = "draft-cost"


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


def target_options(target: Header, threads: int) -> LoadOptions:
    """Return how an engine loads a target that need not be exact."""
    return LoadOptions(repack=tuned_repack(target), batch_invariant=False, threads=threads)


def draft_options(threads: int) -> LoadOptions:
    """Return how an engine loads a draft model."""
    return LoadOptions(repack=True, batch_invariant=False, threads=threads)


def figures(target: Header, draft: Header, threads: int) -> Figures:
    """Return what is known of a draft model, evaluated with so many threads."""
    acceptance = _recalled(target, draft)
    cost = acceptance_of(target, draft).recall(_COST, threads=threads, **machine())
    known = cost if isinstance(cost, float) and cost > 0 else None
    own = known_costs(draft, draft_options(threads)) if SharedPrompt.between(target, draft) is None else None
    return figures_of(acceptance, known_costs(target, target_options(target, threads)), known, own)


def keep_cost(target: Header, draft: Header, threads: int, cost: float) -> None:
    """Remember what a token of a draft model costs, in the target's passes over one: both were timed in turn."""
    acceptance_of(target, draft).keep(_COST, cost, threads=threads, **machine())


def figures_of_head(target: Header, provenance: Provenance, threads: int) -> Figures:
    """Return what a head says of itself, in its options 'acceptance' and 'cost'."""
    cost = provenance.options.get("cost")
    return figures_of(
        _acceptance(provenance.options.get("acceptance")),
        known_costs(target, target_options(target, threads)),
        float(cost) if isinstance(cost, (int, float)) and cost > 0 else None,
    )


def figures_of(
    acceptance: Sequence[float], costs: CostCurve, cost: float | None, reader: CostCurve | None = None
) -> Figures:
    """Return what is to be expected of a draft, by how often it is right and what its tokens cost.

    Args:
        acceptance: by depth; empty where it is not known.
        costs: of the target.
        cost: of a draft token, in the target's passes over one; None where it is not known.
        reader: what passes of a draft model cost that has to evaluate prompts; None for any other.
    """
    if cost is None or not acceptance:
        return Figures(tuple(acceptance), cost, None, {})
    reading = 0.0 if reader is None else reading_cost(reader, reader.seconds(1) / cost)
    here = expected_gain(costs, cost, acceptance, reading) if costs.is_measured else None
    elsewhere = {}
    for name in FLATTER:
        curve = curve_of(MACHINES[name][0])
        there = 0.0 if reader is None else cost * reading_cost(curve, curve.seconds(1))
        elsewhere[name] = expected_gain(curve, cost, acceptance, there)
    return Figures(tuple(acceptance), cost, here, elsewhere)


def best_draft(target: Header, threads: int) -> tuple[Path | None, str]:
    """Return the draft that is expected to bring most here, of those that were measured, and say why in a line."""
    known = [(name, path, gain) for name, path, gain in _measured(target, threads)]
    paying = [one for one in known if one[2].pays]
    if not known:
        return None, "no draft was measured: `lcspec draft list --measure` does, `lcspec draft make` makes one"
    if not paying:
        name, _, gain = max(known, key=lambda one: one[2].speed)
        return None, f"no draft pays here: the best, {name}, would give {gain.speed:.2f} times plain decoding"
    name, path, gain = max(paying, key=lambda one: one[2].speed)
    return path, f"{name} drafts: {gain.speed:.2f} times plain decoding are expected of it"


def _measured(target: Header, threads: int) -> list[tuple[str, Path, Gain]]:
    """Return the drafts on this machine that were measured with a target: names, files and expected gains."""
    found = []
    for name, path, derived in drafts_here(target):
        gain = None
        with suppress(ModelError):  # of a damaged file
            if derived is not None and derived.is_head:
                gain = figures_of_head(target, derived.provenance, threads).here
            else:
                gain = figures(target, read_header(path), threads).here
        if gain is not None:
            found.append((name, path, gain))
    return found


def drafts_here(target: Header) -> list[tuple[str, Path, DerivedDraft | None]]:
    """Return the drafts on this machine that a target may have been measured with: names, files, what derived ones say.

    A model that was made from a smaller one drafts for what that drafts for, too; a head for its own target only.
    """
    digest = target_digest(target)
    derived = [
        (draft.name, draft.path, draft)
        for draft in derived_drafts()
        if draft.provenance.target == digest or not draft.is_head
    ]
    smaller = [
        (model.name, model.files[0], None)
        for model in local_models()
        if model.is_complete and model.size < target.file_size
    ]
    return [*derived, *smaller]


def acceptance_of(target: Header, draft: Header) -> Measurements:
    """Return where it is kept how often a draft is right."""
    return Measurements({"target": target_digest(target), "draft": draft.digest})


def _recalled(target: Header, draft: Header) -> tuple[float, ...]:
    return _acceptance(acceptance_of(target, draft).recall(KIND))


def _acceptance(value: Any) -> tuple[float, ...]:
    is_known = isinstance(value, list) and all(isinstance(one, (int, float)) and 0 <= one <= 1 for one in value)
    return tuple(map(float, value)) if is_known else ()
