"""How likely draft tokens are to be accepted, by what their drafter knows of them."""

import math
from collections import deque
from collections.abc import Mapping, Sequence

_PRIOR_WEIGHT = 20.0  # draft tokens that a prior counts as
_CARRIED_WEIGHT = 30.0  # draft tokens that all earlier requests count as, at the most

_FIRST_WEIGHT = 10.0  # draft tokens of a request that what is expected of it counts as
_LATEST_REQUESTS = 16  # that are remembered,
_ENOUGH_TOKENS = 8  # if so many of their tokens were drafted
_PRIOR_REQUESTS = 4.0  # that a prior counts as
_SPREAD = 0.15  # of the chances of requests, before any was seen
_CONFIDENCE = 0.5  # spreads above the mean
_MOST = 0.97


class AcceptanceTable:
    """Estimates the chance that a draft token is accepted when those before it were.

    Tokens of which the drafter knows the same are of one kind and share an estimate: the mean of a Beta
    distribution that begins at a prior and counts what happened since. What earlier requests taught weighs no more
    than a few drafts in the next one.

    Args:
        priors: the chance of each kind, before anything was seen.
    """

    def __init__(self, priors: Mapping[str, float]) -> None:
        self._priors = priors
        self._accepted: dict[str, float] = {}
        self._seen: dict[str, float] = {}

    def copy(self) -> "AcceptanceTable":
        """Return a table that knows the same and learns by itself."""
        other = AcceptanceTable(self._priors)
        other._accepted, other._seen = self._accepted.copy(), self._seen.copy()
        return other

    def begin(self) -> None:
        """Start a request."""
        for kind, seen in self._seen.items():
            if seen > _CARRIED_WEIGHT:
                self._accepted[kind] *= _CARRIED_WEIGHT / seen
                self._seen[kind] = _CARRIED_WEIGHT

    def chance(self, kind: str) -> float:
        """Return the chance of a kind of token."""
        seen = self._seen.get(kind)
        return self._priors[kind] if seen is None else self._accepted[kind] / seen

    def record(self, kinds: Sequence[str], accepted: int) -> None:
        """Learn from a draft whose first `accepted` tokens were right; those behind a wrong one tell nothing."""
        for i, kind in enumerate(kinds[: accepted + 1]):
            if kind not in self._seen:
                self._accepted[kind] = self._priors[kind] * _PRIOR_WEIGHT
                self._seen[kind] = _PRIOR_WEIGHT
            self._accepted[kind] += i < accepted
            self._seen[kind] += 1


class RequestChance:
    """Estimates a chance that is another one in each request, and about the same all through it.

    A request begins with the mean of the latest ones and some confidence: a drafter that is tried in vain costs little,
    one that is never tried shows nothing.

    Args:
        prior: the mean, before anything was seen.
    """

    def __init__(self, prior: float) -> None:
        self._prior = prior
        self._shares: deque[float] = deque(maxlen=_LATEST_REQUESTS)
        self._accepted = self._seen = 0
        self._at_first = prior
        self.begin()

    def begin(self) -> None:
        """Start a request."""
        if self._seen >= _ENOUGH_TOKENS:
            self._shares.append(self._accepted / self._seen)
        self._accepted = self._seen = 0
        n = _PRIOR_REQUESTS + len(self._shares)
        mean = (_PRIOR_REQUESTS * self._prior + sum(self._shares)) / n
        variance = (_PRIOR_REQUESTS * _SPREAD**2 + sum((share - mean) ** 2 for share in self._shares)) / n
        self._at_first = min(mean + _CONFIDENCE * math.sqrt(variance), _MOST)

    @property
    def chance(self) -> float:
        """The chance in this request, by what was seen of it."""
        return (_FIRST_WEIGHT * self._at_first + self._accepted) / (_FIRST_WEIGHT + self._seen)

    def record(self, n: int, accepted: int) -> None:
        """Learn from a draft of `n` tokens of which the first `accepted` were right."""
        self._accepted += accepted
        self._seen += min(accepted + 1, n)
