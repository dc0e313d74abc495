"""How well the planner knows what is accepted: the calibration error of its priors, and where they come from.

    python -m bench.calibration RECORDINGS... [--fit-on RECORDINGS]... [--write]

Predicts what is accepted of the drafts for recordings as in a generation, with online updates, from the shipped priors
or from those that are fitted on other recordings. The calibration error is the mean distance between predicted chance
and accepted share over ten bins of predictions, weighted by their tokens (expected calibration error, Naeini et al.
2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning"). --write ships what was fitted; the priors of
the draft model only where the recordings have one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import lcspec.planner
from bench.recordings import Recording, read_recordings
from bench.replay import full_lookup
from lcspec.drafters import MODEL_KINDS, Draft, voted
from lcspec.drafters.model import kind_of
from lcspec.followed import n_alike
from lcspec.planner import AcceptanceTable, shipped_priors
from lcspec.planner.priors import LookupPriors, traits

_PRIORS = Path(lcspec.planner.__file__).parent / "priors.json"
_SMOOTHING = 4.0  # tokens of each kind that the draft model's mean counts as
_TOKENS = 2e6  # of each model
_PENALTY = 200.0  # on squared weights
_STEPS = 12
_DEEPEST_FIT = 128


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--fit-on", multiple=True, type=click.Path(exists=True, path_type=Path), help="Recordings to fit.")
@click.option("--write", is_flag=True, help="Ship what was fitted.")
def main(recordings: Sequence[Path], fit_on: Sequence[Path], write: bool) -> None:
    found, fitted = _read(recordings), _read(fit_on)
    if write and not fitted:
        raise click.UsageError("--write needs recordings to fit")
    weights = fit_lookup(fitted) if fitted else None
    chances = fit_model(fitted) if any(one.draft_tokens for one in fitted) else None
    priors = {
        "lookup": shipped_priors()["lookup"] if weights is None else LookupPriors(weights),
        "model": chances or shipped_priors()["model"],
    }
    for drafter, chance in priors.items():
        for name, table in (("priors alone", _Fixed), ("with updates", AcceptanceTable)):
            error, tokens = calibration_error(found, drafter, table(chance))
            if tokens:
                print(f"{drafter:8}{name:14} calibration error {error:.4f} over {tokens:,} draft tokens")
    if write:
        shipped = json.loads(_PRIORS.read_text(encoding="utf-8"))
        shipped["lookup"] = {"fitted_on": _described(fitted), "weights": weights}
        if chances is not None:
            told = [recording for recording in fitted if recording.draft_tokens]
            shipped["model"] = {"fitted_on": _described(told), "chances": chances}
        _PRIORS.write_text(json.dumps(shipped, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {_PRIORS}")


def _read(paths: Sequence[Path]) -> list[Recording]:
    return [recording for path in paths for recording in read_recordings(path)]


def _described(recordings: Sequence[Recording]) -> dict[str, Any]:
    return {"models": sorted({recording.model for recording in recordings}), "recordings": len(recordings)}


def drafts(recording: Recording, drafter: str, every: bool) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the kinds of each draft and how many of its tokens were right; one behind the other unless `every`."""
    text = recording.text
    lookup = full_lookup(recording)
    lookup.begin(recording.prompt, lambda *_: (0, None))
    position = 0
    while position < len(text):
        rest = text[position : position + _DEEPEST_FIT]
        offers = lookup.offers(len(rest))
        if drafter == "model":
            probabilities = recording.draft_probabilities[position : position + 4]
            kinds = tuple(kind_of(probability, depth) for depth, probability in enumerate(probabilities))
            draft = Draft(recording.draft_tokens[position : position + 4], drafter, kinds=kinds)
            offers = [voted(draft, offers)] if kinds else []
        longest = 0
        for i, offer in enumerate(offers):
            compared = enumerate(zip(offer.tokens, rest, strict=False))
            right = next((i for i, (one, other) in compared if one != other), min(len(offer.tokens), len(rest)))
            told = max((n_alike(offer, other) for other in offers[:i]), default=0)
            if right >= told:
                yield offer.kinds[told:], right - told
            longest = max(longest, right)
        step = 1 if every else longest + 1
        lookup.commit(text[position : position + step])
        position += step


def fit_model(recordings: Sequence[Recording]) -> dict[str, float]:
    """Return the chance of each kind of the draft model's tokens, every category of work weighing the same."""
    seen, accepted = _counts(recordings, "model")
    share = sum(accepted.values()) / sum(seen.values())
    return {
        kind: round(min(max((accepted[kind] + _SMOOTHING * share) / (seen[kind] + _SMOOTHING), 0.01), 0.999), 4)
        for kind in sorted(MODEL_KINDS)
    }


def fit_lookup(recordings: Sequence[Recording]) -> dict[str, float]:
    """Return the weights of what is known of lookup's tokens, every model and category weighing the same."""
    totals: tuple[dict[str, float], dict[str, float]] = defaultdict(float), defaultdict(float)
    for model in {recording.model for recording in recordings}:
        counts = _counts([one for one in recordings if one.model == model], "lookup")
        scale = _TOKENS / max(sum(counts[0].values()), 1)
        for total, found in zip(totals, counts, strict=True):
            for kind, n in found.items():
                total[kind] += scale * n
    return fit_weights(*totals)


def _counts(recordings: Sequence[Recording], drafter: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return how many tokens of each kind were seen and accepted; all categories weigh the same, but for small ones."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    accepted: dict[str, Counter[str]] = defaultdict(Counter)
    for recording in recordings:
        for row, right in drafts(recording, drafter, every=True):
            seen[recording.category].update(row[: right + 1])
            accepted[recording.category].update(row[:right])
    largest = max((counts.total() for counts in seen.values()), default=1)
    weights = {category: largest / max(counts.total(), largest / 20) for category, counts in seen.items()}
    return _weighted(seen, weights), _weighted(accepted, weights)


def _weighted(counts: dict[str, Counter[str]], weights: dict[str, float]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for category, found in counts.items():
        for kind, n in found.items():
            total[kind] += weights[category] * n
    return total


def fit_weights(seen: Mapping[str, float], accepted: Mapping[str, float]) -> dict[str, float]:
    """Fit `LookupPriors`: logistic regression with a penalty on squared weights, by Newton's method.

    Args:
        seen: how many tokens there were of each kind,
        accepted: and how many of them were accepted.
    """
    kinds = sorted(kind for kind, n in seen.items() if n)
    columns: dict[str, int] = {}
    rows = [[columns.setdefault(trait, len(columns)) for trait in traits(kind)] for kind in kinds]
    has = np.zeros((len(kinds), len(columns)))
    for row, of_row in zip(has, rows, strict=True):
        row[of_row] = 1
    n = np.array([seen[kind] for kind in kinds], dtype=np.float64)
    right = np.array([accepted.get(kind, 0) for kind in kinds], dtype=np.float64)
    penalty = np.full(len(columns), _PENALTY)
    penalty[columns[""]] = 0
    weights = np.zeros(len(columns))
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(-has @ weights))
        gradient = has.T @ (right - n * chances) - penalty * weights
        curvature = (has.T * (n * chances * (1 - chances))) @ has + np.diag(penalty)
        weights += np.linalg.solve(curvature, gradient)
    return {trait: round(float(weights[column]), 3) for trait, column in columns.items()}


class _Fixed(AcceptanceTable):
    """Learns nothing."""

    def record(self, kinds: Sequence[str], accepted: int) -> None:
        """Learn nothing."""


def calibration_error(recordings: Sequence[Recording], drafter: str, table: AcceptanceTable) -> tuple[float, int]:
    """Return the expected calibration error of a table over drafts made one behind the other, and their tokens."""
    predicted, right_ones, n = [0.0] * 10, [0] * 10, [0] * 10
    for recording in recordings:
        table.begin()
        for kinds, right in drafts(recording, drafter, every=False):
            for i, kind in enumerate(kinds[: right + 1]):
                chance = table.chance(kind)
                bin_ = min(int(chance * 10), 9)
                predicted[bin_] += chance
                right_ones[bin_] += i < right
                n[bin_] += 1
            table.record(kinds, right)
    distances = [abs(p - r) for p, r in zip(predicted, right_ones, strict=True)]
    return (sum(distances) / sum(n) if sum(n) else 0.0), sum(n)


if __name__ == "__main__":
    main()
