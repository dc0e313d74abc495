"""Time to the first token of a long prompt, in one weight layout and in two.

    python -m bench.first_token [--model M] [--tokens N] [--repeats N]

The prompt is evaluated from an empty cache, in turn by an engine with one weight layout and by one that may
evaluate prompts with the weights as the file has them; run `lcspec tune` before. Prints the medians and their ratio.
"""

import statistics

import click

from lcspec import SpeculativeLM


@click.command()
@click.option("--model", default="qwen2.5-coder-1.5b", show_default=True)
@click.option("--tokens", default=1000, show_default=True, help="Tokens of the prompt.")
@click.option("--repeats", default=3, show_default=True)
def main(model: str, tokens: int, repeats: int) -> None:
    with (
        SpeculativeLM(model, one_layout=True, measure=False, download=True) as one,
        SpeculativeLM(model, measure=False, download=True) as two,
    ):
        prompt = [(7919 * i) % 20_000 + 100 for i in range(tokens)]
        times: dict[str, list[float]] = {"one layout": [], "two layouts": []}
        for _ in range(repeats):
            for name, lm in (("one layout", one), ("two layouts", two)):
                times[name].append(_seconds(lm, prompt))
        completion = two.generate(prompt, max_tokens=1)
        for name, found in times.items():
            print(f"{name:12}{statistics.median(found):8.2f} s  ({', '.join(f'{one:.2f}' for one in found)})")
        ratio = statistics.median(times["one layout"]) / statistics.median(times["two layouts"])
        reasons = completion.stats.plan.reasons if completion.stats.plan else []
        print(f"the first token of {tokens:,} came {ratio:.2f} times as fast; {'; '.join(reasons[1:])}")


def _seconds(lm: SpeculativeLM, prompt: list[int]) -> float:
    lm.clear()
    return lm.generate(prompt, max_tokens=1).stats.prefill_seconds


if __name__ == "__main__":
    main()
