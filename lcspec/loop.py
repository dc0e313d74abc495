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
    committed = list(prompt)
    end = min(len(prompt) + max_tokens, target.n_ctx)

    started = time.perf_counter()
    reused = target.keep_prefix(prompt)
    pending = committed[reused:]
    logits = target.prefill(pending)[None, :]
    draft, drafting_seconds = NO_DRAFT, 0.0
    drafter.begin(prompt, rule.propose)

    while True:
        verdict = rule.verify(logits, draft, committed)
        emitted = _until_eog((*draft.tokens[: verdict.accepted], verdict.token), is_eog)
        scores = score(logits[: len(emitted)], emitted)
        committed += emitted
        target.truncate(len(committed) - 1)
        seconds = time.perf_counter() - started
        accepted = min(verdict.accepted, len(emitted))
        yield Pass(draft, accepted, emitted, scores, reused, len(pending), seconds, drafting_seconds)
        if len(committed) == end or is_eog(committed[-1]):
            return

        drafter.commit(emitted, seconds - drafting_seconds)
        started = time.perf_counter()
        limit = min(end - len(committed), max_width) - 1
        draft = drafter.propose(limit).first(limit)
        drafting_seconds = time.perf_counter() - started
        reused = len(committed) - 1
        pending = [committed[-1], *draft.tokens]
        logits = target.evaluate(pending)


def _until_eog(tokens: tuple[int, ...], is_eog: Callable[[int], bool]) -> tuple[int, ...]:
    """Cut behind the first token that ends a generation."""
    for i, token in enumerate(tokens):
        if is_eog(token):
            return tokens[: i + 1]
    return tokens
