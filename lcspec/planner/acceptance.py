"""How likely draft tokens are to be accepted, by what their drafter knows of them."""

from collections.abc import Hashable, Mapping, Sequence

_PRIOR_WEIGHT = 10.0  # draft tokens that a prior counts as
_CARRIED_WEIGHT = 30.0  # draft tokens that all earlier requests count as, at the most


class AcceptanceTable:
    """Estimates the chance that a draft token is accepted when those before it were.

    Tokens of which the drafter knows the same are of one kind and share an estimate: the mean of a Beta
    distribution that begins at a prior and counts what happened since. What earlier requests taught weighs no more
    than a few drafts in the next one.

    Args:
        priors: the chance of each kind, before anything was seen.
    """

    def __init__(self, priors: Mapping[str, float]) -> None:
        self._accepted: dict[Hashable, float] = {kind: prior * _PRIOR_WEIGHT for kind, prior in priors.items()}
        self._seen: dict[Hashable, float] = dict.fromkeys(priors, _PRIOR_WEIGHT)

    def begin(self) -> None:
        """Start a request."""
        for kind, seen in self._seen.items():
            if seen > _CARRIED_WEIGHT:
                self._accepted[kind] *= _CARRIED_WEIGHT / seen
                self._seen[kind] = _CARRIED_WEIGHT

    def chance(self, kind: Hashable) -> float:
        """Return the chance of a kind of token."""
        return self._accepted[kind] / self._seen[kind]

    def record(self, kinds: Sequence[Hashable], accepted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right; those behind a wrong one tell nothing."""
        for i, kind in enumerate(kinds[: accepted + 1]):
            self._accepted[kind] += i < accepted
            self._seen[kind] += 1
