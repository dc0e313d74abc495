"""The texts that a target wrote and its hidden states, on disk."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lcspec.files import write_atomically

_ENOUGH = 8000  # hidden states in a file


@dataclass(frozen=True, eq=False)
class Text:
    """A prompt and what the target wrote behind it.

    Attributes:
        number: which of all texts it is.
        prompt: which prompt it has.
        n_prompt: tokens of the prompt.
        is_greedy: whether the likeliest token was taken always.
        tokens: shape (n,), int32, of prompt and text.
        hidden: shape (n - n_prompt - 1, n_embd), float16; row i is the final hidden state behind tokens[n_prompt + i],
            of which the target made tokens[n_prompt + i + 1].
    """

    number: int
    prompt: int
    n_prompt: int
    is_greedy: bool
    tokens: NDArray[np.int32]
    hidden: NDArray[np.float16]


class TextFiles:
    """A folder of files with some texts each; a file is written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._waiting: list[Text] = []

    def paths(self) -> list[Path]:
        """Return the files in order."""
        return sorted(path for path in self.folder.iterdir() if re.fullmatch(r"texts-\d{5}\.npz", path.name))

    def size(self) -> int:
        """Return the bytes of all files."""
        return sum(path.stat().st_size for path in self.paths())

    def add(self, text: Text) -> None:
        """Take a text, and write a file when there are enough."""
        self._waiting.append(text)
        if sum(len(text.hidden) for text in self._waiting) >= _ENOUGH:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if not self._waiting:
            return
        texts, self._waiting = self._waiting, []
        buffer = BytesIO()
        np.savez(
            buffer,
            numbers=np.array(
                [(text.number, text.prompt, text.n_prompt, text.is_greedy, text.tokens.size) for text in texts]
            ),
            tokens=np.concatenate([text.tokens for text in texts]),
            hidden=np.concatenate([text.hidden for text in texts]),
        )
        last = [int(path.stem[-5:]) for path in self.paths()][-1:] or [-1]
        write_atomically(self.folder / f"texts-{last[0] + 1:05}.npz", buffer.getbuffer())

    def read(self) -> Iterator[Text]:
        """Yield the texts; a file that is damaged is removed."""
        for path in self.paths():
            try:
                yield from _read(path)
            except (OSError, ValueError, KeyError, BadZipFile, EOFError):
                path.unlink()

    def n_states(self) -> int:
        """Return how many hidden states there are."""
        return sum(len(text.hidden) for text in self.read())

    def numbers(self) -> set[int]:
        """Return which texts there are."""
        return {text.number for text in self.read()}


def _read(path: Path) -> Sequence[Text]:
    with np.load(path, allow_pickle=False) as file:
        numbers, tokens, hidden = file["numbers"], file["tokens"], file["hidden"]
    texts = []
    at = row = 0
    for number, prompt, n_prompt, is_greedy, n in numbers.tolist():
        rows = n - n_prompt - 1
        texts.append(Text(number, prompt, n_prompt, bool(is_greedy), tokens[at : at + n], hidden[row : row + rows]))
        at, row = at + n, row + rows
    if at != len(tokens) or row != len(hidden):
        raise ValueError("lengths do not fit")
    return texts
