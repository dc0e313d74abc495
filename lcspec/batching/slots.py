"""The sequences of a shared cache, and what is kept of texts that ended."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lcspec.errors import EvaluationError
from lcspec.llama import PREFILL_BATCH, SharedContext, State, common_prefix_length, free_memory


@dataclass(frozen=True, eq=False)
class Kept:
    """The cells of a text that ended.

    Attributes:
        state: the cells.
        n_whole: tokens that were evaluated in whole batches.
    """

    state: State
    n_whole: int


@dataclass(frozen=True)
class Prefix:
    """What is there already of a prompt.

    Attributes:
        source: the sequence or what is kept of one that begins like it; None without one.
        n_tokens: tokens that both begin with.
    """

    source: int | Kept | None
    n_tokens: int


NO_PREFIX = Prefix(None, 0)
_SPARE = 4  # memory that has to be free for something to be kept, in its size
_ROOM = 2  # tokens that are kept, in those that the cache holds
_DEARER = 32  # times dearer, at the least, is evaluating a token than restoring one
_log = logging.getLogger(__name__)


class Slots:
    """Gives out sequences, which begin with the longest prefix that there is.

    What a sequence held is kept when it is given back, as its text may go on or another prompt begin alike. It is not
    kept in the cache: attention looks at every cell of that, of whatever sequence, which costs a token 0.2 microseconds
    a cell with a model of 135M. All that is kept has at most twice as many tokens as the cache, and goes, the least
    recently used first, where memory runs short.

    Args:
        context: the cache.
        any_cut: whether any prefix may be used. Otherwise only whole batches of a prompt's beginning, as without a
            cache.
    """

    def __init__(self, context: SharedContext, *, any_cut: bool = True) -> None:
        self._context = context
        self._any_cut = any_cut
        self._free = list(reversed(range(context.n_sequences)))
        self._taken: set[int] = set()
        self._kept: deque[Kept] = deque()  # the least recently used first
        self._whole = [0] * context.n_sequences  # tokens that were evaluated in whole batches

    @property
    def n_taken(self) -> int:
        """Sequences of texts that are written."""
        return len(self._taken)

    @property
    def n_kept(self) -> int:
        """Texts of which something is kept."""
        return len(self._kept)

    def find(self, tokens: Sequence[int]) -> Prefix:
        """Return the longest prefix of tokens that can be used; never all of them."""
        best = NO_PREFIX
        for sequence in self._taken if self._context.can_truncate else ():
            n = self._in_common(self._context.tokens(sequence), self._whole[sequence], tokens)
            if n > best.n_tokens and n >= self._context.least(sequence):
                best = Prefix(sequence, n)
        for kept in reversed(self._kept):
            n = self._in_common(kept.state.tokens, kept.n_whole, tokens)
            if n > best.n_tokens and self._is_of_use(kept, n):
                best = Prefix(kept, n)
        return best

    def _is_of_use(self, kept: Kept, n: int) -> bool:
        """Tell whether the first `n` tokens of what is kept can be had, and are worth restoring all of it."""
        size = len(kept.state.tokens)
        if n < size and not self._context.can_cut_restored:
            return False
        return size <= min(self._context.n_free, _DEARER * n)

    def _in_common(self, source: Sequence[int], n_whole: int, tokens: Sequence[int]) -> int:
        n = common_prefix_length(source, tokens)
        return self.usable(n if self._any_cut else min(n, n_whole), len(tokens))

    def usable(self, n_tokens: int, n_prompt: int) -> int:
        """Return how many tokens of a common prefix can be used for a prompt."""
        n = min(n_tokens, n_prompt - 1)
        return n if self._any_cut else n // PREFILL_BATCH * PREFILL_BATCH

    def fits(self, prefix: Prefix, n_tokens: int) -> bool:
        """Tell whether so many tokens fit behind a prefix."""
        if isinstance(prefix.source, Kept):
            return max(prefix.n_tokens + n_tokens, len(prefix.source.state.tokens)) <= self._context.n_free
        return n_tokens <= self._context.n_free

    def take(self, prefix: Prefix) -> int:
        """Return a sequence that holds a prefix, or nothing where what is kept of it can't be restored."""
        sequence, source, n = self._free.pop(), prefix.source, prefix.n_tokens
        self._taken.add(sequence)
        self._whole[sequence] = 0
        if isinstance(source, Kept):
            self._kept.remove(source)
            try:
                self._context.restore(sequence, source.state)
            except EvaluationError:
                return sequence
            self._kept.append(source)
            self._context.truncate(sequence, n)
            self._whole[sequence] = min(source.n_whole, n)
        elif source is not None:
            self._context.copy(source, sequence, n)
            self._whole[sequence] = min(self._whole[source], n)
        return sequence

    def note_whole(self, sequence: int, n_tokens: int) -> None:
        """Note that the first tokens of a sequence were evaluated in whole batches."""
        self._whole[sequence] = n_tokens

    def give_back(self, sequence: int, *, keep: bool = True) -> None:
        """Take a sequence back, and keep what it holds for another text to go on from it."""
        self._taken.discard(sequence)
        if keep and self._context.tokens(sequence):
            self._keep(sequence)
        self._context.free(sequence)
        self._free.append(sequence)

    def _keep(self, sequence: int) -> None:
        self._forget_beginnings(self._context.tokens(sequence))
        least_free = _SPARE * self._context.n_bytes(sequence)
        while self._kept and free_memory() < least_free:
            self._kept.popleft()
        if free_memory() < least_free:
            return
        try:
            state = self._context.save(sequence)
        except (EvaluationError, MemoryError):
            _log.warning("a text could not be kept", exc_info=True)
            return
        self._kept.append(Kept(state, self._whole[sequence]))
        while sum(len(kept.state.tokens) for kept in self._kept) > _ROOM * self._context.n_ctx:
            self._kept.popleft()

    def _forget_beginnings(self, tokens: Sequence[int]) -> None:
        """Forget what is of no more use, as it is the beginning of what will be kept."""
        if self._context.can_cut_restored:
            for kept in [kept for kept in self._kept if len(kept.state.tokens) <= len(tokens)]:
                if common_prefix_length(kept.state.tokens, tokens) == len(kept.state.tokens):
                    self._kept.remove(kept)
