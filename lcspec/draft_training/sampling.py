"""How a target's next token is chosen where it writes what a draft head learns from."""

import numpy as np
from numpy.typing import NDArray


def sampled(logits: NDArray[np.float32], temperature: float, random: np.random.Generator, unlikely: float) -> int:
    """Return a token by the Gumbel-max trick.

    Args:
        logits: shape (n_vocab,).
        temperature: above 0.
        random: what decides.
        unlikely: a token whose logit is so much times the temperature below the largest is never chosen.
    """
    tokens = np.flatnonzero(logits >= logits.max() - unlikely * temperature)
    return int(tokens[np.argmax(logits[tokens] / temperature + random.gumbel(size=tokens.size))])
