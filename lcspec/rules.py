"""An acceptance rule at work in one generation: it verifies drafts, and says how a draft model should choose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from lcspec.drafters.base import Draft
from lcspec.errors import PromptError
from lcspec.noise import COUPLED, PROPOSAL, sample
from lcspec.sampling import Distribution, SamplingParams, distribution
from lcspec.verify import Verdict, coupled, greedy, rejection

RuleName: TypeAlias = Literal["greedy", "coupled", "rejection"]
RULES: tuple[RuleName, ...] = get_args(RuleName)


class Rule(Protocol):
    """Verifies drafts by one of the rules of `verify`."""

    def verify(self, logits: NDArray[np.float32], draft: Draft, committed: Sequence[int]) -> Verdict:
        """Return what the target makes of a draft.

        Args:
            logits: shape (k + 1, n_vocab), the target's for k draft tokens and the position behind them.
            draft: the draft.
            committed: the tokens before it, prompt included.
        """

    def propose(self, logits: NDArray[np.float32], history: Sequence[int]) -> tuple[int, Distribution | None]:
        """Return the token that a draft model with these logits should propose behind `history`.

        And the distribution that it was sampled from, where the rule needs that.
        """


class GreedyRule:
    """The likeliest token, by the logits as they are."""

    def verify(self, logits: NDArray[np.float32], draft: Draft, committed: Sequence[int]) -> Verdict:
        """Accept draft tokens that are the target's likeliest."""
        return greedy(logits, draft.tokens)

    def propose(self, logits: NDArray[np.float32], history: Sequence[int]) -> tuple[int, Distribution | None]:
        """Return the draft model's likeliest token."""
        return int(logits.argmax()), None


@dataclass(frozen=True)
class CoupledRule:
    """Sampling with noise that target and draft model share; with temperature 0, greedy with penalties."""

    params: SamplingParams
    seed: int

    def verify(self, logits: NDArray[np.float32], draft: Draft, committed: Sequence[int]) -> Verdict:
        """Accept draft tokens that the target chooses with the same noise."""
        return coupled(_targets(logits, draft, committed, self.params), draft.tokens, self.seed, len(committed))

    def propose(self, logits: NDArray[np.float32], history: Sequence[int]) -> tuple[int, Distribution | None]:
        """Return the token that the draft model's distribution and the shared noise choose."""
        drafted = distribution(logits, self.params, history)
        return sample(self.seed, len(history), COUPLED, drafted.tokens, drafted.log_probs), None


@dataclass(frozen=True)
class RejectionRule:
    """Sampling that accepts as often as can be, with noise of its own for each purpose."""

    params: SamplingParams
    seed: int

    def verify(self, logits: NDArray[np.float32], draft: Draft, committed: Sequence[int]) -> Verdict:
        """Accept draft tokens by how likely they are for target and drafter."""
        targets = _targets(logits, draft, committed, self.params)
        proposals = draft.distributions or (None,) * len(draft.tokens)
        return rejection(targets, draft.tokens, proposals, self.seed, len(committed))

    def propose(self, logits: NDArray[np.float32], history: Sequence[int]) -> tuple[int, Distribution | None]:
        """Return a sample of the draft model's distribution, and the distribution."""
        drafted = distribution(logits, self.params, history)
        return sample(self.seed, len(history), PROPOSAL, drafted.tokens, drafted.log_probs), drafted


def make_rule(params: SamplingParams, name: RuleName | None, seed: int) -> Rule:
    """Return the rule for sampling with `params`; by default greedy at temperature 0, else coupled.

    Raises:
        PromptError: there is no such rule, or it does not fit the temperature.
    """
    if name is not None and not (isinstance(name, str) and name in RULES):
        raise PromptError(f"{name!r} is no rule; choose from {', '.join(RULES)}")
    if name is not None and (params.temperature == 0) != (name == "greedy"):
        fitting = "greedy" if params.temperature == 0 else "coupled or rejection"
        raise PromptError(f"with a temperature of {params.temperature:g} the rule is {fitting}, not {name}")
    if params.is_greedy:
        return GreedyRule()
    return RejectionRule(params, seed) if name == "rejection" else CoupledRule(params, seed)


def _targets(
    logits: NDArray[np.float32], draft: Draft, committed: Sequence[int], params: SamplingParams
) -> Iterator[Distribution]:
    """Yield the target's distributions, each with the draft tokens before it as history."""
    history = list(committed) if params.has_penalties else []
    for row, token in zip(logits, (*draft.tokens, None), strict=True):
        yield distribution(row, params, history)
        if params.has_penalties and token is not None:
            history.append(token)
