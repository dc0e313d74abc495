"""Pearson's chi-square test, for tests of what is random."""

import math

import numpy as np
from numpy.typing import ArrayLike

FEWEST = 10  # expected counts in a cell, below which cells are taken together


def p_value(counts: ArrayLike, expected: ArrayLike) -> float:
    """Return how likely counts are at least this far from the expected; 0 for any that can't be."""
    counts, expected = np.ravel(counts).astype(float), np.ravel(expected).astype(float)
    if counts[expected == 0].any():
        return 0.0
    rare = expected < FEWEST
    if expected[rare].sum() >= FEWEST:
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    else:
        counts, expected = counts[~rare], expected[~rare]
    statistic = float(np.sum((counts - expected) ** 2 / expected))
    return upper_gamma((expected.size - 1) / 2, statistic / 2)


def upper_gamma(a: float, x: float) -> float:
    """Return the regularized upper incomplete gamma function Q(a, x)."""
    scale = math.exp(a * math.log(x) - x - math.lgamma(a)) if x > 0 else 0.0
    if x < a + 1:  # series of the lower function
        term = total = 1 / a
        n = a
        while term > total * 1e-15:
            n += 1
            term *= x / n
            total += term
        return 1 - scale * total
    fraction = 0.0  # continued fraction, from the inside out
    for n in range(2000, 0, -1):
        fraction = n * (n - a) / (x + 2 * n + 1 - a - fraction)
    return scale / (x + 1 - a - fraction)
