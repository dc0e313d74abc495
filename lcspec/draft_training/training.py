"""The training of a draft head."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lcspec.draft_training.acceptance import DEPTHS
from lcspec.draft_training.dataset import Batch, Dataset
from lcspec.draft_training.network import HeadNetwork
from lcspec.files import write_atomically

_TRAINED_DEPTHS = 2
_DEPTH_WEIGHTS = (1.0, 0.7)
_BATCH = 3  # texts
_WARM_UP = 100  # steps
_FREQUENT, _OTHERS = 1024, 512  # tokens among which the right one has to be told, besides those of the batch
_STATE_WEIGHT = 1.0  # of foreseeing the state itself
_MOST_EPOCHS = 40
_PATIENCE = 4  # validations without a better one
_CLIPPED = 1.0  # norm of the gradient


@dataclass(frozen=True)
class Options:
    """How a head is trained.

    Attributes:
        minutes: that the training may take.
        rate: the largest learning rate.
        weight_decay: of the optimizer (AdamW).
        noise: that is added to the states, in their spread.
        seed: decides the order of texts and all else that is random.
    """

    minutes: float
    rate: float = 3e-4
    weight_decay: float = 0.05
    noise: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Score:
    """What a head is worth, by texts that it was not trained with.

    Attributes:
        epoch: how often all texts were seen.
        loss: of the first token.
        acceptance: by depth, how often the token was right where those before it were.
    """

    epoch: int
    loss: float
    acceptance: tuple[float, ...]

    @property
    def worth(self) -> float:
        """The tokens that are expected to be right."""
        return float(np.cumprod(self.acceptance).sum())


@dataclass
class Training:
    """A training that can be stopped and gone on with.

    Attributes:
        network: the weights.
        data: the texts.
        options: how.
        scores: of the validations so far.
        seconds: that it took so far.
    """

    network: HeadNetwork
    data: Dataset
    options: Options
    scores: list[Score] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._optimizer = torch.optim.AdamW(
            self.network.parameters(), self.options.rate, betas=(0.9, 0.98), weight_decay=self.options.weight_decay
        )
        self._best = _copy(self.network.state_dict())
        self._epoch = self._step = 0
        self._rows = self.data.output.bfloat16() if _likes_bfloat16() else self.data.output

    @property
    def progress(self) -> float:
        """The share of the training that is done, 0 to 1."""
        return min(1.0, max(self.seconds / (60 * self.options.minutes), self._epoch / _MOST_EPOCHS))

    @property
    def is_over(self) -> bool:
        """Whether the time is over, or the head gets no better."""
        worths = [score.worth for score in self.scores]
        latest = len(worths) - 1 - int(np.argmax(worths)) if worths else 0
        return self.progress >= 1 or latest >= _PATIENCE

    def run(self, after_step: Callable[["Training"], None], checkpoint: Path) -> None:
        """Train until it is over; afterwards the network is the best one that there was."""
        while not self.is_over:
            for loss in self._epoch_of_steps():
                del loss
                after_step(self)
                if self.progress >= 1:
                    break
            self._epoch += 1
            self._validate()
            self.save(checkpoint)
        self.network.load_state_dict(self._best)

    def _epoch_of_steps(self) -> Iterator[float]:
        torch.manual_seed(self.options.seed * 1000 + self._epoch)
        random = np.random.default_rng((self.options.seed, self._epoch))
        self.network.train()
        for batch in self.data.batches(_BATCH, random):
            started = time.perf_counter()
            self._set_rate()
            with torch.autocast("cpu", torch.bfloat16, enabled=self._rows.dtype == torch.bfloat16):
                loss = self._loss(batch, random)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), _CLIPPED)
            self._optimizer.step()
            self._step += 1
            self.seconds += time.perf_counter() - started
            yield float(loss.detach())

    def _set_rate(self) -> None:
        warm = min(1.0, (self._step + 1) / _WARM_UP)
        for group in self._optimizer.param_groups:
            group["lr"] = self.options.rate * warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * self.progress)))

    def _loss(self, batch: Batch, random: np.random.Generator) -> Tensor:
        """Return how far the head is from the target's states and distributions, over a few steps of drafting."""
        scale = self.network.state_scale
        chosen, corrections = self._chosen_tokens(batch, random)
        rows = self._rows[chosen]
        with torch.no_grad():
            wanted = (batch.states[batch.real].to(rows.dtype) @ rows.T).float() + corrections
            targets = torch.zeros(*batch.real.shape, len(chosen), dtype=rows.dtype)
            targets[batch.real] = wanted.softmax(dim=-1).to(rows.dtype)
        states = batch.states + torch.randn_like(batch.states) * scale * self.options.noise
        memory = self.network.remember(states, batch.embedded[:, :-1])
        loss = torch.zeros(())
        for depth in range(1, _TRAINED_DEPTHS + 1):
            n = batch.real.shape[1] - depth
            if n <= 0:
                break
            states = self.network(states[:, :n], batch.embedded[:, depth : depth + n], memory, depth).float()
            real = batch.real[:, depth:]
            foreseen = states[real]
            logits = (foreseen.to(rows.dtype) @ rows.T).float() + corrections
            tokens = functional.cross_entropy(logits, targets[:, depth:][real].float())
            distance = functional.smooth_l1_loss(foreseen / scale, batch.states[:, depth:][real] / scale)
            loss = loss + _DEPTH_WEIGHTS[depth - 1] * (tokens + _STATE_WEIGHT * distance)
        return loss

    def _chosen_tokens(self, batch: Batch, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return among which tokens the right one has to be told, and what their logits gain for standing for others.

        All frequent tokens and those of the batch are among them, and some of the others, which stand for all.
        """
        n_ids = len(self._rows)
        sure = torch.zeros(n_ids, dtype=torch.bool)
        sure[: min(_FREQUENT, n_ids)] = True
        places = self.data.place_of_id[batch.tokens.flatten()]
        sure[places[places >= 0]] = True
        rest = torch.nonzero(~sure).flatten()
        if len(rest) <= _OTHERS:
            return torch.arange(n_ids), torch.zeros(n_ids)
        others = rest[torch.from_numpy(random.choice(len(rest), _OTHERS, replace=False))]
        chosen = torch.cat([torch.nonzero(sure).flatten(), others])
        corrections = torch.zeros(len(chosen))
        corrections[-_OTHERS:] = math.log(len(rest) / _OTHERS)
        return chosen, corrections

    def _validate(self) -> None:
        score = validate(self.network, self.data, self._epoch)
        if not self.scores or score.worth >= max(one.worth for one in self.scores):
            self._best = _copy(self.network.state_dict())
        self.scores.append(score)

    # keeping

    def save(self, path: Path) -> None:
        """Write all that it takes to go on to a file."""
        buffer = BytesIO()
        torch.save(
            {
                "network": self.network.state_dict(),
                "best": self._best,
                "optimizer": self._optimizer.state_dict(),
                "scores": [(score.epoch, score.loss, *score.acceptance) for score in self.scores],
                "numbers": (self._epoch, self._step, self.seconds),
                "positions": self.data.n_positions,
            },
            buffer,
        )
        write_atomically(path, buffer.getbuffer())

    def restore(self, path: Path) -> bool:
        """Go on from where a file was written; False where it is missing, damaged, or of another head.

        What was right of other texts says nothing of these, where there are more now.
        """
        try:
            kept: dict[str, Any] = torch.load(path, weights_only=True)
            self.network.load_state_dict(kept["network"])
            self._optimizer.load_state_dict(kept["optimizer"])
            self._best = kept["best"]
            self.scores = [Score(epoch, loss, tuple(rest)) for epoch, loss, *rest in kept["scores"]]
            self._epoch, self._step, self.seconds = kept["numbers"]
            if kept["positions"] != self.data.n_positions:
                self.scores, self._best = [], _copy(kept["network"])
        except Exception:
            return False
        return True


def validate(network: HeadNetwork, data: Dataset, epoch: int = 0) -> Score:
    """Return how a head does along the greedy texts that are for validation."""
    network.eval()
    right, tried = np.zeros(DEPTHS), np.zeros(DEPTHS)
    losses: list[float] = []
    ids = torch.from_numpy(data.ids).long()
    with torch.no_grad():
        for start in range(0, len(data.validation), _BATCH):
            batch = data.batch(data.validation[start : start + _BATCH])
            memory = network.remember(batch.states, batch.embedded[:, :-1])
            states, alive = batch.states, batch.real
            for depth in range(1, DEPTHS + 1):
                n = batch.real.shape[1] - depth
                if n <= 0:
                    break
                states = network(states[:, :n], batch.embedded[:, depth : depth + n], memory, depth)
                alive = alive[:, :n] & batch.real[:, depth:]
                wanted = batch.tokens[:, depth + 1 :][alive]
                logits = states[alive] @ data.output.T
                if depth == 1:
                    places = data.place_of_id[wanted]
                    losses.append(float(functional.cross_entropy(logits[places >= 0], places[places >= 0])))
                ok = ids[logits.argmax(dim=-1)] == wanted
                tried[depth - 1] += alive.sum().item()
                right[depth - 1] += ok.sum().item()
                alive = alive.clone()
                alive[alive.clone()] = ok
    return Score(epoch, float(np.mean(losses)), tuple((right / np.maximum(tried, 1)).tolist()))


def _copy(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in weights.items()}


@cache
def _likes_bfloat16() -> bool:
    """Measure whether this processor multiplies bfloat16 matrices faster than others."""
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(384, 384, dtype=dtype)
        matrix @ matrix
        started = time.perf_counter()
        for _ in range(4):
            matrix @ matrix
        seconds.append(time.perf_counter() - started)
    return seconds[1] < seconds[0]
