"""A draft head as PyTorch trains it; `lcspec.draft_head` says what it is, and runs it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

Memory: TypeAlias = tuple[Tensor, Tensor]
"""Keys and values of the positions of texts: shapes (texts, parts, n, size)."""

_RIDGE = 1e-3  # in proportion to the mean square of what is known


@dataclass(frozen=True)
class Dimensions:
    """The size of a head.

    Attributes:
        n_embd: length of a hidden state.
        hidden: of the hidden layer.
        parts: of what is remembered of a position,
        size: and the length of each.
    """

    n_embd: int
    hidden: int
    parts: int
    size: int


class HeadNetwork(nn.Module):
    """The weights of a draft head, for normalized states and embeddings.

    Args:
        dimensions: its size.
        state_scale: shape (n_embd,), the spread of the hidden states' elements.
        embedding_scale: the spread of the embeddings' elements.
        dropout: share of the hidden layer that each training step leaves out.
    """

    def __init__(self, dimensions: Dimensions, state_scale: Tensor, embedding_scale: float, dropout: float) -> None:
        super().__init__()
        d, m = dimensions.n_embd, dimensions.hidden
        a = dimensions.parts * dimensions.size
        self.dimensions = dimensions
        self.input = nn.Linear(2 * d, 2 * m + a, bias=False)
        self.input_bias = nn.Parameter(torch.zeros(2 * m))
        self.keys = nn.Linear(2 * d, a, bias=False)
        self.values = nn.Linear(d, a, bias=False)
        self.fading = nn.Parameter(torch.linspace(0.0, 0.1, dimensions.parts))
        self.nothing = nn.Parameter(torch.zeros(dimensions.parts))
        self.recall = nn.Linear(a, m, bias=False)
        self.output = nn.Linear(m, d)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.straight = nn.Linear(2 * d, d, bias=False)
        nn.init.zeros_(self.straight.weight)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("state_scale", state_scale)
        self.register_buffer("embedding_scale", torch.tensor(embedding_scale))
        self.state_scale: Tensor
        self.embedding_scale: Tensor

    def remember(self, states: Tensor, embedded: Tensor) -> Memory:
        """Return what can be recalled of texts.

        Args:
            states: shape (texts, n, n_embd), the hidden states.
            embedded: shape (texts, n, n_embd), the embeddings of the tokens of the same positions.
        """
        pairs = self._pairs(states[:, :-1], embedded[:, 1:])
        return self._split(self.keys(pairs)), self._split(self.values(states[:, 1:] / self.state_scale))

    def forward(self, states: Tensor, embedded: Tensor, memory: Memory, depth: int) -> Tensor:
        """Return the states that are foreseen: shape (texts, n, n_embd).

        Args:
            states: shape (texts, n, n_embd); behind the positions 0 to n - 1, or foreseen `depth` - 1 behind them.
            embedded: shape (texts, n, n_embd), of the tokens behind these states.
            memory: of the texts; each position sees what was before it.
            depth: the number of this step, from 1.
        """
        m = self.dimensions.hidden
        pairs = self._pairs(states, embedded)
        projected = self.input(pairs)
        value, gate = (projected[..., : 2 * m] + self.input_bias).split(m, dim=-1)
        value = value + self.recall(self._recalled(projected[..., 2 * m :], memory, depth))
        foreseen: Tensor = self.output(self.dropout(value * functional.silu(gate))) + self.straight(pairs)
        return foreseen * self.state_scale

    @torch.no_grad()
    def begin_with(self, pieces: Iterable[tuple[Tensor, Tensor, Tensor]]) -> None:
        """Begin with the linear map that foresees states best, by least squares; the rest adds nothing at first.

        Args:
            pieces: states, the embeddings of the tokens behind them, and the states that followed: shapes (n, n_embd).
        """
        size = self.straight.in_features + 1
        squares = torch.zeros(size, size, dtype=torch.float64)
        products = torch.zeros(size, self.straight.out_features, dtype=torch.float64)
        for states, embedded, following in pieces:
            known = torch.cat([self._pairs(states, embedded), torch.ones(len(states), 1)], dim=1)
            squares += (known.T @ known).double()
            products += (known.T @ (following / self.state_scale)).double()
        ridge = _RIDGE * squares.diagonal().mean() * torch.eye(size, dtype=torch.float64)
        solution = torch.linalg.solve(squares + ridge, products).float()
        self.straight.weight.copy_(solution[:-1].T)
        self.output.bias.copy_(solution[-1])

    def _pairs(self, states: Tensor, embedded: Tensor) -> Tensor:
        return torch.cat([states / self.state_scale, embedded / self.embedding_scale], dim=-1)

    def _split(self, remembered: Tensor) -> Tensor:
        texts, n, _ = remembered.shape
        return remembered.view(texts, n, self.dimensions.parts, self.dimensions.size).transpose(1, 2)

    def _recalled(self, queries: Tensor, memory: Memory, depth: int) -> Tensor:
        keys, values = memory
        scores = (self._split(queries) @ keys.transpose(-1, -2)).float() / math.sqrt(self.dimensions.size)
        positions = torch.arange(queries.shape[1])[:, None]
        remembered = torch.arange(1, keys.shape[2] + 1)[None]  # the first position has no pair before it
        scores = scores - self.fading[:, None, None] * (positions - remembered + depth - 1)
        scores = scores.masked_fill(remembered > positions, -1e9)
        nothing = self.nothing[:, None, None].expand(len(scores), -1, scores.shape[2], 1)
        weights = torch.cat([scores, nothing], dim=-1).softmax(dim=-1)[..., :-1]
        return (weights.to(values.dtype) @ values).transpose(1, 2).flatten(-2)
