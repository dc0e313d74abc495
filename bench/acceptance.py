"""How often each acceptance rule accepts a token of a draft model.

    python -m bench.acceptance [-m MODEL] [-d DRAFT] [--tokens N] [--questions FILE]

The target writes answers at each temperature; at every position its distribution p and the draft's q are taken
behind the same text, and the chance of acceptance is computed from them, so that no luck is in the figures:

    match      p(x), x the draft's likeliest token (a greedy draft, the target's sample compared with it)
    coupled    sum over x of 1 / sum over y of max(p(y)/p(x), q(y)/q(x)) (both choose x with the same Gumbel noise)
    rejection  sum over x of min(p(x), q(x)), the most that any rule can accept
"""

import statistics
from pathlib import Path

import click
import numpy as np

from bench.questions import read_questions
from lcspec import SamplingParams, SpeculativeLM
from lcspec.hub import find_model
from lcspec.llama import MAX_WIDTH, Context, Model
from lcspec.sampling import Distribution, distribution

SETTINGS = {
    "temperature 1.0": SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1),
    "temperature 0.8, top-k 40, top-p 0.95": SamplingParams(temperature=0.8, min_p=0.0, seed=1),
}


@click.command()
@click.option("-m", "--model", default="qwen2.5-coder-1.5b", show_default=True)
@click.option("-d", "--draft", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--tokens", default=100, show_default=True, help="Of each answer.")
@click.option("--questions", type=click.Path(exists=True, path_type=Path), help="JSON lines with 'turns' (Spec-Bench).")
def main(model: str, draft: str, tokens: int, questions: Path | None) -> None:
    asked = read_questions(questions, 12)
    with (
        SpeculativeLM(model, drafter="none", n_ctx=2048, download=True) as lm,
        Model(find_model(draft, download=True)) as draft_model,
        Context(lm.target, 2048) as target_context,
        Context(draft_model, 2048) as draft_context,
    ):
        for name, sampling in SETTINGS.items():
            rates: list[tuple[float, float, float]] = []
            for question in asked:
                prompt = lm.chat_prompt([{"role": "user", "content": question}])
                written = lm.generate(prompt, max_tokens=tokens, sampling=sampling).tokens
                targets = _distributions(target_context, prompt, written, sampling)
                proposals = _distributions(draft_context, prompt, written, sampling)
                rates += [rates_of(p, q, lm.target.n_vocab) for p, q in zip(targets, proposals, strict=True)]
            match, coupled, rejection = (statistics.fmean(column) for column in zip(*rates, strict=True))
            print(
                f"{name}: match {match:.3f}, coupled {coupled:.3f}, rejection {rejection:.3f} "
                f"({len(rates):,} positions of {len(asked)} answers)",
                flush=True,
            )


def _distributions(
    context: Context, prompt: list[int], written: tuple[int, ...], sampling: SamplingParams
) -> list[Distribution]:
    """Return a model's distributions for the positions of a text behind a prompt."""
    context.clear()
    found = [distribution(context.prefill(prompt), sampling, prompt)]
    for start in range(0, len(written) - 1, MAX_WIDTH):
        rows = context.evaluate(written[start : min(start + MAX_WIDTH, len(written) - 1)])
        found += [distribution(row, sampling, prompt) for row in rows]
    return found


def rates_of(target: Distribution, proposal: Distribution, n_vocab: int) -> tuple[float, float, float]:
    """Return the chances that a token is accepted by match, coupled and rejection."""
    p, q = np.zeros(n_vocab), np.zeros(n_vocab)
    p[target.tokens] = np.exp(target.log_probs)
    inside = proposal.tokens < n_vocab
    q[proposal.tokens[inside]] = np.exp(proposal.log_probs[inside])
    both = np.flatnonzero((p > 1e-9) & (q > 1e-9))
    likely = np.flatnonzero((p > 1e-9) | (q > 1e-9))
    coupled = sum(1 / np.maximum(p[likely] / p[x], q[likely] / q[x]).sum() for x in both[p[both] * q[both] > 1e-10])
    return float(p[q.argmax()]), float(coupled), float(np.minimum(p, q).sum())


if __name__ == "__main__":
    main()
