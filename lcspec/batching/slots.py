"""The sequences of a shared cache: those of texts that are written, and prefixes that may be of use again."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from lcspec.llama import PREFILL_BATCH, SharedContext, common_prefix_length


@dataclass(frozen=True)
class Prefix:
    """What the cache has of a prompt.

    Attributes:
        source: the sequence that begins like it; None without one.
        n_tokens: tokens that both begin with.
    """

    source: int | None
    n_tokens: int


NO_PREFIX = Prefix(None, 0)


class Slots:
    """Gives out sequences, which begin with the longest prefix that the cache has.

    A sequence that is given back is kept, as its text may go on or another prompt begin alike. When room is wanted,
    the least recently used ones go.

    Args:
        context: the cache.
        n_sequences: sequences of it.
        any_cut: whether any prefix may be used. Otherwise only whole batches of a prompt's beginning, as without a
            cache.
    """

    def __init__(self, context: SharedContext, n_sequences: int, *, any_cut: bool = True) -> None:
        self._context = context
        self._any_cut = any_cut
        self._free = list(reversed(range(n_sequences)))
        self._taken: set[int] = set()
        self._kept: OrderedDict[int, None] = OrderedDict()  # the least recently used first
        self._whole = [0] * n_sequences  # tokens that were evaluated in whole batches

    @property
    def n_taken(self) -> int:
        """Sequences of texts that are written."""
        return len(self._taken)

    @property
    def n_kept(self) -> int:
        """Sequences of prefixes."""
        return len(self._kept)

    def find(self, tokens: Sequence[int]) -> Prefix:
        """Return the longest prefix of tokens in the cache that can be used; never all of them."""
        best = NO_PREFIX
        for sequence in (*self._taken, *self._kept):
            n = common_prefix_length(self._context.tokens(sequence), tokens)
            n = self.usable(n if self._any_cut else min(n, self._whole[sequence]), len(tokens))
            if n > best.n_tokens and n >= self._context.least(sequence) and self._can_use(sequence, n):
                best = Prefix(sequence, n)
        return best

    def usable(self, n_tokens: int, n_prompt: int) -> int:
        """Return how many tokens of a common prefix can be used for a prompt."""
        n = min(n_tokens, n_prompt - 1)
        return n if self._any_cut else n // PREFILL_BATCH * PREFILL_BATCH

    def _can_use(self, sequence: int, n: int) -> bool:
        return self._context.can_truncate or (sequence in self._kept and n == len(self._context.tokens(sequence)))

    def fits(self, prefix: Prefix, n_tokens: int) -> bool:
        """Tell whether so many tokens fit behind a prefix, if nothing else is kept."""
        used = self._context.n_used_by(self._taken, prefix.source, prefix.n_tokens)
        return used + n_tokens <= self._context.n_ctx

    def take(self, prefix: Prefix) -> int:
        """Return a sequence that holds a prefix and nothing else."""
        source, n = prefix.source, prefix.n_tokens
        if source is not None and source in self._kept:
            if n == len(self._context.tokens(source)):
                del self._kept[source]
                self._taken.add(source)
                return source
            self._kept.move_to_end(source)
        if not self._free:
            self._drop_oldest()
        sequence = self._free.pop()
        self._taken.add(sequence)
        self._whole[sequence] = 0
        if source is not None:
            self._context.copy(source, sequence, n)
            self._whole[sequence] = min(self._whole[source], n)
        return sequence

    def note_whole(self, sequence: int, n_tokens: int) -> None:
        """Note that the first tokens of a sequence were evaluated in whole batches."""
        self._whole[sequence] = n_tokens

    def give_back(self, sequence: int, *, keep: bool = True) -> None:
        """Take a sequence back, for another text to go on from it."""
        self._taken.discard(sequence)
        if keep and self._context.tokens(sequence):
            self._kept[sequence] = None
        else:
            self._context.free(sequence)
            self._free.append(sequence)

    def make_room(self, n_tokens: int) -> bool:
        """Drop prefixes until there is room for so many tokens, and tell whether there is."""
        while self._context.n_free < n_tokens and self._kept:
            self._drop_oldest()
        return self._context.n_free >= n_tokens

    def _drop_oldest(self) -> None:
        sequence, _ = self._kept.popitem(last=False)
        self._context.free(sequence)
        self._free.append(sequence)
