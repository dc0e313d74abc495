"""The acceptance rules: which draft tokens the target would have written itself.

A rule is a pure function of what the target makes of each position, of the draft, and of noise. It returns how
many of the draft's leading tokens it accepts and the token that the target puts behind them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError
from lcspec.noise import ACCEPTANCE, CORRECTION, COUPLED, sample, uniform
from lcspec.sampling import Distribution

_ONE: NDArray[np.int64] = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class Verdict:
    """What the target makes of a draft.

    Attributes:
        accepted: number of leading draft tokens that are accepted.
        token: the target's own next token: the correction of the first rejected draft token, or one
            more token when all were accepted.
    """

    accepted: int
    token: int


def greedy(logits: NDArray[np.float32], draft: Sequence[int]) -> Verdict:
    """Accept draft tokens while each is the target's most likely one.

    The text is that of greedy decoding, whatever the draft (Stern et al. 2018, "Blockwise Parallel
    Decoding for Deep Autoregressive Models").

    Args:
        logits: shape (k + 1, n_vocab) for k draft tokens. Row i is the target's prediction for draft token i;
            row k is for the token behind the draft.
        draft: the draft tokens.

    Raises:
        EvaluationError: the logits are not numbers, as with damaged weights.
    """
    accepted = 0
    while accepted < len(draft) and _is_most_likely(draft[accepted], logits[accepted]):
        accepted += 1
    return Verdict(accepted, token=_most_likely(logits[accepted]))


def coupled(targets: Iterable[Distribution], draft: Sequence[int], seed: int, position: int) -> Verdict:
    """Accept draft tokens while each is the one that the target's distribution and shared noise choose.

    The noise of a position is a function of seed, position and token, so the text is that of sampling
    token by token with the same noise, whatever the draft; and a draft model that chooses by its own
    distribution and the same noise is often right (Daliri et al. 2024, "Coupling without Communication and
    Drafter-Invariant Speculative Decoding").

    Args:
        targets: the target's distributions, one for each draft token and one behind them; only as many
            are taken as the verdict needs.
        draft: the draft tokens.
        seed: of the noise.
        position: of the first draft token in the text.
    """
    for i, target in enumerate(targets):
        token = sample(seed, position + i, COUPLED, target.tokens, target.log_probs)
        if i == len(draft) or token != draft[i]:
            return Verdict(i, token)
    raise ValueError("there must be a distribution for each draft token and one behind them")


def rejection(
    targets: Iterable[Distribution],
    draft: Sequence[int],
    proposals: Sequence[Distribution | None],
    seed: int,
    position: int,
) -> Verdict:
    """Accept a draft token x with probability min(1, p(x) / q(x)), else sample from max(0, p - q), renormalized.

    The text has the distribution of sampling from the target, and no rule accepts more, but which text it is
    depends on the draft (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding";
    Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling").

    Args:
        targets: the target's distributions p, as for `coupled`.
        draft: the draft tokens.
        proposals: the distributions q that they were sampled from; None for a token that was certain.
        seed: of the noise.
        position: of the first draft token in the text.
    """
    for i, target in enumerate(targets):
        if i == len(draft):
            return Verdict(i, sample(seed, position + i, CORRECTION, target.tokens, target.log_probs))
        proposal, token = proposals[i], draft[i]
        log_ratio = target.log_prob(token) - (0.0 if proposal is None else proposal.log_prob(token))
        if not np.log(uniform(seed, position + i, ACCEPTANCE, _ONE)[0]) < log_ratio:  # neither if that is a NaN
            rest = _without(target, token) if proposal is None else _beyond(target, proposal)
            return Verdict(i, sample(seed, position + i, CORRECTION, rest.tokens, rest.log_probs))
    raise ValueError("there must be a distribution for each draft token and one behind them")


def _without(target: Distribution, token: int) -> Distribution:
    """Return the distribution of the other tokens (not renormalized: sampling does not mind)."""
    others = target.tokens != token
    return Distribution(target.tokens[others], target.log_probs[others])


def _beyond(target: Distribution, proposal: Distribution) -> Distribution:
    """Return max(0, p - q), not renormalized; p itself where rounding leaves nothing."""
    order = np.argsort(proposal.tokens)
    places = np.searchsorted(proposal.tokens, target.tokens, sorter=order)
    places = order[np.minimum(places, order.size - 1)]
    q = np.where(proposal.tokens[places] == target.tokens, np.exp(proposal.log_probs[places]), 0.0)
    rest = np.exp(target.log_probs) - q
    left = rest > 0
    if not left.any():
        return target
    return Distribution(target.tokens[left], np.log(rest[left]))


def _is_most_likely(token: int, row: NDArray[np.float32]) -> bool:
    """Tell whether `_most_likely` would choose `token`, in two thirds of the time; false if there is a NaN."""
    before, after = row[:token], row[token + 1 :]
    beats_earlier = not before.size or bool(before.max() < row[token])
    return beats_earlier and (not after.size or bool(after.max() <= row[token]))


def _most_likely(row: NDArray[np.float32]) -> int:
    choice = int(row.argmax())
    if np.isnan(row[choice]):
        raise EvaluationError("the target's logits are not numbers; its file is damaged or unsupported")
    return choice
