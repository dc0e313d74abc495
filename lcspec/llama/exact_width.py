"""How wide a pass may be without its width showing in the logits, found by trying.

llama.cpp evaluates several tokens with other kernels than a lone one. Where they add in another order, logits
differ in their last bits, and now and then a text does. Which kernels run depends on the file, the processor,
the load options and the depth of the context, so this is probed and never assumed.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lcspec.llama.context import Context
from lcspec.llama.model import Model

SHALLOW = 256
"""Tokens of a context that llama.cpp treats alike: its cache grows in steps of as many cells."""

WIDEST_PROBED = 64
"""Tokens of the widest pass that is tried."""

_BLOCK = 64  # tokens that are evaluated once and copied to make a context deep
_COPIES = (4, 1, 1)  # of the whole context, one after the other: 320, 640 and 1,280 tokens
_DEEPEST = 1280
_WIDE = 16
_SECONDS = 2.0


@dataclass(frozen=True)
class ExactWidths:
    """The most tokens of a pass whose logits are bit for bit those of one-by-one evaluation.

    Attributes:
        shallow: up to `SHALLOW` tokens of context.
        deep: beyond them.
    """

    shallow: int
    deep: int

    def at(self, n_tokens: int) -> int:
        """Return the width for a pass that ends with `n_tokens` tokens in the cache."""
        return self.shallow if n_tokens <= SHALLOW else self.deep

    @property
    def everywhere(self) -> int:
        """The width that is exact at any depth."""
        return min(self.shallow, self.deep)

    def as_dict(self) -> dict[str, Any]:
        """Return the widths as JSON types."""
        return asdict(self)


NOT_PROBED = ExactWidths(1, 1)
"""What is certain without a probe."""


def probe_exact_widths(
    model: Model, *, threads: int | None = None, batch_invariant: bool = False, seconds: float = _SECONDS
) -> ExactWidths:
    """Find the exact widths of a loaded model; takes a second or two and less memory than a short prompt.

    Every width is tried in a shallow context until one differs (up to 16, and up to 64 within `seconds`), and
    what held there in deeper ones, whose attention takes other paths.

    Args:
        model: a loaded model.
        threads: as of the `Context` that the widths are for.
        batch_invariant: the same.
        seconds: when to end with more than 16 tokens; a width that was not tried is not claimed.
    """
    with Context(
        model, _DEEPEST + WIDEST_PROBED, threads=threads, batch_invariant=batch_invariant, repeatable=True
    ) as context:
        if not context.can_truncate:
            return NOT_PROBED
        tokens = _tokens(model, _BLOCK + WIDEST_PROBED)
        context.prefill(tokens[:_BLOCK])
        shallow = _exact_width(context, tokens[_BLOCK:], range(2, WIDEST_PROBED + 1), seconds)
        deep = shallow
        for copies in _COPIES:
            if deep > 1:
                if not context.repeat(copies):
                    context.prefill(context.tokens * copies)
                deep = _exact_width(context, tokens[_BLOCK:], sorted({2, deep}), seconds)
        return ExactWidths(shallow, deep)


def _exact_width(context: Context, tokens: list[int], widths: Iterable[int], seconds: float) -> int:
    """Return the last of the ascending `widths` before one that differs, 1 if the first does."""
    base = len(context.tokens)
    alone: list[Any] = []
    exact = 1
    started = time.perf_counter()
    for width in widths:
        alone += [context.evaluate([token])[0].copy() for token in tokens[len(alone) : width]]  # behind equal bits
        context.truncate(base)
        together = context.evaluate(tokens[:width])
        if together.tobytes() != np.stack(alone[:width]).tobytes():
            break
        exact = width
        if width >= _WIDE and time.perf_counter() - started > seconds:
            break
    context.truncate(base)
    return exact


def _tokens(model: Model, n: int) -> list[int]:
    """Return tokens that are no padding, the same ones each time."""
    found: list[int] = []
    random = np.random.default_rng(0)
    while len(found) < n:
        token = int(random.integers(model.n_vocab))
        if not model.is_padding(token):
            found.append(token)
    return found
