"""A draft head from beginning to end: texts, training, file."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from lcspec.draft_head import Head, HeadReader, TargetRows, write_head
from lcspec.draft_training.acceptance import acceptance
from lcspec.draft_training.copying import copying_weights
from lcspec.draft_training.dataset import Dataset
from lcspec.draft_training.export import as_head
from lcspec.draft_training.network import Dimensions, HeadNetwork
from lcspec.draft_training.questions import questions
from lcspec.draft_training.texts import TextFiles
from lcspec.draft_training.token_cost import token_costs
from lcspec.draft_training.training import Options, Score, Training
from lcspec.draft_training.writer import AT_ONCE, LENGTH, collect, write_texts
from lcspec.errors import FileError, ModelError
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.hub import HEAD, DerivedDraft, publish
from lcspec.llama import Header, Model, SharedContext, check_memory
from lcspec.prompts import Prompts

_LONGEST_PROMPT = 1200  # tokens; longer ones take more time than they teach
_N_IDS = 4096
_HIDDEN_SHARE = 4 / 3  # of the length of a hidden state
_PARTS, _PART_SIZE = 2, 64
_DROPOUT = 0.1
_MEASURED_BEHIND, _USUAL_DRAFT, _ROUNDS = 128, 2, 60  # of what a token costs


class HeadTraining:
    """Trains a draft head, in a folder of its own, and goes on where an earlier try was stopped.

    Usable as a context manager, which has the folder for itself.

    Args:
        target: the model that the head is for.
        name: what the target is called.
        prompts: what the target is asked, before what it asks itself.
        n_tokens: tokens that the target writes.
        most_bytes: that these and their hidden states may take on disk.
        minutes: that the training may take behind that.
        seed: decides all that is random.
        threads: threads to evaluate and to train with.
        fresh: forget an earlier try.

    Raises:
        FileError: the folder can't be used.
    """

    def __init__(
        self,
        target: Header,
        name: str,
        prompts: Sequence[str],
        *,
        n_tokens: int,
        most_bytes: float,
        minutes: float,
        seed: int,
        threads: int,
        fresh: bool,
    ) -> None:
        self._target, self._name, self._prompts = target, name, prompts
        self._n_tokens, self._most_bytes = n_tokens, most_bytes
        self._options = Options(minutes, seed=seed)
        self._threads = threads
        self._fresh = fresh
        self._digest = target_digest(target)
        self._text_digest = hashlib.sha256(json.dumps([seed, *prompts]).encode()).hexdigest()
        self.folder = user_cache_path("lcspec") / "training" / f"{self._digest[:16]}-{self._text_digest[:16]}"
        """Where texts and checkpoints are."""
        self.data: Dataset
        self.training: Training
        self.acceptance: list[float]
        """By depth, how often tokens were right where those before were, along the texts for validation."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the folder."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder.with_suffix(".lock"))
            with lock.acquire(timeout=0):
                if self._fresh:
                    shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir(exist_ok=True)
                yield
        except Timeout as error:
            raise FileError("another process trains a head for this model with these prompts") from error
        except OSError as error:
            raise FileError(f"{self.folder} can't be used: {error.strerror or error}") from error

    def write_texts(self, progress: Callable[[int], None]) -> int:
        """Let the target write texts, as far as they are not there, and return how many tokens they have."""
        files = TextFiles(self.folder)
        if (n_written := files.n_states()) >= self._n_tokens:
            return n_written
        check_memory(self._target, None, AT_ONCE * (_LONGEST_PROMPT + 2 * LENGTH))
        with Model(self._target) as model:
            n_ctx = min(_LONGEST_PROMPT + LENGTH, model.n_ctx_train)
            prompts = [tokens for tokens in self._tokenized(model, n_ctx) if 0 < len(tokens) < n_ctx - LENGTH]
            if self._prompts and not prompts:
                raise ModelError("no prompt is short enough")

            def more(done: set[int]) -> Iterator[tuple[int, list[int]]]:
                return questions(model, self._options.seed, done, n_ctx - LENGTH - 1, self._threads)

            with SharedContext(
                model, AT_ONCE * n_ctx, AT_ONCE, threads=self._threads, apart=True, hidden=True
            ) as context:
                texts = write_texts(context, prompts, self._options.seed, files.numbers(), more=more)
                return collect(files, texts, self._n_tokens, self._most_bytes, progress)

    def _tokenized(self, model: Model, n_ctx: int) -> Iterator[list[int]]:
        """Yield the prompts as the model reads them: in its chat template, if it has one."""
        if model.chat_template is None:
            yield from map(model.tokenize, self._prompts)
            return
        prompts = Prompts(model, n_ctx)
        try:
            for prompt in self._prompts:
                yield prompts.chat([{"role": "user", "content": prompt}])
        finally:
            prompts.close()

    def train(self, progress: Callable[[Training], None]) -> list[Score]:
        """Train with the texts and return how good the head was in the course of time.

        Raises:
            ModelError: there are too few texts.
        """
        torch.set_num_threads(self._threads)
        torch.manual_seed(self._options.seed)
        rows = TargetRows(self._target)
        self.data = data = Dataset(list(TextFiles(self.folder).read()), rows, min(_N_IDS, rows.n_vocab))
        hidden = 8 * round(rows.n_embd * _HIDDEN_SHARE / 8)
        dimensions = Dimensions(rows.n_embd, hidden, _PARTS, _PART_SIZE)
        network = HeadNetwork(dimensions, data.state_scale, data.embedding_scale, _DROPOUT)
        self.training = Training(network, data, self._options)
        checkpoint = self.folder / "checkpoint.pt"
        if not self.training.restore(checkpoint):
            network.begin_with(data.steps())
        self.training.run(progress, checkpoint)
        return self.training.scores

    def publish(self, name: str, *, force: bool) -> DerivedDraft:
        """Put the head into the folder of derived drafts.

        Raises:
            FileError: there is another draft of that name, or the file can't be written.
        """
        head = as_head(self.training.network, self.data)
        rows = TargetRows(self._target)
        head = replace(head, copying=copying_weights(HeadReader(head, rows), self.data.validation))
        shares, _ = acceptance(HeadReader(head, rows), self.data.validation)
        self.acceptance = [round(share, 4) for share in shares]
        facts = {
            "head": True,
            "acceptance": self.acceptance,
            "cost": self._cost(head),
            "positions": self.data.n_positions,
        }
        provenance = Provenance(
            self._digest,
            self._name,
            vocabulary=len(head.ids),
            seed=self._options.seed,
            text=_digest_of(head),
            agreement=self.acceptance[0],
            options=facts,
        )
        return publish(name, HEAD, provenance, lambda folder: _write(folder, name, head, provenance), force=force)

    def _cost(self, head: Head) -> float:
        """Return what a token costs, in the target's passes over one."""
        longest = max(self.data.validation, key=lambda text: len(text.tokens))
        tokens = longest.tokens[-_MEASURED_BEHIND:].tolist()
        with Model(self._target) as model:
            reader = HeadReader(head, TargetRows(self._target))
            single, drafted = token_costs(model, reader, tokens, self._threads, (_USUAL_DRAFT,), _ROUNDS)
        return round(drafted[_USUAL_DRAFT] / single, 4)

    def clear(self) -> None:
        """Remove texts and checkpoints."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _write(folder: Path, name: str, head: Head, provenance: Provenance) -> Path:
    return write_head(folder / f"{name}{HEAD}", head, provenance)


def _digest_of(head: Head) -> str:
    return hashlib.sha256(head.output.tobytes() + head.input.tobytes() + head.ids.tobytes()).hexdigest()
