"""Recordings: what models wrote, to replay without a model.

    python -m bench.recordings OUT --model M [--draft D] [--questions FILE] [--per-category N] [--category TEXT]...
    python -m bench.recordings OUT --model M [--draft D] [--questions FILE] --to-fit

Writes a line of JSON for each question of `bench.workloads`, or of `bench.fitting_work`, which asks other things: the
tokens of the prompt and of the answer (greedy), and what the draft model would have proposed for each token of the
answer, with the probability it gave it.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np

from bench.fitting_work import fitting_work
from bench.workloads import Question, own_work, spec_bench
from lcspec import SpeculativeLM
from lcspec.hub import find_model
from lcspec.llama import MAX_WIDTH, Context, Model, read_header

_CONTEXT = 4096


@dataclass(frozen=True)
class Recording:
    """One answer.

    Attributes:
        model: the name of the model that wrote it.
        category: the kind of work.
        prompt: token ids.
        text: token ids of the answer, an end-of-generation token included.
        draft_tokens: the draft model's likeliest token in place of each of the answer's; empty without one.
        draft_probabilities: what the draft model gave it.
        digits: the tokens of 0 to 9, where digits have tokens of their own.
        ends: those of its tokens that end a generation.
    """

    model: str
    category: str
    prompt: tuple[int, ...]
    text: tuple[int, ...]
    draft_tokens: tuple[int, ...] = ()
    draft_probabilities: tuple[float, ...] = ()
    digits: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()


def read_recordings(path: Path) -> list[Recording]:
    """Return the recordings of a file."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
        found.append(Recording(**fields))
    return found


def record(model: str, draft: str | None, questions: list[Question]) -> Iterator[Recording]:
    """Let a model answer, and a draft model guess."""
    with ExitStack() as stack:
        lm = stack.enter_context(SpeculativeLM(model, n_ctx=_CONTEXT, download=True))
        guesses = None
        if draft is not None:
            draft_model = stack.enter_context(Model(read_header(find_model(draft, download=True))))
            guesses = Context(draft_model, _CONTEXT)
        for question in questions:
            prompt = lm.chat_prompt(question.messages())
            text = list(lm.generate(prompt, max_tokens=question.max_tokens).tokens)
            guessed = ([], []) if guesses is None else _guess(guesses, prompt, text)
            yield recorded(model, lm.target, question.category, prompt, text, *guessed)


def recorded(
    model: str,
    target: Model,
    category: str,
    prompt: Sequence[int],
    text: Sequence[int],
    draft_tokens: Sequence[int] = (),
    draft_probabilities: Sequence[float] = (),
) -> Recording:
    """Return the recording of an answer."""
    return Recording(
        model,
        category,
        tuple(prompt),
        tuple(text),
        tuple(draft_tokens),
        tuple(draft_probabilities),
        target.digits,
        tuple(sorted(filter(target.is_eog, {*prompt, *text}))),
    )


def _guess(context: Context, prompt: list[int], text: list[int]) -> tuple[list[int], list[float]]:
    """Return the draft model's likeliest token at each position of `text`, and its probability."""
    context.keep_prefix(prompt)
    rows = [context.prefill(prompt[len(context.tokens) :]).copy()[None, :]]
    tokens: list[int] = []
    probabilities: list[float] = []
    for start in range(0, len(text), MAX_WIDTH):
        chunk = text[start : start + MAX_WIDTH]
        logits = np.concatenate([rows[-1][-1:], context.evaluate(chunk)])
        rows = [logits]
        best = logits[:-1].argmax(axis=1)
        tokens += best.tolist()
        highest = logits[np.arange(len(chunk)), best]
        probabilities += (1 / np.exp(logits[:-1] - highest[:, None]).sum(axis=1)).round(4).tolist()
    return tokens, probabilities


def _benchmarked(per_category: int, questions: Path | None) -> list[Question]:
    return own_work(per_category) + ([] if questions is None else spec_bench(questions, per_category))


@click.command()
@click.argument("out", type=click.File("w", encoding="utf-8"))
@click.option("--model", default="smollm2-135m", show_default=True)
@click.option("--draft", help="A draft model.")
@click.option("--questions", type=click.Path(exists=True, path_type=Path), help="Spec-Bench's questions.")
@click.option("--per-category", default=5, show_default=True)
@click.option("--category", "categories", multiple=True, help="Only categories with this in their names.")
@click.option("--to-fit", is_flag=True, help="Ask what acceptance is fitted on, not what the benchmarks ask.")
def main(
    out: TextIO,
    model: str,
    draft: str | None,
    questions: Path | None,
    per_category: int,
    categories: tuple[str, ...],
    to_fit: bool,
) -> None:
    asked = fitting_work(questions) if to_fit else _benchmarked(per_category, questions)
    if categories:
        asked = [question for question in asked if any(name in question.category for name in categories)]
    for i, recording in enumerate(record(model, draft, asked), start=1):
        out.write(json.dumps(asdict(recording)) + "\n")
        out.flush()
        click.echo(f"{i} of {len(asked)}: {recording.category}, {len(recording.text)} tokens", err=True)


if __name__ == "__main__":
    main()
