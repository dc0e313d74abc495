"""How many texts speculation changes, with `exact` and without.

    python -m bench.differences [-m MODEL] [-d DRAFT] [--tokens N] [--questions FILE] [--exact]

Each question is answered plainly, with lookup and with the draft model; a text counts when any token differs.
Without `exact` this is what everybody else ships; with it the figure must be 0.
"""

from pathlib import Path

import click

from bench.questions import read_questions
from lcspec import GREEDY, SamplingParams, SpeculativeLM
from lcspec.limits import DrafterName

SAMPLINGS = {"temperature 0": GREEDY, "temperature 0.7": SamplingParams(temperature=0.7, seed=1)}


@click.command()
@click.option("-m", "--model", default="qwen2.5-coder-1.5b", show_default=True)
@click.option("-d", "--draft", default="qwen2.5-coder-0.5b", show_default=True)
@click.option("--tokens", default=150, show_default=True, help="Of each answer.")
@click.option("--questions", type=click.Path(exists=True, path_type=Path), help="JSON lines with 'turns' (Spec-Bench).")
@click.option("--count", default=20, show_default=True, help="Questions.")
@click.option("--exact", is_flag=True)
def main(model: str, draft: str, tokens: int, questions: Path | None, count: int, exact: bool) -> None:
    asked = read_questions(questions, count)
    drafters: tuple[DrafterName, ...] = ("lookup", "model")
    with SpeculativeLM(model, draft, n_ctx=4096, exact=exact, download=True) as lm:
        for name, sampling in SAMPLINGS.items():
            differing = dict.fromkeys(drafters, 0)
            said_exact = 0
            for question in asked:
                prompt = lm.chat_prompt([{"role": "user", "content": question}])
                lm.clear()
                plain = lm.generate(prompt, max_tokens=tokens, sampling=sampling, drafter="none")
                for drafter in drafters:
                    lm.clear()
                    drafted = lm.generate(prompt, max_tokens=tokens, sampling=sampling, drafter=drafter)
                    differing[drafter] += drafted.tokens != plain.tokens
                    said_exact += drafted.stats.exact is True
            counts = ", ".join(f"{drafter} {n}" for drafter, n in differing.items())
            print(
                f"{model}, {'exact' if exact else 'not exact'}, {name}: of {len(asked)} texts differ: {counts} "
                f"({said_exact} of {len(asked) * len(drafters)} runs were said to be exact)",
                flush=True,
            )


if __name__ == "__main__":
    main()
