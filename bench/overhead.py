"""Time per target pass that is not llama.cpp's evaluation.

    python -m bench.overhead [-m MODEL]...

Drafting by lookup at 2,000 tokens of context, through the loop and the text assembly: once while the
model edits a file, and once while it copies one, where nearly every draft is accepted whole and all of
its rows of logits are read, the most work that a pass can be.
"""

import statistics
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path

import click

from lcspec.drafters import LookupDrafter
from lcspec.hub import find_model
from lcspec.llama import Context, Model
from lcspec.loop import Pass, speculate
from lcspec.rules import GreedyRule
from lcspec.stats import Stats
from lcspec.stream import Stream

CONTEXT = 2000
TOKENS = 300


@click.command()
@click.option("-m", "--model", "models", multiple=True, default=["smollm2-135m"], help="Can be repeated.")
def main(models: tuple[str, ...]) -> None:
    for name in models:
        with Model(find_model(name, download=True)) as model:
            source = model.tokenize(Path(statistics.__file__).read_text(encoding="utf-8"))
            instruction = model.tokenize("# The same module, with type hints for all functions:\n\n")
            editing = source[: CONTEXT - len(instruction)] + instruction
            copying = source[: CONTEXT // 2] * 2
            for workload, prompt in (("editing", editing), ("copying", copying)):
                _report(f"{name}, {workload}", model, prompt)


def _report(label: str, model: Model, prompt: list[int]) -> None:
    overheads, tokens_per_pass = _measure(model, prompt)
    milliseconds = sorted(1e3 * overhead for overhead in overheads)
    print(
        f"{label}: median {statistics.median(milliseconds):.3f} ms a pass outside llama.cpp, "
        f"90 % under {milliseconds[len(milliseconds) * 9 // 10]:.3f} ms "
        f"({model.n_vocab:,} tokens in the vocabulary, {len(milliseconds)} passes of {tokens_per_pass:.1f} tokens)",
        flush=True,
    )


def _measure(model: Model, prompt: list[int]) -> tuple[list[float], float]:
    """Return the seconds outside llama.cpp of each pass, and the tokens per pass."""
    context = Context(model, CONTEXT + TOKENS + 1)
    marks: list[tuple[float, float]] = []

    def marked(passes: Generator[Pass, None, None]) -> Generator[Pass, None, None]:
        for done in passes:
            marks.append((time.perf_counter(), context.seconds))
            yield done

    drafter = LookupDrafter(model.is_eog)
    passes = speculate(context, prompt, drafter, GreedyRule(), max_tokens=TOKENS, is_eog=model.is_eog)
    stats = Stats(prompt_tokens=len(prompt))
    stream = Stream(marked(passes), model, stats, TOKENS, stop=["never written"])
    for _ in stream:
        pass
    overheads = [
        (wall - earlier_wall) - (inside - earlier_inside)
        for (earlier_wall, earlier_inside), (wall, inside) in pairwise(marks)
    ]
    return overheads, stream.completion.stats.tokens_per_pass


if __name__ == "__main__":
    main()
