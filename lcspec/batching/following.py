"""Requests that begin alike: one evaluates that, and the others wait for it."""

from collections.abc import Sequence
from typing import NamedTuple

from lcspec.batching.served import Served
from lcspec.batching.slots import Slots
from lcspec.llama import SharedContext, common_prefix_length

_WORTH_WAITING = 32  # tokens of a prompt that another request is evaluating


class Leading(NamedTuple):
    """A request that evaluates what another one begins with, too.

    Attributes:
        served: the request.
        n_tokens: tokens that both begin with.
    """

    served: Served
    n_tokens: int


class Following:
    """Who waits for whom.

    Args:
        context: the cache.
        slots: its sequences.
    """

    def __init__(self, context: SharedContext, slots: Slots) -> None:
        self._context = context
        self._slots = slots
        self._leading: dict[Served, Leading] = {}  # by who waits

    def __contains__(self, served: Served) -> bool:
        return served in self._leading

    def leading(self, active: Sequence[Served], tokens: list[int], n_cached: int) -> Leading | None:
        """Return who evaluates just now what a prompt begins with, if that is worth waiting for.

        Args:
            active: the requests that have begun, or wait for others.
            tokens: the prompt.
            n_cached: tokens of it that are there already.
        """
        best = None
        for one in active if self._context.can_cut_restored else ():
            n = self._slots.usable(common_prefix_length(one.writing.committed, tokens), len(tokens))
            if n > (best.n_tokens if best else n_cached + _WORTH_WAITING):
                best = Leading(one, n)
        return best

    def add(self, served: Served, leading: Leading) -> None:
        """Let a request wait."""
        self._leading[served] = leading

    def remove(self, served: Served) -> bool:
        """Take note that a request does not wait any more, and tell whether it did."""
        return self._leading.pop(served, None) is not None

    def n_shared(self, served: Served) -> int:
        """Return how many tokens of its prompt a request waits for."""
        return self._leading[served].n_tokens

    def take_those_who_can_begin(self, active: Sequence[Served]) -> list[Served]:
        """Return the requests for which there is now what they waited for, or nobody who will evaluate it."""
        able = [served for served, leading in self._leading.items() if not self._is_to_come(leading, active)]
        for served in able:
            del self._leading[served]
        return able

    def _is_to_come(self, leading: Leading, active: Sequence[Served]) -> bool:
        leader = leading.served
        if leader not in active:
            return False
        return leader in self._leading or len(self._context.tokens(leader.slot)) < leading.n_tokens
