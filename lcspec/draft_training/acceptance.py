"""How often a draft head is right."""

from collections.abc import Sequence

import numpy as np

from lcspec.draft_head import HeadReader
from lcspec.draft_training.texts import Text

DEPTHS = 4
"""Tokens that are drafted one behind the other."""


def acceptance(reader: HeadReader, texts: Sequence[Text]) -> tuple[list[float], list[int]]:
    """Return by depth how often a head was right where it was right before, along texts, and out of how many."""
    right, tried = [0] * DEPTHS, [0] * DEPTHS
    for text in texts:
        tokens = text.tokens.tolist()
        reader.clear()
        reader.read(tokens[: text.n_prompt + 1])
        for at, state in enumerate(text.hidden.astype(np.float32), text.n_prompt):
            reader.follow(state[None], tokens[at : at + 1])
            reader.read(tokens[at + 1 : at + 2])
            foreseen = reader.start()
            for depth, i in enumerate(range(at + 2, min(at + 2 + DEPTHS, len(tokens)))):
                foreseen = reader.step(foreseen, tokens[i - 1])
                ids, logits = reader.logits(foreseen, tokens[i - 2 : i])
                tried[depth] += 1
                if ids[logits.argmax()] != tokens[i]:
                    break
                right[depth] += 1
    return [hits / max(n, 1) for hits, n in zip(right, tried, strict=True)], tried
