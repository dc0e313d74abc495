"""Whether a file without some blocks is what its target is with these blocks switched off."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lcspec.errors import ModelError
from lcspec.gguf_edit import read_gguf
from lcspec.layer_search.copies import cut_copy
from lcspec.layer_search.switched import SwitchedBlocks
from lcspec.llama import Context, Header, Model

_PLAIN = {"gemma", "internlm2", "llama", "mistral3", "olmo2", "phi3", "qwen2", "qwen3", "stablelm", "starcoder2"}
"""Architectures that treat all blocks alike, or whose file says what is different."""
_TOKENS = 48
_CLOSE = 1e-2  # of the logits' range


def check_likeness(target: Header, kept: Sequence[int], threads: int, folder: Path) -> None:
    """Make sure that blocks do at their new numbers what they did at their old ones.

    Some architectures treat every fourth block otherwise, without a word in the file. Those that are known not to are
    not checked: it takes copies of the target.

    Args:
        target: the target.
        kept: the blocks that it is cut to.
        threads: threads that evaluate.
        folder: where the copies have room.

    Raises:
        ModelError: they don't.
        FileError: there is no room.
    """
    if target.architecture in _PLAIN:
        return
    tokens = [token % target.n_vocab for token in range(_TOKENS)]
    with (
        cut_copy(read_gguf(target), kept, folder) as cut,
        Model(cut, repack=False) as model,
        Context(model, _TOKENS + 1, threads=threads) as context,
    ):
        found = context.prefill(tokens).copy()
    with SwitchedBlocks(target, _TOKENS + 1, threads, folder) as blocks:
        blocks.skip(set(range(blocks.n_layers)) - set(kept))
        expected = blocks.context.prefill(tokens).copy()
    if np.abs(found - expected).max() > _CLOSE * np.ptp(expected):
        raise ModelError(
            f"{target.files[0].name} can't be cut to these blocks: what a block does in a {target.architecture} model "
            "depends on its number"
        )
