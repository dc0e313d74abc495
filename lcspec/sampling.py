"""Sampling parameters, and the distribution that they make of logits."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from lcspec.checks import check_number, check_whole, shown
from lcspec.errors import EvaluationError, PromptError

_MOST_BIASES = 10_000
_MANY = 4096
_COLDEST = 1e-20  # a temperature that leaves one token of any two different logits
_BLOCK = 64  # logits that are looked through together for the largest


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is chosen; defaults, meaning and order are those of llama.cpp's samplers.

    Attributes:
        logit_bias: added to the logits of tokens, by id; -inf forbids one. Comes first.
        repeat_penalty: divides the logits of recent tokens that are positive and multiplies the others; 1 is off.
        frequency_penalty: subtracted from the logit of a recent token as often as it occurred.
        presence_penalty: subtracted once from the logit of a recent token.
        penalty_last_n: how many of the last tokens, prompt included, are recent; 0 none, -1 all.
        top_k: keep this many of the most likely tokens; 0 keeps all.
        typical_p: keep the tokens whose information is nearest to the expected, up to this probability
            (Meister et al. 2022, "Locally Typical Sampling"); 1 keeps all.
        top_p: keep the most likely tokens up to this probability together (Holtzman et al. 2019, "The Curious
            Case of Neural Text Degeneration"); 1 keeps all.
        min_p: keep tokens at least this times as likely as the likeliest (Nguyen et al. 2024, "Turning Up
            the Heat"); 0 keeps all.
        temperature: divides the logits that are left; 0 takes the likeliest token.
        seed: gives the same text again, of 64 bits; None draws one, which the completion names.

    Raises:
        PromptError: a parameter is out of range, is not a number, or contradicts another.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, 1e6),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("typical_p", 0.0, 1.0),
            ("repeat_penalty", 1e-6, 1e6),
            ("frequency_penalty", -1e6, 1e6),
            ("presence_penalty", -1e6, 1e6),
        ):
            object.__setattr__(self, name, check_number(name, getattr(self, name), low, high))
        object.__setattr__(self, "top_k", check_whole("top_k", self.top_k, 0, 1 << 31))
        object.__setattr__(self, "penalty_last_n", check_whole("penalty_last_n", self.penalty_last_n, -1, 1 << 31))
        if self.seed is not None:
            object.__setattr__(self, "seed", check_whole("seed", self.seed, 0, (1 << 64) - 1))
        object.__setattr__(self, "logit_bias", _checked_biases(self.logit_bias))
        if self.penalty_last_n == 0 and self.has_penalties:
            raise PromptError("penalty_last_n is 0, so that no token is recent, and yet there is a penalty")

    @property
    def has_penalties(self) -> bool:
        """Whether recent tokens matter."""
        return self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0

    @cached_property
    def biases(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The tokens of `logit_bias`, and their biases: each of shape (n,)."""
        return np.array([*self.logit_bias], dtype=np.int64), np.array([*self.logit_bias.values()], dtype=np.float32)

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always chosen, by the model's own logits."""
        return self.temperature == 0 and not self.has_penalties and not self.logit_bias and self.typical_p == 1.0


@dataclass(frozen=True, eq=False)
class Distribution:
    """The tokens that may come next, and the logarithms of their probabilities.

    Attributes:
        tokens: shape (n,), int64, in no particular order.
        log_probs: shape (n,), float64; their exponentials sum to 1.
    """

    tokens: NDArray[np.int64]
    log_probs: NDArray[np.float64]

    def log_prob(self, token: int) -> float:
        """Return the log-probability of `token`, -inf when it can't come next."""
        found = np.flatnonzero(self.tokens == token)
        return float(self.log_probs[found[0]]) if found.size else -math.inf

    @property
    def likeliest(self) -> int:
        """The token with the largest probability."""
        return int(self.tokens[self.log_probs.argmax()])


def distribution(logits: NDArray[np.float32], params: SamplingParams, history: Sequence[int]) -> Distribution:
    """Return the distribution of the next token.

    Args:
        logits: shape (n_vocab,), the model's.
        params: what to make of them.
        history: the tokens before, prompt included.

    Raises:
        EvaluationError: the logits are not numbers, or nothing is left of them.
    """
    adjusted = _adjusted(logits, params, history)
    if not np.isfinite(adjusted.max()):
        raise EvaluationError("the target's logits are not numbers, or every token is forbidden")
    tokens, kept = _most_likely(adjusted, params.top_k)
    for keep, limit, off in (
        (_typical, params.typical_p, 1.0),
        (_nucleus, params.top_p, 1.0),
        (_not_unlikely, params.min_p, 0.0),
    ):
        if limit != off and kept.size > 1:
            chosen = keep(kept, limit)
            tokens, kept = tokens[chosen], kept[chosen]
    if params.temperature == 0:
        best = int(kept.argmax())
        return Distribution(tokens[best : best + 1], np.zeros(1))
    return Distribution(tokens, _log_softmax((kept - kept.max()) / max(params.temperature, _COLDEST)))


def _adjusted(logits: NDArray[np.float32], params: SamplingParams, history: Sequence[int]) -> NDArray[np.float32]:
    """Return the logits with biases and penalties; the same array where there are none."""
    if not params.logit_bias and not params.has_penalties:
        return logits
    adjusted: NDArray[np.float32] = logits.copy()
    if params.logit_bias:
        tokens, biases = params.biases
        known = tokens < adjusted.size  # a draft model can have fewer tokens
        adjusted[tokens[known]] += biases[known]
    if params.has_penalties:
        recent = history if params.penalty_last_n < 0 else history[max(0, len(history) - params.penalty_last_n) :]
        counts = Counter(token for token in recent if token < adjusted.size)
        ids = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
        often = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
        values = adjusted[ids]
        values = np.where(values <= 0, values * params.repeat_penalty, values / params.repeat_penalty)
        adjusted[ids] = values - (often * params.frequency_penalty + params.presence_penalty)
    return adjusted


def _most_likely(logits: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the tokens with the `k` largest logits (all for 0), and these logits."""
    if not 0 < k < logits.size:
        if logits.min() > -np.inf:
            return np.arange(logits.size), logits.astype(np.float64)
        allowed = np.flatnonzero(logits > -np.inf)
        return allowed, logits[allowed].astype(np.float64)
    n_blocks = logits.size // _BLOCK
    tokens: NDArray[np.int64] = np.arange(logits.size)
    if k < n_blocks:  # at least k logits are as large as the k-th largest maximum of a block
        maxima = logits[: n_blocks * _BLOCK].reshape(n_blocks, _BLOCK).max(axis=1)
        tokens = np.flatnonzero(logits >= np.partition(maxima, n_blocks - k)[n_blocks - k])
    values = logits[tokens]
    if tokens.size > k:
        top = np.argpartition(values, tokens.size - k)[tokens.size - k :]
        tokens, values = tokens[top], values[top]
    kept = values > -np.inf
    return tokens[kept], values[kept].astype(np.float64)


def _nucleus(logits: NDArray[np.float64], p: float) -> NDArray[np.int64]:
    """Return the places of the largest logits whose probabilities together reach `p`."""
    log_probs = _log_softmax(logits)
    least = math.log((1 - p) / logits.size)  # together, less likely tokens are less than is cut off
    able = np.flatnonzero(log_probs >= least - 1e-3)
    probabilities = np.exp(log_probs[able])
    for n in _growing(able.size):
        top = _largest(probabilities, n)
        reached = int(np.searchsorted(np.cumsum(probabilities[top]), p))
        if reached < n:
            return able[top[: reached + 1]]
    return able


def _typical(logits: NDArray[np.float64], p: float) -> NDArray[np.int64]:
    """Return the places of the logits whose information is nearest to the entropy, just beyond `p` together."""
    log_probs = _log_softmax(logits)
    probabilities = np.exp(log_probs)
    entropy = -float(np.sum(probabilities * log_probs))
    distance = np.abs(-log_probs - entropy)
    for n in _growing(logits.size):
        nearest = _largest(-distance, n)
        reached = int(np.searchsorted(np.cumsum(probabilities[nearest]), p, side="right"))
        if reached < n:
            return nearest[: reached + 1]
    return nearest


def _not_unlikely(logits: NDArray[np.float64], p: float) -> NDArray[np.int64]:
    """Return the places of the logits whose probability is at least `p` times the largest."""
    return np.flatnonzero(logits >= logits.max() + math.log(p))


def _growing(size: int) -> list[int]:
    """Return how many to sort, in steps: mostly a few are enough."""
    return [n for n in (256, 4096, 32_768) if n < size] + [size]


def _largest(values: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Return the places of the `n` largest values, the largest first."""
    places = np.argpartition(values, values.size - n)[values.size - n :] if n < values.size else np.arange(n)
    return places[np.argsort(-values[places])]


def _log_softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted: NDArray[np.float64] = logits - logits.max()
    if shifted.size > _MANY:  # single precision of the exponentials is enough for their sum
        return shifted - math.log(float(np.exp(shifted.astype(np.float32)).sum(dtype=np.float64)))
    return shifted - math.log(float(np.exp(shifted).sum()))


def _checked_biases(biases: object) -> Mapping[int, float]:
    if not isinstance(biases, Mapping):
        raise PromptError(f"logit_bias is {shown(biases)}; it must map token ids to numbers")
    if len(biases) > _MOST_BIASES:
        raise PromptError(f"logit_bias has {len(biases):,} tokens; {_MOST_BIASES:,} are the most")
    checked: dict[int, float] = {}
    for token, bias in biases.items():
        token = check_whole("a token of logit_bias", token, 0, 1 << 31)
        if not (isinstance(bias, Real) and bias == -math.inf):
            check_number(f"the logit_bias of token {token}", bias, -1e6, 1e6)
        checked[token] = float(bias)
    return checked


GREEDY = SamplingParams(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
"""Always the likeliest token."""
