"""Drafts of one text among many."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lcspec.auto import padded
from lcspec.drafters import NO_DRAFT, Draft, LookupDrafter, Propose
from lcspec.followed import FollowedDrafts
from lcspec.planner import LOOK_AHEAD, AcceptanceTable, CostCurve, Credit, Share, Wish

_TAIL = 16  # last tokens of a prompt that are repeated behind a prediction


class SharedDrafter:
    """Proposes what its text's share of a pass allows.

    What lookup proposes is compared with the text also where it is not verified, and that is learned for this text and,
    with less weight, for those to come.

    Args:
        lookup: should propose as much as it can.
        common: what is known of all texts.
        costs: what passes cost, at first.
        most: most tokens of a draft.
        prediction: tokens that the text is expected to have.
    """

    name = "lookup"

    def __init__(
        self,
        lookup: LookupDrafter,
        common: AcceptanceTable,
        costs: CostCurve,
        most: int,
        prediction: Sequence[int] = (),
    ) -> None:
        self.credit = Credit()
        self._lookup = lookup
        self._common = common
        self._table = common
        self._costs = costs
        self._most = most
        self._prediction = list(prediction)
        self._offers: list[Draft] = []
        self._followed = FollowedDrafts()
        self._draft = NO_DRAFT
        self._depth = 0

    def begin(self, prompt: Sequence[int], propose: Propose) -> None:
        """Search the prompt, and the prediction as if it had followed the prompt once before."""
        self._depth = len(prompt)
        self.credit = Credit(len(prompt))
        self._common.begin()
        self._table = self._common.copy()
        repeated = [*self._prediction, *prompt[-_TAIL:]] if self._prediction else []
        self._lookup.begin([*prompt, *repeated], propose)

    def wish(self, limit: int, base: int, depth: int, costs: CostCurve) -> Wish:
        """Return what could be used of a pass over `base` other tokens, behind `depth` tokens on average."""
        self._costs = costs
        limit = min(limit, self._most)
        affordable = self.credit.affordable(self._costs, depth, base)
        self._offers = self._lookup.offers(min(limit, max(LOOK_AHEAD, affordable)))
        self._followed.propose(self._offers)
        limit = min(limit, affordable)
        return Wish([self._chances(offer.kinds[:limit]) for offer in self._offers], limit)

    def take(self, share: Share, n_padded: int = 0) -> None:
        """Draft what was granted, and `n_padded` tokens more that make the pass cheaper."""
        self._draft = NO_DRAFT
        if share.length:
            draft = self._offers[share.offer]
            self._draft = padded(draft.first(share.length), share.length + n_padded)

    def propose(self, limit: int) -> Draft:
        """Return the draft that was taken."""
        draft, self._draft = self._draft.first(limit), NO_DRAFT
        return draft

    def commit(self, tokens: Sequence[int], seconds: float) -> None:
        """Learn which tokens were emitted."""
        self._followed.commit(tokens, self)
        self._depth += len(tokens)
        self._lookup.commit(tokens)

    def record_draft(self, drafter: str, kinds: Sequence[str], accepted: int) -> None:
        """Learn how many tokens of a draft were right."""
        self._table.record(kinds, accepted)
        self._common.record(kinds, accepted)
        self.credit.record_draft(accepted, self._costs.seconds(1, self._depth))

    def close(self) -> None:
        """Nothing is held."""

    def _chances(self, kinds: Sequence[str]) -> NDArray[np.float64]:
        return np.array([self._table.chance(kind) for kind in kinds], dtype=np.float64)
