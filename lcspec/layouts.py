"""A target whose weights are loaded in two layouts, since prompts and text want different ones."""

import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from lcspec.errors import EvaluationError, ModelError
from lcspec.llama import Context, State
from lcspec.planner import BATCH, LayoutChoice

_log = logging.getLogger(__name__)


class TwoLayouts:
    """A cache that moves to the layout which evaluates the next tokens faster.

    llama.cpp lays weights out anew for decoding, which can be slower for many tokens at once. The other layout is
    that of the file, which is only mapped. Logits differ in rounding between the two. Has what `Context` has for a
    generation.

    Args:
        decoding: the context that decodes.
        load: loads the other context, with the same capacity, for a model of the same file; None where there is no
            memory for it.
        choice: decides where.
    """

    def __init__(self, decoding: Context, load: Callable[[], Context | None], choice: LayoutChoice) -> None:
        self.choice = choice
        self.is_mixed = False
        """Whether the other layout has evaluated some of what the cache holds."""
        self._batches = [0, 0]  # tokens of the last prompt, by layout
        self._moves = 0  # in its text
        self._decoding = decoding
        self._load = load
        self._other: Context | None = None
        self._can_load = True

    @property
    def layout(self) -> int:
        """Where the sequence is: 0 in the layout that decodes, 1 in the other."""
        return self.choice.here

    @property
    def _current(self) -> Context:
        return self._other if self.layout and self._other is not None else self._decoding

    @property
    def n_ctx(self) -> int:
        """Tokens that the cache holds."""
        return self._decoding.n_ctx

    @property
    def can_truncate(self) -> bool:
        """Whether `truncate` works."""
        return self._decoding.can_truncate

    def prefill(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append `tokens`, each batch where that is faster; then go where text is decoded."""
        start, self._batches, self._moves = 0, [0, 0], 0
        while True:
            self._go(self.choice.for_batch(len(tokens) - start, len(self._current.tokens)))
            end = min(start + BATCH, len(tokens))
            started = time.perf_counter()
            logits = self._current.prefill(tokens[start:end])
            self.choice.record_batch(self.layout, end - start, time.perf_counter() - started)
            self._batches[self.layout] += end - start
            self.is_mixed = self.is_mixed or self.layout == 1
            start = end
            if start >= len(tokens):
                break
        if self.layout == 0:
            return logits
        row: NDArray[np.float32] = logits.copy()  # its buffer is the other context's
        self._go(self.choice.for_text(len(self._current.tokens)))
        return row

    def evaluate(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Append `tokens` in one pass and return the logits behind each."""
        before = self.layout
        self._go(self.choice.wanted)
        self._moves += self.layout != before
        self.is_mixed = self.is_mixed or self.layout == 1
        return self._current.evaluate(tokens)

    @property
    def hidden(self) -> NDArray[np.float32] | None:
        """The final hidden states of the last `evaluate`."""
        return self._current.hidden

    def reason(self) -> str:
        """Say in words what was evaluated with the weights as the file has them; nothing where nothing was."""
        parts = []
        if self._batches[1]:
            speedup = self.choice.speedup()
            how = "to try that" if speedup is None else f"which is {speedup:.2f} times as fast"
            parts.append(
                f"{self._batches[1]:,} tokens of the prompt evaluated with the weights as the file has them, {how}"
            )
        if self._moves:
            parts.append(f"the text moved between weight layouts {self._moves:,} times, as long drafts paid there")
        return "; ".join(parts)

    def truncate(self, n_tokens: int) -> None:
        """Forget everything behind the first `n_tokens` tokens."""
        self._current.truncate(n_tokens)

    def keep_prefix(self, tokens: Sequence[int]) -> int:
        """Reduce the cache to its longest usable common prefix with `tokens` and return that length."""
        n = self._current.keep_prefix(tokens)
        if n == 0:
            self._begin()
        return n

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens that the cache holds."""
        return self._current.tokens

    @property
    def can_shift(self) -> bool:
        """Whether `cut` works."""
        return self._decoding.can_shift

    def cut(self, start: int, end: int) -> None:
        """Forget the tokens from `start` to `end`, and move up those behind."""
        self._current.cut(start, end)

    def save(self, start: int = 0) -> State:
        """Return a copy of the cache, from the token `start` on."""
        return self._current.save(start)

    def restore(self, state: State) -> None:
        """Replace the cache, where text is decoded."""
        self.clear()
        self._decoding.restore(state)

    def clear(self) -> None:
        """Forget everything."""
        self._decoding.clear()
        if self._other is not None:
            self._other.clear()
        self._begin()

    def close(self) -> None:
        """Free the other layout."""
        if self._other is not None:
            self._other.model.close()

    def _begin(self) -> None:
        """Begin anew, with an empty cache."""
        self.is_mixed = False
        self.choice.here = 0
        self.choice.stay()

    def _go(self, layout: int) -> None:
        """Move the sequence, if it has to and can."""
        if layout == self.layout:
            return
        if self._other is None and not self._load_other():
            self.choice.stay()
            return
        assert self._other is not None
        source, target = (self._other, self._decoding) if self.layout else (self._decoding, self._other)
        started = time.perf_counter()
        try:
            if source.tokens:
                target.restore(source.save())
            else:
                target.clear()
        except EvaluationError as error:
            _log.warning("the sequence stays in its weight layout: %s", error)
            self._can_load = False
            self.choice.stay()
            return
        self.choice.record_move(layout, len(source.tokens), time.perf_counter() - started)
        source.clear()

    def _load_other(self) -> bool:
        if not self._can_load:
            return False
        started = time.perf_counter()
        try:
            self._other = self._load()
        except ModelError as error:
            _log.info("no second weight layout: %s", error)
        self._can_load = self._other is not None
        if self._can_load:
            self.choice.record_loading(time.perf_counter() - started)
        return self._can_load
