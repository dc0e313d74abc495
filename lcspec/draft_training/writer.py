"""The target writes the texts that a draft head learns from."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lcspec.draft_training.sampling import sampled
from lcspec.draft_training.texts import Text, TextFiles
from lcspec.errors import ModelError
from lcspec.llama import Chunk, SharedContext

AT_ONCE = 16
"""Texts that are written at once."""

LENGTH = 256
"""Most tokens of a text."""

TEMPERATURES = ((0.0, 0.8), (0.6, 1.0))
"""Of the texts of a prompt that are written together, the first time and the second."""

_MOST_FRUITLESS = 200  # prompts without a text
_UNLIKELY = 9.0  # what has a logit so much below the largest, at temperature 1, is not sampled


@dataclass
class _Writing:
    """A text in the making."""

    number: int
    prompt: int
    n_prompt: int
    tokens: list[int]
    temperature: float
    random: np.random.Generator
    hidden: list[NDArray[np.float16]] = field(default_factory=list)

    def choose(self, logits: NDArray[np.float32]) -> None:
        greedy = self.temperature == 0
        self.tokens.append(
            int(logits.argmax()) if greedy else sampled(logits, self.temperature, self.random, _UNLIKELY)
        )

    def finished(self) -> Text:
        hidden = np.array(self.hidden)
        tokens = np.array(self.tokens, dtype=np.int32)
        return Text(self.number, self.prompt, self.n_prompt, self.temperature == 0, tokens, hidden)


def write_texts(
    context: SharedContext,
    prompts: Sequence[Sequence[int]],
    seed: int,
    done: set[int],
    temperatures: Sequence[Sequence[float]] = TEMPERATURES,
    more: Callable[[set[int]], Iterator[tuple[int, list[int]]]] = lambda _: iter(()),
) -> Iterator[Text]:
    """Yield texts: some of each prompt, more of each at other temperatures, and then some of each of further prompts.

    Args:
        context: of the target, with a sequence or more for each text of a prompt; gives hidden states,
            and each sequence its own cells.
        prompts: token ids.
        seed: decides what is sampled.
        done: numbers of texts that are not wanted again.
        temperatures: of the texts of a prompt, the first time, the second, ...; each time as many.
        more: gives further prompts and their numbers, without those whose numbers it is given; they have texts once.

    Raises:
        ModelError: the target ends all texts at once.
    """
    pending = _pending(prompts, seed, done, temperatures, more)
    together = len(temperatures[0])
    writing: dict[int, _Writing] = {}
    n_fruitless = 0
    while True:
        free = [sequence for sequence in range(context.n_sequences) if sequence not in writing]
        while len(free) >= together and (texts := next(pending, None)):
            context.free(free[0])
            logits = context.prefill(free[0], texts[0].tokens)
            for text in texts:
                text.choose(logits)
            texts = [text for text in texts if not context.model.is_eog(text.tokens[-1])]
            n_fruitless = 0 if texts else n_fruitless + 1
            if n_fruitless == _MOST_FRUITLESS:
                raise ModelError(f"{context.model.path.name} ends {n_fruitless} texts in a row at once")
            for sequence, text in zip(free, texts, strict=False):
                if sequence != free[0]:
                    context.free(sequence)
                    context.copy(free[0], sequence, text.n_prompt)
                writing[sequence] = text
            free = free[len(texts) :]
        if not writing:
            return
        sequences = sorted(writing)
        rows = context.evaluate([Chunk(sequence, writing[sequence].tokens[-1:], 1) for sequence in sequences])
        assert context.hidden is not None
        states = context.hidden.astype(np.float16)
        for sequence, (row,), state in zip(sequences, rows, states, strict=True):
            text = writing[sequence]
            text.hidden.append(state)
            text.choose(row)
            if context.model.is_eog(text.tokens[-1]) or len(text.hidden) == LENGTH:
                yield writing.pop(sequence).finished()


def _pending(
    prompts: Sequence[Sequence[int]],
    seed: int,
    done: set[int],
    temperatures: Sequence[Sequence[float]],
    more: Callable[[set[int]], Iterator[tuple[int, list[int]]]],
) -> Iterator[list[_Writing]]:
    """Yield texts to write that have a prompt in common."""
    together = len(temperatures[0])

    def texts(first: int, prompt: int, tokens: Sequence[int], these: Sequence[float]) -> list[_Writing]:
        return [
            _Writing(number, prompt, len(tokens), list(tokens), temperature, np.random.default_rng((seed, number)))
            for number, temperature in enumerate(these, first)
            if number not in done
        ]

    for turn, these in enumerate(temperatures):
        for i, tokens in enumerate(prompts):
            if found := texts((turn * len(prompts) + i) * together, i, tokens, these):
                yield found
    base = len(temperatures) * len(prompts)
    known = Counter(number // together - base for number in done)
    for i, tokens in more({i for i, n in known.items() if n == together}):
        yield texts((base + i) * together, len(prompts) + i, tokens, temperatures[0])


def collect(
    files: TextFiles,
    texts: Iterator[Text],
    n_tokens: int,
    most_bytes: float,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Write texts to files until there are enough tokens, or the files are as large as they may be.

    Returns:
        How many tokens there are now.
    """
    total = files.n_states()
    progress(total)
    try:
        while total < n_tokens and files.size() < most_bytes and (text := next(texts, None)):
            files.add(text)
            total += len(text.hidden)
            progress(total)
    finally:
        files.flush()
    return total
