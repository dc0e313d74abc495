"""How often a draft head is right, and what its tokens cost: `python -m bench.head --head FILE --questions FILE`."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lcspec.draft_head import HeadReader, TargetRows, head_for
from lcspec.draft_training.acceptance import acceptance
from lcspec.draft_training.copying import ALONE
from lcspec.draft_training.texts import Text
from lcspec.draft_training.token_cost import token_costs
from lcspec.draft_training.writer import write_texts
from lcspec.errors import ModelError
from lcspec.hub import find_model
from lcspec.llama import Model, SharedContext, read_header, usable_physical_cores
from lcspec.prompts import Prompts

_CONTEXT = 4096
_AT_ONCE = 8
_ROUNDS = 300  # of measuring costs
_LENGTHS = (1, 2, 4)  # of drafts


def held_out(path: Path, count: int) -> list[str]:
    """Return `count` questions, evenly from all of a file of JSON lines with 'turns'."""
    questions = [json.loads(line)["turns"][0] for line in path.read_text(encoding="utf-8").splitlines()]
    return questions[:: max(1, len(questions) // count)][:count]


def greedy_texts(model: Model, questions: Sequence[str], threads: int) -> list[Text]:
    """Return what the model answers, of 256 tokens at the most, with its hidden states."""
    n_ctx = min(_CONTEXT, model.n_ctx_train)
    made = Prompts(model, n_ctx)
    prompts = [made.chat([{"role": "user", "content": question}]) for question in questions]
    made.close()
    with SharedContext(model, _AT_ONCE * n_ctx, _AT_ONCE, threads=threads, apart=True, hidden=True) as context:
        written = write_texts(context, prompts, 0, set(), temperatures=((0.0,),))
        return list(written)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--head", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True, help="JSON lines with 'turns'")
    parser.add_argument("--held-out", type=int, default=40, help="questions, evenly from the file")
    parser.add_argument("--threads", type=int, default=usable_physical_cores())
    arguments = parser.parse_args()

    header = read_header(find_model(arguments.model, download=True))
    found = head_for(header, arguments.head)
    if found is None:
        raise ModelError(f"{arguments.head} is no draft head")
    head, _ = found
    rows = TargetRows(header)
    reader = HeadReader(head, rows)
    with Model(header) as model:
        texts = greedy_texts(model, held_out(arguments.questions, arguments.held_out), arguments.threads)
        written = np.concatenate([text.tokens[text.n_prompt + 1 :] for text in texts])
        print(f"{len(texts)} questions, {len(written):,} tokens, {np.isin(written, head.ids).mean():.1%} in the head's")
        foreseeing = HeadReader(replace(head, copying=np.array(ALONE, dtype=np.float32)), rows)
        for what, one in ("by what it foresees", foreseeing), ("and what it copies", reader):
            for depth, (share, n) in enumerate(zip(*acceptance(one, texts), strict=True), 1):
                print(f"{what}, depth {depth}: {share:.3f} of {n:,} accepted where those before were")
        longest = max(texts, key=lambda text: len(text.hidden))
        single, drafted = token_costs(model, reader, longest.tokens.tolist(), arguments.threads, _LENGTHS, _ROUNDS)
    print(f"a pass over one token takes {1000 * single:.2f} ms; the head reads {reader.size / 1e6:.1f} MB for a token")
    for length, seconds in drafted.items():
        print(f"a token of a draft of {length}: {1000 * seconds:.2f} ms, {seconds / single:.3f} of that pass")


if __name__ == "__main__":
    main()
