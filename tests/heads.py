"""Draft heads for tests: trained on a tiny model's texts in seconds."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from lcspec.draft_head import Head, TargetRows, write_head
from lcspec.draft_training import training
from lcspec.draft_training.dataset import Dataset
from lcspec.draft_training.export import as_head
from lcspec.draft_training.network import Dimensions, HeadNetwork
from lcspec.draft_training.texts import Text, TextFiles
from lcspec.draft_training.training import Options, Training
from lcspec.draft_training.writer import write_texts
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.llama import Model, SharedContext, read_header

PROMPTS = [[i, 40 + i, 3 * i] for i in range(1, 17)]
N_TEXTS = 32


@dataclass(frozen=True)
class Trained:
    """A head, and what it was made of.

    Attributes:
        path: its file.
        head: the weights as they are saved.
        network: the weights as PyTorch has them.
        data: the texts.
    """

    path: Path
    head: Head
    network: HeadNetwork
    data: Dataset


def texts_of(model_file: Path, prompts: Sequence[Sequence[int]] = PROMPTS, n: int = N_TEXTS) -> list[Text]:
    found: list[Text] = []
    with Model(model_file) as model, SharedContext(model, 16 * 300, 16, threads=1, apart=True, hidden=True) as context:
        for text in write_texts(context, prompts, 0, set()):
            found.append(text)
            if len(found) == n:
                break
    return found


def new_training(data: Dataset, minutes: float, seed: int = 0) -> Training:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    dimensions = Dimensions(data.output.shape[1], 64, 2, 8)
    network = HeadNetwork(dimensions, data.state_scale, data.embedding_scale, 0.0)
    network.begin_with(data.steps())
    return Training(network, data, Options(minutes, rate=5e-3, seed=seed))


def quickly(patch: pytest.MonkeyPatch, epochs: int) -> None:
    """Let trainings have many small steps."""
    patch.setattr(training, "_BATCH", 8)
    patch.setattr(training, "_WARM_UP", 5)
    patch.setattr(training, "_MOST_EPOCHS", epochs)
    patch.setattr(training, "_PATIENCE", epochs)


def train_head(model_file: Path, folder: Path, epochs: int = 24) -> Trained:
    files = TextFiles(folder)
    for text in texts_of(model_file):
        files.add(text)
    files.flush()
    header = read_header(model_file)
    rows = TargetRows(header)
    data = Dataset(list(files.read()), rows, rows.n_vocab)
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        quickly(patch, epochs)
        trained = new_training(data, minutes=1)
        trained.run(lambda _: None, folder / "checkpoint.pt")
    trained.network.eval()
    head = as_head(trained.network, data)
    provenance = Provenance(target_digest(header), "tiny", vocabulary=len(head.ids), options={"head": True})
    return Trained(write_head(folder / "head.safetensors", head, provenance), head, trained.network, data)
