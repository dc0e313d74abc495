"""Plain decoding against llama-cpp-python's own, on the same file and threads.

    python -m bench.plain [-m MODEL]... [--repeats N]

Both continue the same prompts greedily, in turn; what counts is the time from the first token to the
last. Prints the median ratio of speeds, lcspec over llama_cpp.Llama.generate.
"""

import statistics
import time
from itertools import islice

import click
from llama_cpp import Llama

from lcspec import SpeculativeLM
from lcspec.hub import find_model

PROMPTS = [
    "Once upon a time, in a village by the sea,",
    "The history of the bicycle begins in",
    "def merge_sort(items):\n",
    "To bake a loaf of bread, first",
]
TOKENS = 100
CONTEXT = 1024


@click.command()
@click.option("-m", "--model", "models", multiple=True, default=["smollm2-135m"], help="Can be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True)
def main(models: tuple[str, ...], repeats: int) -> None:
    for name in models:
        ours = SpeculativeLM(name, drafter="none", n_ctx=CONTEXT, download=True)
        threads = ours.threads
        theirs = Llama(str(find_model(name)), n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False)
        ratios = []
        for _ in range(repeats):
            for prompt in PROMPTS:
                tokens = ours.target.tokenize(prompt)
                ratios.append(_seconds_of_llama(theirs, tokens) / _seconds_of_lcspec(ours, tokens))
        print(
            f"{name}: {statistics.median(ratios):.3f} times llama_cpp.Llama.generate "
            f"(median of {len(ratios)}, {min(ratios):.3f} to {max(ratios):.3f}; {threads} threads)",
            flush=True,
        )
        ours.close()
        theirs.close()


def _seconds_of_lcspec(engine: SpeculativeLM, tokens: list[int]) -> float:
    engine.clear()
    stats = engine.generate(tokens, max_tokens=TOKENS).stats
    return stats.decode_seconds / (stats.tokens - 1)


def _seconds_of_llama(llama: Llama, tokens: list[int]) -> float:
    llama.reset()
    generated = llama.generate(tokens, temp=0.0)
    next(generated)
    started = time.perf_counter()
    n = 0
    for token in islice(generated, TOKENS - 1):
        n += 1
        if token == llama.token_eos():
            break
    return (time.perf_counter() - started) / n


if __name__ == "__main__":
    main()
