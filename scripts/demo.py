"""Correct a sample text with SmolLM2-135M, plainly and speculatively, and compare."""

import statistics
import sys
from pathlib import Path

from lcspec import Completion, LcspecError, SpeculativeLM
from lcspec.cli.report import announce_long_work, summary
from lcspec.engine import DrafterName

MODEL = "smollm2-135m"
REPEATS = 5


def main() -> None:
    """Run both in turn and print the text, both speeds and whether the texts are the same."""
    announce_long_work()
    sample = Path(__file__).with_name("sample.txt").read_text(encoding="utf-8").strip()
    prompt = f"Draft:\n{sample}\n\nThe same text without spelling mistakes:\n"
    with SpeculativeLM(MODEL, exact=True, download=True) as lm:

        def edit(drafter: DrafterName) -> Completion:
            lm.clear()
            return lm.generate(prompt, stop=["\n"], max_tokens=150, drafter=drafter)

        runs = [(edit("none"), edit("auto")) for _ in range(REPEATS)]
    plain, speculative = runs[-1]
    print(f"before: {sample}\n\nafter:  {speculative.text}\n")
    print(f"plain:        {_speed([run for run, _ in runs]):6.1f} tokens/s")
    print(f"speculative:  {_speed([run for _, run in runs]):6.1f} tokens/s   {summary(speculative.stats)}")
    same = all(a.tokens == b.tokens == plain.tokens for a, b in runs)
    print(f"medians of {REPEATS} runs; the texts are {'the same' if same else 'NOT the same'}")
    sys.exit(0 if same else 1)


def _speed(completions: list[Completion]) -> float:
    return statistics.median(completion.stats.tokens_per_second for completion in completions)


if __name__ == "__main__":
    try:
        main()
    except LcspecError as error:
        sys.exit(f"lcspec: {error}")
