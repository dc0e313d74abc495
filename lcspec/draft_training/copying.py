"""How much a draft head relies on what it foresees, and how much on what the sequence had before."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from lcspec.draft_head import HeadReader
from lcspec.draft_training.texts import Text

ALONE = (1.0, 0.0, 0.0)
"""Weights that rely on what is foreseen alone."""

_MOST, _LEAST = 4000, 40  # positions to learn from
_ROUNDS = 60
_IMPOSSIBLE = -1e9


def copying_weights(reader: HeadReader, texts: Sequence[Text]) -> NDArray[np.float32]:
    """Return the weights `Head.copying` that make texts likeliest, by maximum likelihood.

    They have to be texts that the head was not trained with: it knows the others by heart.
    """
    positions = list(islice(_positions(reader, texts), _MOST))
    if len(positions) < _LEAST:
        return np.array(ALONE, dtype=np.float32)
    longest = max(len(features) for features, _ in positions)
    features = torch.zeros(len(positions), longest, len(ALONE))
    impossible = torch.full((len(positions), longest), _IMPOSSIBLE)
    for i, (known, _) in enumerate(positions):
        features[i, : len(known)] = known
        impossible[i, : len(known)] = 0.0
    wanted = torch.tensor([place for _, place in positions])
    weights = torch.tensor(ALONE, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=_ROUNDS)

    def loss() -> Tensor:
        optimizer.zero_grad()
        found = functional.cross_entropy(features @ weights + impossible, wanted)
        found.backward()  # type: ignore[no-untyped-call]
        return found

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted = weights.detach().numpy()
    return np.maximum(fitted, 0.0) if np.isfinite(fitted).all() else np.array(ALONE, dtype=np.float32)


def _positions(reader: HeadReader, texts: Sequence[Text]) -> Iterator[tuple[Tensor, int]]:
    """Yield of each position of texts where the right token is a candidate what is known of all: shape (n, 3)."""
    for text in texts:
        tokens = text.tokens.tolist()
        reader.clear()
        reader.read(tokens[: text.n_prompt + 1])
        for at, state in enumerate(text.hidden[:-1].astype(np.float32), text.n_prompt):
            reader.follow(state[None], tokens[at : at + 1])
            reader.read(tokens[at + 1 : at + 2])
            foreseen = reader.step(reader.start(), tokens[at + 1])
            ids, own, counts = reader.candidates(foreseen, tokens[at : at + 2])
            place = np.flatnonzero(ids == tokens[at + 2])
            if place.size:
                yield torch.from_numpy(np.column_stack((own - own.max(), np.log1p(counts)))), int(place[0])
