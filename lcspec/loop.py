"""Speculative decoding, the algorithm.

To write one token, a language model reads all of its weights from memory. A pass over several tokens
reads them once, too, so it costs less than as many passes over one (how much less depends on the machine).
So something cheap drafts the next tokens, and the target model evaluates all of them in one pass, behind
the last token it wrote. Where the target would have written a draft token itself, the token is accepted;
the first one that it would not have written is replaced by its own. Every pass thus emits at least one
token, and the text is the target's. (Leviathan et al. 2023, "Fast Inference from Transformers via
Speculative Decoding"; Chen et al. 2023, "Accelerating Large Language Model Decoding with Speculative
Sampling".)
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lcspec.drafters.base import NO_DRAFT, Draft, Drafter
from lcspec.layouts import TwoLayouts
from lcspec.llama import MAX_WIDTH, Context
from lcspec.logprobs import Scorer, TokenLogprob, no_scores
from lcspec.rules import Rule


@dataclass(frozen=True)
class Pass:
    """One evaluation by the target, and what came of it.

    Attributes:
        draft: the draft that was verified; empty in the prefill and in plain decoding.
        accepted: number of leading draft tokens among `emitted`.
        emitted: new tokens of the text: the accepted draft tokens and one of the target's own.
        scores: log-probabilities of the emitted tokens, where they were asked for.
        reused: number of tokens that the target's cache held before; with `evaluated`, how deep the pass was.
        evaluated: number of tokens that the target evaluated.
        seconds: time of drafting, evaluation and verification together.
        drafting_seconds: time of drafting.
        exact: whether the logits are known to be, bit for bit, those of evaluating token by token; the engine,
            which knows what was probed, says so.
        plain_seconds: about what plain decoding would have taken for the emitted tokens; None where the engine, which
            knows what passes cost, can't tell.
    """

    draft: Draft
    accepted: int
    emitted: tuple[int, ...]
    scores: tuple[TokenLogprob, ...]
    reused: int
    evaluated: int
    seconds: float
    drafting_seconds: float = 0.0
    exact: bool = False
    plain_seconds: float | None = None


@dataclass(frozen=True)
class Verified:
    """What came of a draft, or of none.

    Attributes:
        accepted: as of `Pass`.
        emitted: as of `Pass`.
        scores: as of `Pass`.
    """

    accepted: int
    emitted: tuple[int, ...]
    scores: tuple[TokenLogprob, ...]


class Writing:
    """A text that is being written: the algorithm, apart from whose pass evaluates the tokens.

    Args:
        prompt: at least one token.
        drafter: proposes the drafts; it has begun with the prompt before the first one is asked for.
        rule: the acceptance rule.
        end: tokens of prompt and text at the most.
        is_eog: tells tokens that end the text; nothing behind one is emitted.
        score: gives log-probabilities of emitted tokens.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        drafter: Drafter,
        rule: Rule,
        *,
        end: int,
        is_eog: Callable[[int], bool],
        score: Scorer = no_scores,
    ) -> None:
        self.committed = list(prompt)
        """The prompt and what was emitted."""
        self.draft = NO_DRAFT
        """What is verified next, or was last."""
        self._drafter = drafter
        self._rule = rule
        self._end = end
        self._is_eog = is_eog
        self._score = score

    @property
    def is_over(self) -> bool:
        """Whether nothing is to follow."""
        return len(self.committed) >= self._end or self._is_eog(self.committed[-1])

    @property
    def longest_draft(self) -> int:
        """The most draft tokens that can be of use: behind them comes another token."""
        return self._end - len(self.committed) - 1

    def propose(self, limit: int) -> list[int]:
        """Draft up to `limit` tokens, and return what the target has to evaluate: them, and the token before."""
        limit = min(limit, self.longest_draft)
        self.draft = self._drafter.propose(limit).first(limit)
        return [self.committed[-1], *self.draft.tokens]

    def verify(self, logits: NDArray[np.float32]) -> Verified:
        """Commit the draft tokens that the target would have written, and then one of its own.

        Args:
            logits: shape (k + 1, n_vocab), the target's for k draft tokens and the position behind them.
        """
        verdict = self._rule.verify(logits, self.draft, self.committed)
        emitted = _until_eog((*self.draft.tokens[: verdict.accepted], verdict.token), self._is_eog)
        scores = self._score(logits[: len(emitted)], emitted)
        self.committed += emitted
        return Verified(min(verdict.accepted, len(emitted)), emitted, scores)


def speculate(
    target: Context | TwoLayouts,
    prompt: Sequence[int],
    drafter: Drafter,
    rule: Rule,
    *,
    max_tokens: int,
    is_eog: Callable[[int], bool],
    max_width: int = MAX_WIDTH,
    score: Scorer = no_scores,
) -> Generator[Pass, None, None]:
    """Continue `prompt` pass by pass; the first pass is the prefill and emits one token.

    Whenever a pass is yielded, the target's cache holds all committed tokens (the prompt and what was
    emitted) but the last, which the next pass evaluates.

    Args:
        target: the target's cache; what it still holds of the prompt is not evaluated again.
        prompt: at least one token, fewer than `target.n_ctx`.
        drafter: proposes the drafts.
        rule: the acceptance rule.
        max_tokens: tokens to emit at the most, at least one; the context's end counts too.
        is_eog: tells tokens that end the generation; nothing behind one is emitted.
        max_width: tokens of a verification pass at the most: the draft and the one before it.
        score: gives log-probabilities of emitted tokens.
    """
    end = min(len(prompt) + max_tokens, target.n_ctx)
    text = Writing(prompt, drafter, rule, end=end, is_eog=is_eog, score=score)

    started = time.perf_counter()
    reused = target.keep_prefix(prompt)
    pending = text.committed[reused:]
    logits = target.prefill(pending)[None, :]
    drafting_seconds = 0.0
    drafter.begin(prompt, rule.propose)

    while True:
        done = text.verify(logits)
        target.truncate(len(text.committed) - 1)
        seconds = time.perf_counter() - started
        yield Pass(
            text.draft, done.accepted, done.emitted, done.scores, reused, len(pending), seconds, drafting_seconds
        )
        if text.is_over:
            return

        drafter.commit(done.emitted, seconds - drafting_seconds)
        started = time.perf_counter()
        pending = text.propose(max_width - 1)
        drafting_seconds = time.perf_counter() - started
        reused = len(text.committed) - 1
        logits = target.evaluate(pending)


def _until_eog(tokens: tuple[int, ...], is_eog: Callable[[int], bool]) -> tuple[int, ...]:
    """Cut behind the first token that ends a generation."""
    for i, token in enumerate(tokens):
        if is_eog(token):
            return tokens[: i + 1]
    return tokens
