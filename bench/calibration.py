"""How well the planner knows what is accepted: fits its priors on recordings, and reports the calibration error.

    python -m bench.calibration RECORDINGS... [--write]

Every second recording is fitted, the others are predicted, as in a generation: with online updates. The calibration
error is the mean distance between predicted chance and accepted share over ten bins of predictions, weighted by their
tokens (expected calibration error, Naeini et al. 2015, "Obtaining Well Calibrated Probabilities Using Bayesian
Binning"). --write fits all recordings and ships the result;
the priors of the draft model only where recordings have one.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import click

import lcspec.planner
from bench.recordings import Recording, read_recordings
from bench.replay import full_lookup
from lcspec.drafters import LOOKUP_KINDS, MODEL_KINDS, Draft, voted
from lcspec.drafters.model import kind_of
from lcspec.planner import AcceptanceTable, Priors

_PRIORS = Path(lcspec.planner.__file__).parent / "priors.json"
_SMOOTHING = 4.0  # tokens that the mean of all kinds counts as in each
_DEEPEST_FIT = 64
_STORED = "stored"


@click.command()
@click.argument("recordings", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--write", is_flag=True, help="Ship priors that are fitted on all recordings.")
def main(recordings: Sequence[Path], write: bool) -> None:
    found = [recording for path in recordings for recording in read_recordings(path)]
    fitted, held_out = found[::2], found[1::2]
    priors = fit(fitted)
    for drafter in priors:
        for name, table in (("priors alone", None), ("with updates", AcceptanceTable(priors[drafter]))):
            error, tokens = calibration_error(held_out, drafter, table or _Fixed(priors[drafter]))
            if tokens:
                print(f"{drafter:8}{name:14} calibration error {error:.4f} over {tokens:,} draft tokens")
    if write:
        _write(found)
        print(f"wrote {_PRIORS}")


def _write(recordings: Sequence[Recording]) -> None:
    """Ship what is fitted on recordings, and leave what they tell nothing of as it is."""
    shipped = json.loads(_PRIORS.read_text(encoding="utf-8"))
    priors = fit(recordings)
    for drafter, told in (("lookup", recordings), ("model", [one for one in recordings if one.draft_tokens])):
        if told:
            models = sorted({recording.model for recording in told})
            shipped["fitted_on"][drafter] = {"models": models, "recordings": len(told)}
            shipped["priors"][drafter] = priors[drafter]
    _PRIORS.write_text(json.dumps(shipped, indent=1) + "\n", encoding="utf-8")


def drafts(recording: Recording, drafter: str, every: bool) -> Iterator[tuple[tuple[Hashable, ...], int]]:
    """Yield the kinds of each draft and how many of its tokens were right; one behind the other unless `every`."""
    text = recording.text
    lookup = full_lookup()
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
        for offer in offers:
            compared = enumerate(zip(offer.tokens, rest, strict=False))
            right = next((i for i, (one, other) in compared if one != other), min(len(offer.tokens), len(rest)))
            yield offer.kinds, right
            longest = max(longest, right)
        step = 1 if every else longest + 1
        lookup.commit(text[position : position + step])
        position += step


def fit(recordings: Sequence[Recording]) -> Priors:
    """Return the share of accepted tokens by kind, every category of work weighing the same."""
    kinds = {
        "lookup": sorted(LOOKUP_KINDS),
        "model": sorted(MODEL_KINDS),
    }
    priors: Priors = {}
    for drafter, names in kinds.items():
        accepted: dict[str, Counter[Hashable]] = defaultdict(Counter)
        seen: dict[str, Counter[Hashable]] = defaultdict(Counter)
        for recording in recordings:
            for row, right in drafts(recording, drafter, every=True):
                seen[recording.category].update(row[: right + 1])
                accepted[recording.category].update(row[:right])
        largest = max((counts.total() for counts in seen.values()), default=1)
        weights = {category: largest / max(counts.total(), largest / 20) for category, counts in seen.items()}
        priors[drafter] = {}
        for kind in names:
            n = sum(weights[category] * counts[kind] for category, counts in seen.items())
            right_n = sum(weights[category] * counts[kind] for category, counts in accepted.items())
            alike = _alike(kind, accepted, seen, weights)
            chance = (right_n + _SMOOTHING * alike) / (n + _SMOOTHING)
            priors[drafter][kind] = round(min(max(chance, 0.01), 0.999), 4)
    for kind in kinds["lookup"]:  # no recording has a store: its drafts begin as lookup's do
        if kind.startswith(_STORED):
            priors["lookup"][kind] = priors["lookup"][kind.removeprefix(_STORED)]
    return priors


def _alike(
    kind: str, accepted: dict[str, Counter[Hashable]], seen: dict[str, Counter[Hashable]], weights: dict[str, float]
) -> float:
    """Return the share of kinds that differ in the match or the probability only."""
    rest = kind.split(" ", 1)[1]
    both = [
        (weights[category] * accepted[category][other], weights[category] * count)
        for category, counts in seen.items()
        for other, count in counts.items()
        if str(other).split(" ", 1)[1] == rest
    ]
    right, n = sum(a for a, _ in both), sum(b for _, b in both)
    return (right + 0.7) / (n + 1)


class _Fixed(AcceptanceTable):
    """Learns nothing."""

    def record(self, kinds: Sequence[Hashable], accepted: int) -> None:
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
