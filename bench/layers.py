"""Blocks of the target kept in a draft against how often its tokens are accepted.

    python -m bench.layers [-m MODEL] [--questions FILE] [--count N] [--tokens N] [--kept N,N,...] [--budget SETS]

For each number of blocks the set that the search finds (by built-in prompts, none of the questions) is compared with
the naive one, every second block or, where fewer are left out, as evenly spread: the cost of a token is the same. The
target answers the questions greedily and at temperature 0.8. On its words, behind the same tokens, we compute the share
of its greedy tokens that are the draft's likeliest, and the chance of acceptance under the coupled and the rejection
rule (see bench.acceptance). The keys and values of what stands before a token are those of the draft alone ("none" are
the target's), with the target's of the prompt, or with the target's of all tokens that are verified: this is how drafts
of a target's blocks run.
"""

import statistics
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import click
import numpy as np
from numpy.typing import NDArray

from bench.acceptance import rates_of
from bench.questions import read_questions
from lcspec import SamplingParams, SpeculativeLM
from lcspec.draft_figures import threads_of
from lcspec.gguf_edit import target_digest
from lcspec.hub import drafts_folder, find_model
from lcspec.layer_search import (
    MOST_BRANCHES,
    BranchedText,
    Budget,
    Found,
    KeptScores,
    Sample,
    Scorer,
    SwitchedBlocks,
    Texts,
    search,
)
from lcspec.llama import MAX_WIDTH, Header, State, read_header
from lcspec.sampling import distribution

Cells: TypeAlias = Literal["none", "prompt", "all"]

_CONTEXT = 1024
_DRAWN = SamplingParams(temperature=0.8, seed=1)


class Judge:
    """Compares sets of blocks on a target's answers."""

    def __init__(self, blocks: SwitchedBlocks, greedy: list[Sample], drawn: list[Sample], threads: int) -> None:
        self._blocks = blocks
        self._greedy, self._drawn = greedy, drawn
        self._branched = BranchedText(blocks.model, _CONTEXT, threads)
        self._states = {sample.prompt: self._prefilled(sample) for sample in greedy}
        self._cells = {sample: self._branched.read([*sample.prompt, *sample.written]) for sample in (*greedy, *drawn)}
        self._targets = [self._rows(sample, "prompt") for sample in drawn]

    def row(self, skipped: Collection[int], cells: Cells) -> tuple[float, float, float]:
        """Return the share of greedy tokens that are right, and the chances under two rules at the temperature."""
        self._blocks.skip(skipped)
        right = [
            rows_of.argmax(axis=1) == sample.written
            for sample in self._greedy
            for rows_of in [self._rows(sample, cells)]
        ]
        rates = []
        n_vocab = self._blocks.model.n_vocab
        for sample, targets in zip(self._drawn, self._targets, strict=True):
            for p, q in zip(targets, self._rows(sample, cells), strict=True):
                prompt = list(sample.prompt)
                rates.append(rates_of(distribution(p, _DRAWN, prompt), distribution(q, _DRAWN, prompt), n_vocab)[1:])
        self._blocks.skip(())
        coupled, rejection = (statistics.fmean(column) for column in zip(*rates, strict=True))
        return float(np.concatenate(right).mean()), coupled, rejection

    def _prefilled(self, sample: Sample) -> State:
        self._blocks.context.clear()
        self._blocks.context.prefill(sample.prompt[:-1])
        return self._blocks.context.save()

    def _rows(self, sample: Sample, cells: Cells) -> NDArray[np.float32]:
        """Return the logits for each token that the target wrote."""
        tokens = [sample.prompt[-1], *sample.written[:-1]]
        rows = []
        if cells == "all":
            self._branched.recall(self._cells[sample])
            for start in range(0, len(tokens), MOST_BRANCHES):
                some = tokens[start : start + MOST_BRANCHES]
                first = len(sample.prompt) - 1 + start
                rows.append(self._branched.branch(range(first, first + len(some)), [[one] for one in some])[:, 0])
        else:
            self._blocks.context.restore(self._states[sample.prompt] if cells == "prompt" else self._prefilled(sample))
            for start in range(0, len(tokens), MAX_WIDTH):
                rows.append(self._blocks.context.evaluate(tokens[start : start + MAX_WIDTH]).copy())
        return np.concatenate(rows)


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
        numbers = [int(n) for n in kept.split(",")] if kept else [total - total // k for k in (14, 7, 5, 3, 2)]
        judge = Judge(blocks, greedy, drawn, threads)
        positions = sum(len(sample.written) for sample in greedy)
        print(f"{model}, {len(greedy)} questions, {positions:,} greedy tokens; {budget} sets tried", flush=True)
        print(f"{'blocks':>6} {'choice':>9}  {'shared':>8}  greedy  coupled 0.8  rejection 0.8  left out", flush=True)
        found = _searched(header, blocks, numbers, budget, seed)
        for number in numbers:
            for name, skipped in (("searched", found.best[total - number][0]), ("naive", naive(total, number))):
                for cells in get_args(Cells):
                    right, coupled, rejection = judge.row(skipped, cells)
                    print(
                        f"{number:6} {name:>9}  {cells:>8}  {right:6.3f}  {coupled:11.3f}  "
                        f"{rejection:13.3f}  {','.join(map(str, sorted(skipped)))}",
                        flush=True,
                    )


def _searched(header: Header, blocks: SwitchedBlocks, numbers: Sequence[int], budget: int, seed: int) -> Found:
    """Search for the best sets of all these numbers of blocks together."""
    samples = Texts(header, (), blocks.context.threads).searched
    kept = KeptScores(target_digest(header), samples)
    score = Scorer(blocks, samples, blocks.context.threads)
    found = search(
        blocks.n_layers,
        score,
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
