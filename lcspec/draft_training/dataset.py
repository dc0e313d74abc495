"""What a draft head is trained with: texts as tensors, and rows of the target's matrices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lcspec.draft_head import TargetRows
from lcspec.draft_training.texts import Text
from lcspec.errors import ModelError

_PROMPT_WEIGHT = 0.02  # of a token in a prompt, where one that was written counts 1
_TOGETHER = 32  # texts that are looked at at once
_SHORTEST = 4  # hidden states of a text
_VALIDATED = 24  # every so many-th prompt is for validation,
_MOST_VALIDATED = 60  # of texts at the most


@dataclass(frozen=True)
class Batch:
    """Some texts; what is shorter is filled up.

    Attributes:
        states: shape (texts, n, n_embd).
        embedded: shape (texts, n + 1, n_embd), of the tokens.
        tokens: shape (texts, n + 1); states[:, i] are behind tokens[:, i].
        real: shape (texts, n), where there is a state.
    """

    states: Tensor
    embedded: Tensor
    tokens: Tensor
    real: Tensor


class Dataset:
    """Texts for training and for validation, which have no prompt in common.

    Args:
        texts: what the target wrote.
        rows: of the target.
        n_ids: tokens that the head may propose.

    Raises:
        ModelError: there are too few.
    """

    def __init__(self, texts: Sequence[Text], rows: TargetRows, n_ids: int) -> None:
        usable = [text for text in texts if len(text.hidden) >= _SHORTEST]
        greedy = [text for text in usable if text.is_greedy]
        known = sorted({text.prompt for text in greedy})
        prompts = set((known[_VALIDATED // 2 :: _VALIDATED] or known[:1])[:_MOST_VALIDATED])
        self.validation = [text for text in greedy if text.prompt in prompts]
        self.training = [text for text in usable if text.prompt not in prompts]
        if not (self.training and self.validation):
            raise ModelError("there are too few texts to learn from: more tokens, or more prompts, give more")
        self.ids = frequent_tokens(self.training, rows.n_vocab, n_ids)
        self.output = torch.from_numpy(rows.output(self.ids))
        """Shape (n_ids, n_embd)."""
        used = np.unique(np.concatenate([text.tokens for text in usable]))
        self._embedding = torch.from_numpy(rows.embeddings(used))
        self._place = np.zeros(rows.n_vocab, dtype=np.int64)
        self._place[used] = np.arange(used.size)
        self.place_of_id = torch.full((rows.n_vocab,), -1)
        self.place_of_id[torch.from_numpy(self.ids).long()] = torch.arange(len(self.ids))
        states = np.concatenate([text.hidden[:32] for text in self.training]).astype(np.float32)
        self.moments = states.T @ states / len(states)
        """Shape (n_embd, n_embd), the mean products of the states' elements."""
        self.state_scale = torch.from_numpy(states.std(axis=0) + 1e-3)
        self.embedding_scale = float(self._embedding.square().mean().sqrt()) + 1e-6

    @property
    def n_positions(self) -> int:
        """Hidden states to train with."""
        return sum(len(text.hidden) for text in self.training)

    def coverage(self) -> float:
        """Return the share of the validation's tokens that the head may propose."""
        tokens = np.concatenate([text.tokens[text.n_prompt + 1 :] for text in self.validation or self.training])
        return float(np.isin(tokens, self.ids).mean())

    def steps(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield states, the embeddings of the tokens behind them, and the states that followed: shapes (n, n_embd)."""
        for start in range(0, len(self.training), _TOGETHER):
            batch = self.batch(self.training[start : start + _TOGETHER])
            real = batch.real[:, 1:]
            yield batch.states[:, :-1][real], batch.embedded[:, 1:-1][real], batch.states[:, 1:][real]

    def batches(self, size: int, random: np.random.Generator) -> Iterator[Batch]:
        """Yield the training texts in another order each time, those of about the same length together."""
        order = random.permutation(len(self.training))
        pools = np.array_split(order, max(1, len(order) // (size * 16)))
        for pool in pools:
            by_length = sorted(pool.tolist(), key=lambda i: len(self.training[i].hidden))
            groups = [by_length[i : i + size] for i in range(0, len(by_length), size)]
            for i in random.permutation(len(groups)):
                yield self.batch([self.training[number] for number in groups[i]])

    def batch(self, texts: Sequence[Text]) -> Batch:
        """Return some texts as tensors."""
        n, d = max(len(text.hidden) for text in texts), texts[0].hidden.shape[1]
        states = np.zeros((len(texts), n, d), dtype=np.float32)
        tokens = np.zeros((len(texts), n + 1), dtype=np.int64)
        real = np.zeros((len(texts), n), dtype=bool)
        for i, text in enumerate(texts):
            length = len(text.hidden)
            states[i, :length], real[i, :length] = text.hidden, True
            tokens[i, : length + 1] = text.tokens[text.n_prompt :]
        embedded = self._embedding[torch.from_numpy(self._place[tokens])]
        return Batch(torch.from_numpy(states), embedded, torch.from_numpy(tokens), torch.from_numpy(real))


def frequent_tokens(texts: Sequence[Text], n_vocab: int, n: int) -> NDArray[np.int32]:
    """Return the `n` tokens that the target writes most; where it never did, those that come first in its order.

    (Zhao et al. 2025, "FR-Spec".)
    """
    counts = np.zeros(n_vocab)
    for text in texts:
        np.add.at(counts, text.tokens[text.n_prompt :], 1.0)
        np.add.at(counts, text.tokens[: text.n_prompt], _PROMPT_WEIGHT)
    return np.lexsort((np.arange(n_vocab), -counts))[:n].astype(np.int32)
