"""Who holds which cells of a shared cache."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Run(NamedTuple):
    """Cells of a row of positions that the same sequences share.

    Attributes:
        sharers: the sequences.
        start: the first position.
        end: the position behind the last.
    """

    sharers: tuple[int, ...]
    start: int
    end: int


class Cells:
    """The tokens of sequences, and the cells that hold them; sequences may share those of a common prefix.

    Args:
        n_sequences: sequences, which are numbered from 0.
    """

    def __init__(self, n_sequences: int) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(n_sequences)]
        """By sequence."""
        self._cells: list[list[int]] = [[] for _ in range(n_sequences)]  # a number for each token's
        self._uses: Counter[int] = Counter()  # by cell, the sequences that share it
        self._n_ever = 0

    @property
    def n_used(self) -> int:
        """Cells in use; a shared one counts once."""
        return len(self._uses)

    def append(self, sequence: int, tokens: Sequence[int]) -> None:
        """Put tokens behind a sequence, in cells of their own."""
        cells = range(self._n_ever, self._n_ever + len(tokens))
        self._n_ever += len(tokens)
        self.tokens[sequence] += map(int, tokens)
        self._cells[sequence] += cells
        for cell in cells:
            self._uses[cell] = 1

    def truncate(self, sequence: int, n_tokens: int) -> None:
        """Take away what is behind the first tokens of a sequence."""
        for cell in self._cells[sequence][n_tokens:]:
            self._uses[cell] -= 1
            if not self._uses[cell]:
                del self._uses[cell]
        del self.tokens[sequence][n_tokens:], self._cells[sequence][n_tokens:]

    def share(self, source: int, target: int, n_tokens: int) -> None:
        """Let an empty sequence begin with the first tokens of another."""
        self.tokens[target] += self.tokens[source][:n_tokens]
        self._cells[target] += self._cells[source][:n_tokens]
        self._uses.update(self._cells[target])

    def runs(self) -> list[Run]:
        """Return the cells in use, those nearer to the beginning of their texts first.

        Sequences share prefixes only, so cells with the same sharers are a row of positions.
        """
        sharers: dict[int, list[int]] = {}
        positions: dict[int, int] = {}
        for sequence, cells in enumerate(self._cells):
            for position, cell in enumerate(cells):
                sharers.setdefault(cell, []).append(sequence)
                positions[cell] = position
        rows: dict[tuple[int, ...], list[int]] = {}
        for cell, found in sharers.items():
            rows.setdefault(tuple(found), []).append(positions[cell])
        return sorted((Run(found, min(at), max(at) + 1) for found, at in rows.items()), key=lambda run: run.start)
