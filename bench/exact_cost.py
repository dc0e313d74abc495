"""What `exact` costs: time to first token and plain decoding behind a long prompt, against the default.

    python -m bench.exact_cost [-m MODEL]... [--prompt N] [--repeats N]

Both engines take the same prompt in turn; prints the medians of the ratios, exact over default.
"""

import inspect
import statistics
import textwrap

import click

from lcspec import SpeculativeLM

TOKENS = 50


@click.command()
@click.option("-m", "--model", "models", multiple=True, default=["smollm2-135m"], help="Can be repeated.")
@click.option("--prompt", "n_prompt", default=1500, show_default=True, help="Tokens.")
@click.option("--repeats", default=5, show_default=True)
def main(models: tuple[str, ...], n_prompt: int, repeats: int) -> None:
    text = inspect.getsource(textwrap) * 2
    for name in models:
        engines = [
            SpeculativeLM(name, drafter="none", n_ctx=n_prompt + TOKENS + 1, exact=exact, download=True)
            for exact in (False, True)
        ]
        prompt = engines[0].target.tokenize(text)[:n_prompt]
        first, decode = [], []
        for _ in range(repeats):
            runs = []
            for lm in engines:
                lm.clear()
                runs.append(lm.generate(prompt, max_tokens=TOKENS).stats)
            default, exact = runs
            first.append(exact.prefill_seconds / default.prefill_seconds)
            decode.append((exact.decode_seconds / exact.tokens) / (default.decode_seconds / default.tokens))
        print(
            f"{name}, {len(prompt):,} tokens: first token {statistics.median(first):.3f} times as late, "
            f"decoding {statistics.median(decode):.3f} times as long a token ({repeats} repeats)",
            flush=True,
        )
        for lm in engines:
            lm.close()


if __name__ == "__main__":
    main()
