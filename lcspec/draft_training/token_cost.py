"""What a draft head's tokens cost."""

import statistics
import time
from collections.abc import Sequence

from lcspec.draft_head import HeadReader
from lcspec.drafters import HeadDrafter
from lcspec.llama import Context, Model
from lcspec.rules import GreedyRule


def token_costs(
    model: Model, reader: HeadReader, tokens: Sequence[int], threads: int, lengths: Sequence[int], rounds: int
) -> tuple[float, dict[int, float]]:
    """Return the seconds of a target's pass over one token, and by length those of a draft's token: medians.

    Both are measured in turns, so that a busy moment hits both.

    Args:
        model: the target.
        reader: the head.
        tokens: behind which it is measured, three or more.
        threads: threads to evaluate with.
        lengths: of drafts.
        rounds: how often.
    """
    with Context(model, len(tokens) + 1, threads=threads, hidden=True) as context:
        drafter = HeadDrafter(reader, lambda: context.hidden, model.n_vocab, lambda _: False, max(lengths))
        drafter.begin(tokens[:1], GreedyRule().propose)
        for i in range(len(tokens) - 1):
            context.evaluate([tokens[i]])
            drafter.commit([tokens[i + 1]])
        end = len(context.tokens)
        passes: list[float] = []
        drafts: dict[int, list[float]] = {length: [] for length in lengths}
        for _ in range(rounds):
            for length in lengths:
                started = time.perf_counter()
                context.evaluate([tokens[-1]])
                between = time.perf_counter()
                n = len(drafter.propose(length).tokens)
                drafts[length].append((time.perf_counter() - between) / n)
                passes.append(between - started)
                context.truncate(end)
    return statistics.median(passes), {length: statistics.median(found) for length, found in drafts.items()}
