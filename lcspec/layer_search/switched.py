"""A target whose blocks can be switched off and on again in a moment, without loading it anew.

llama.cpp maps a model's file into memory, shared, so that what is written to the file shows in the weights at once. A
private copy of the file is mapped, and zeros are written over the matrices that end a block's attention and its
feed-forward network: the block then adds nothing to what goes through it, as if it were not there. (Zero bytes are
zeros in each of ggml's types.) Weights that are laid out anew are copies, so they are not laid out anew here.
"""

import mmap
import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np

from lcspec.errors import ModelError
from lcspec.gguf_edit import Gguf, n_layers, read_gguf
from lcspec.layer_search.copies import copied
from lcspec.llama import Context, Header, Model, read_header

_ENDS = re.compile(r"blk\.(\d+)\.(?:attn_output|ffn_down|ssm_out|post_attention_norm|post_ffw_norm)\.(?:weight|bias)")
_PROBE = [0, 1, 2]  # tokens whose logits must change when blocks are switched off


class SwitchedBlocks:
    """A target in a private copy, and a context of it. Usable as a context manager.

    Args:
        target: the target.
        n_ctx: tokens of context.
        threads: threads that evaluate.
        folder: where the copy is; it has no name there any more when this is made, so that it vanishes with the
            process.

    Raises:
        ModelError: it can't be loaded, or switching shows no effect on this system.
        FileError: there is no room for the copy.
    """

    def __init__(self, target: Header, n_ctx: int, threads: int, folder: Path) -> None:
        gguf = read_gguf(target)
        self.n_layers = n_layers(gguf)
        self.skipped: frozenset[int] = frozenset()
        """The blocks that are switched off."""
        with ExitStack() as undo:
            self.model, self._content, self._ends = undo.enter_context(_loaded(gguf, folder))
            self._whole = {name: bytes(gguf.tensors[name].data) for name in self._ends}
            self.context = undo.enter_context(Context(self.model, n_ctx, threads=threads))
            self._check()
            self._close = undo.pop_all()

    def skip(self, blocks: Collection[int]) -> None:
        """Switch these blocks off, and all others on. What is in the context's cache stays as it is."""
        skipped = frozenset(blocks)
        for name, (block, start) in self._ends.items():
            if (block in skipped) != (block in self.skipped):
                whole = self._whole[name]
                self._content[start : start + len(whole)] = bytes(len(whole)) if block in skipped else whole
        self.skipped = skipped

    def close(self) -> None:
        """Free the copy."""
        self._close.close()

    def __enter__(self) -> "SwitchedBlocks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self) -> None:
        """Make sure that switching shows."""
        before = self.context.prefill(_PROBE).copy()
        self.skip(range(self.n_layers))
        self.context.clear()
        after = self.context.prefill(_PROBE).copy()
        self.skip(())
        self.context.clear()
        if np.array_equal(before, after) or not np.array_equal(before, self.context.prefill(_PROBE)):
            raise ModelError(
                "which blocks a draft can do without can't be searched here, as what is written to a file does not "
                "show in memory: name the blocks to keep, for example with --layers 0-9,12,15-"
            )
        self.context.clear()


@contextmanager
def _loaded(gguf: Gguf, folder: Path) -> Iterator[tuple[Model, mmap.mmap, dict[str, tuple[int, int]]]]:
    """Yield the model in a private copy, the copy's bytes, and block and first byte of each tensor that ends one."""
    with copied(gguf, folder) as path:
        header = read_header(path)
        model = Model(header, repack=False)
        with path.open("rb+") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE)
    ends = {name: (int(end[1]), header.places[name].start) for name in header.places if (end := _ENDS.fullmatch(name))}
    try:
        yield model, content, ends
    finally:
        model.close()
        content.close()
