"""Blocks of the target kept in a draft against how often its tokens are accepted.

    python -m bench.layers [-m MODEL] [--questions FILE] [--count N] [--tokens N] [--kept N,N,...] [--budget SETS]

For each number of blocks the set that the search finds (by built-in prompts, none of the questions) is compared with
the naive one, every second block or, where fewer are left out, as evenly spread: the cost of a token is the same. The
target answers the questions greedily and at temperature 0.8. On its words, behind the same tokens, we compute the share
of its greedy tokens that are the draft's likeliest, and the chance of acceptance under the coupled and the rejection
rule (see bench.acceptance), once with the prompt evaluated by all blocks (shared) and once by the draft's alone.
"""

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from bench.acceptance import rates_of
from bench.questions import read_questions
from lcspec import SamplingParams, SpeculativeLM
from lcspec.draft_figures import threads_of
from lcspec.gguf_edit import target_digest
from lcspec.hub import drafts_folder, find_model
from lcspec.layer_search import (
    Budget,
    Found,
    KeptScores,
    Sample,
    Scorer,
    SwitchedBlocks,
    Texts,
    agreed_tokens,
    search,
    text_digest,
)
from lcspec.llama import MAX_WIDTH, Header, State, read_header
from lcspec.sampling import Distribution, distribution

_CONTEXT = 1024
_DRAWN = SamplingParams(temperature=0.8, seed=1)


@dataclass(frozen=True)
class Answers:
    """What the target answered, and the distributions that it drew from."""

    greedy: list[Sample]
    drawn: list[Sample]
    targets: list[list[Distribution]]


class Judge:
    """Compares sets of blocks on a target's answers."""

    def __init__(self, blocks: SwitchedBlocks, greedy: list[Sample], drawn: list[Sample]) -> None:
        self._blocks = blocks
        self._states = {sample.prompt: self._prefilled(sample.prompt) for sample in greedy}
        targets = [self._distributions(sample, self._states[sample.prompt]) for sample in drawn]
        self._answers = Answers(greedy, drawn, targets)

    def row(self, skipped: Collection[int], *, shared: bool) -> tuple[float, float, float]:
        """Return the share of greedy tokens that are right, and the chances under two rules at the temperature."""
        self._blocks.skip(skipped)
        states = self._states if shared else {prompt: self._prefilled(prompt) for prompt in self._states}
        agreed = []
        for sample in self._answers.greedy:
            self._blocks.context.restore(states[sample.prompt])
            agreed.append(agreed_tokens(self._blocks.context, sample)[0])
        rates = []
        for sample, targets in zip(self._answers.drawn, self._answers.targets, strict=True):
            proposals = self._distributions(sample, states[sample.prompt])
            n_vocab = self._blocks.model.n_vocab
            rates += [rates_of(p, q, n_vocab)[1:] for p, q in zip(targets, proposals, strict=True)]
        self._blocks.skip(())
        coupled, rejection = (statistics.fmean(column) for column in zip(*rates, strict=True))
        return float(np.concatenate(agreed).mean()), coupled, rejection

    def _prefilled(self, prompt: tuple[int, ...]) -> State:
        self._blocks.context.clear()
        self._blocks.context.prefill(prompt[:-1])
        return self._blocks.context.save()

    def _distributions(self, sample: Sample, state: State) -> list[Distribution]:
        self._blocks.context.restore(state)
        tokens = [sample.prompt[-1], *sample.written[:-1]]
        found: list[Distribution] = []
        for start in range(0, len(tokens), MAX_WIDTH):
            rows = self._blocks.context.evaluate(tokens[start : start + MAX_WIDTH])
            found += [distribution(row, _DRAWN, list(sample.prompt)) for row in rows]
        return found


def naive(blocks: int, kept: int) -> list[int]:
    """Return the blocks to leave out: every second one, or as evenly spread where fewer are."""
    n = blocks - kept
    return sorted({int((i + 0.5) * blocks / n) for i in range(n)})


@click.command()
@click.option("-m", "--model", default="smollm2-135m", show_default=True)
@click.option("--questions", type=click.Path(exists=True, path_type=Path), help="JSON lines with 'turns' (Spec-Bench).")
@click.option("--count", default=20, show_default=True, help="Questions.")
@click.option("--tokens", default=64, show_default=True, help="Of each answer.")
@click.option("--kept", default="", help="Numbers of blocks, with commas between them [some, and half].")
@click.option("--budget", default=180, show_default=True, help="Sets of blocks that the search tries.")
@click.option("-t", "--threads", type=int, help="Threads [the usable physical cores].")
@click.option("--seed", default=0, show_default=True, help="Of the search.")
def main(
    model: str, questions: Path | None, count: int, tokens: int, kept: str, budget: int, threads: int | None, seed: int
) -> None:
    header = read_header(find_model(model, download=True))
    threads = threads or threads_of(header)
    greedy, drawn = [], []
    with SpeculativeLM(model, drafter="none", n_ctx=_CONTEXT, threads=threads, measure=False) as lm:
        for question in read_questions(questions, count):
            prompt = lm.chat_prompt([{"role": "user", "content": question}])
            greedy.append(Sample(tuple(prompt), lm.generate(prompt, max_tokens=tokens).tokens))
            drawn.append(Sample(tuple(prompt), lm.generate(prompt, max_tokens=tokens, sampling=_DRAWN).tokens))
    with SwitchedBlocks(header, _CONTEXT, threads, drafts_folder()) as blocks:
        total = blocks.n_layers
        numbers = [int(n) for n in kept.split(",")] if kept else [total - total // k for k in (10, 5, 4, 3, 2)]
        judge = Judge(blocks, greedy, drawn)
        positions = sum(len(sample.written) for sample in greedy)
        print(f"{model}, {len(greedy)} questions, {positions:,} greedy tokens; {budget} sets tried", flush=True)
        print(f"{'blocks':>6} {'choice':>9}  {'prompt':>6}  greedy  coupled 0.8  rejection 0.8  left out", flush=True)
        found = _searched(header, blocks, numbers, budget, seed)
        for number in numbers:
            for name, skipped in (("searched", found.best[total - number][0]), ("naive", naive(total, number))):
                for shared in (True, False):
                    right, coupled, rejection = judge.row(skipped, shared=shared)
                    print(
                        f"{number:6} {name:>9}  {'shared' if shared else 'own':>6}  {right:6.3f}  {coupled:11.3f}  "
                        f"{rejection:13.3f}  {','.join(map(str, sorted(skipped)))}",
                        flush=True,
                    )


def _searched(header: Header, blocks: SwitchedBlocks, numbers: Sequence[int], budget: int, seed: int) -> Found:
    """Search for the best sets of all these numbers of blocks together."""
    samples = Texts(header, (), blocks.context.threads).searched
    kept = KeptScores({"target": target_digest(header), "samples": text_digest(samples)})
    found = search(
        blocks.n_layers,
        Scorer(blocks, samples),
        known=kept.scores,
        budget=Budget(budget),
        seed=seed,
        wanted=blocks.n_layers - min(numbers),
        worth=lambda skipped, _: float(blocks.n_layers - skipped in numbers),
        tell=lambda share, found: kept.keep() if found.tried % 8 == 0 else None,
    )
    kept.keep()
    return found


if __name__ == "__main__":
    main()
