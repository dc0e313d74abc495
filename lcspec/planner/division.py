"""How the width of a pass is divided among the texts that it goes on with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lcspec.planner.cost import WIDEST, CostCurve
from lcspec.planner.planner import CREDIT, CREDIT_PER_TOKEN, CREDIT_SHARE, TRIED, credit_for

_ZERO = np.zeros(1)
_NOTHING = np.empty(0)
_COUNT = np.arange(float(WIDEST + 1))


@dataclass(frozen=True)
class Wish:
    """What a text could use of a pass, beyond the token that it evaluates anyway.

    Attributes:
        offers: drafts, of which one can be verified: the chances of its tokens, each of shape (n,), that a token is
            accepted when those before it were.
        limit: most draft tokens.
    """

    offers: Sequence[NDArray[np.float64]]
    limit: int


@dataclass(frozen=True)
class Share:
    """What a text gets.

    Attributes:
        offer: which draft.
        length: how many of its tokens.
    """

    offer: int = 0
    length: int = 0


@dataclass(frozen=True)
class Division:
    """A pass.

    Attributes:
        shares: of each text.
        width: tokens of the pass. More than there are where a wider pass is cheaper.
    """

    shares: tuple[Share, ...]
    width: int


def divide(wishes: Sequence[Wish], seconds: NDArray[np.float64], widths: NDArray[np.int64], most: int) -> Division:
    """Return how many draft tokens of each text a pass should verify, so that most tokens a second are expected.

    A draft token costs the same wherever it is. So those with the largest chance of being accepted win, which are
    prefixes of drafts, since a token is accepted only if those before it are: with the survival probabilities
    s_1 >= s_2 >= ... of all tokens that are wished for, a pass of b texts and the k best tokens is expected to emit
    E(k) = b + s_1 + ... + s_k and takes T(b + k). The best k maximizes E(k) / T(b + k); for one text that is what
    `best_length` chooses. As b grows, so does what a token has to bring, until none does.

    Args:
        wishes: of the texts.
        seconds: shape (n,): T by width, from 0, as `CostCurve.padded` gives it, like what follows.
        widths: shape (n,): by width the one that is at least as wide and cheapest.
        most: most tokens of the pass.
    """
    base = len(wishes)
    room = min(most, len(seconds) - 1) - base
    likeliest = max((offer[0] for wish in wishes if wish.limit for offer in wish.offers if offer.size), default=0.0)
    if room <= 0 or not _can_pay(likeliest, base, seconds[base : base + room + 1]):
        return Division((Share(),) * base, base)
    survivals: list[list[NDArray[np.float64]]] = [
        [offer[: min(wish.limit, room)].cumprod() for offer in wish.offers] for wish in wishes
    ]
    chosen = [_best_offer(offers, base, seconds) for offers in survivals]
    drafts = [offers[best] if offers else _NOTHING for offers, best in zip(survivals, chosen, strict=True)]
    chances, owners = np.concatenate(drafts), np.repeat(np.arange(base), [len(draft) for draft in drafts])
    order = (-chances).argsort(kind="stable")  # of equal ones in one draft the earlier stays before
    gains = np.concatenate((_ZERO, chances[order[:room]].cumsum()))
    rates = (base + gains) / seconds[base : base + len(gains)]
    best = int(rates.argmax())
    width = base + best
    if best:
        width = min(int(widths[width]), most)
        best = min(width - base, chances.size)  # what makes the pass no dearer is verified, too
    lengths = np.bincount(owners[order[:best]], minlength=base).tolist()
    shares = tuple(Share(offer, length) for offer, length in zip(chosen, lengths, strict=True))
    return Division(shares, width)


def _can_pay(chance: float, base: int, seconds: NDArray[np.float64]) -> bool:
    """Tell whether draft tokens could be worth it if all had this chance: no token has a better one than the likeliest.

    Args:
        chance: that of the likeliest token.
        base: texts.
        seconds: of passes over that many tokens and more.
    """
    gains = _COUNT[: len(seconds)] * (chance / base) + 1.0
    return bool((gains * seconds[0] > seconds).any())


def _best_offer(offers: Sequence[NDArray[np.float64]], base: int, seconds: NDArray[np.float64]) -> int:
    """Return which draft would make most tokens a second, were it the only one of the pass."""
    if len(offers) < 2:
        return 0
    return int(np.argmax([_rate(survival, base, seconds) for survival in offers]))


def _rate(survival: NDArray[np.float64], base: int, seconds: NDArray[np.float64]) -> float:
    gains = np.concatenate((_ZERO, survival.cumsum()))
    return float(((base + gains) / seconds[base : base + len(gains)]).max())


class Credit:
    """What the drafts of one text may lose: a small credit, and what they gained so far.

    The same bound as the `Planner`'s for a text that is alone: however promising drafts are, they can't make it much
    slower.

    Args:
        n_prompt: tokens of the text's prompt.
    """

    def __init__(self, n_prompt: int = 0) -> None:
        self._for_prompt = credit_for(n_prompt)
        self._gained = 0.0

    def affordable(self, costs: CostCurve, depth: int, base: int) -> int:
        """Return the most draft tokens that a pass over `base` other tokens may have for this text."""
        seconds, _ = costs.padded(depth)
        if base >= len(seconds):
            return 0
        alone = float(seconds[1])
        at_risk = max(alone * CREDIT, float(seconds[TRIED]) - alone) + alone * self._for_prompt + self._gained
        return max(0, int(seconds[base:].searchsorted(seconds[base] + at_risk, side="right")) - 1)

    def record_draft(self, right: int, alone: float) -> None:
        """Learn how many tokens of a draft were right, verified or not, where a pass over one token takes `alone`."""
        self._gained += right * CREDIT_PER_TOKEN * alone

    def record_pass(self, seconds: float, *, base: int, drafted: int, accepted: int, lost: float) -> None:
        """Learn what a pass brought.

        Args:
            seconds: that a pass over one token of each of the texts takes.
            base: these texts.
            drafted: draft tokens of this text.
            accepted: how many were accepted.
            lost: seconds that the pass took longer for the draft tokens of this text.
        """
        self._gained += CREDIT_SHARE * (seconds + lost) / base
        if drafted:
            self._gained += accepted * seconds / base - lost
