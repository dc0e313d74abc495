"""A model with a subset of its blocks.

Without a block its input goes on as its output, as if it added nothing to the residual stream: for a draft, some
blocks hardly matter (Zhang et al. 2023, "Draft & Verify"; Xia et al. 2024, "SWIFT").
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from lcspec.errors import ModelError
from lcspec.gguf_edit.file import Gguf
from lcspec.gguf_edit.values import decode, pick, uint32

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_NOT_BY_LAYER = "rope.dimension_sections"
_DEFAULT_PERIODS = {"gemma2": 2, "gemma3": 6}  # of blocks with a sliding window, where the file names none
_REFUSED = {
    "expert_count": "its blocks are mixtures of experts, whose kind can depend on their number",
    "nextn_predict_layers": "its last blocks predict further tokens",
    "attention.shared_kv_layers": "its last blocks use the keys and values of others",
}


def n_layers(gguf: Gguf) -> int:
    """Return how many blocks a model has.

    Raises:
        ModelError: it does not say.
    """
    count = gguf.of_architecture("block_count")
    if not isinstance(count, int) or count < 1:
        raise ModelError(f"{gguf.path} does not say how many blocks it has")
    return count


def check_layers(gguf: Gguf, kept: Sequence[int]) -> None:
    """Make sure that a model can do with a subset of its blocks.

    Raises:
        ModelError: it can't, or there are no such blocks.
    """
    n = n_layers(gguf)
    if not kept or list(kept) != sorted(set(kept)) or not 0 <= kept[0] <= kept[-1] < n:
        raise ModelError(f"{gguf.path} has the blocks 0 to {n - 1}; name some of them, each once and in order")
    if len(kept) == n:
        return
    for key, reason in _REFUSED.items():
        value = gguf.of_architecture(key)
        if isinstance(value, int) and value > 0:
            raise ModelError(f"{gguf.path} can't be cut to some of its blocks: {reason}")
    _check_windows(gguf, kept)
    present = {int(block[1]) for name in gguf.tensors if (block := _BLOCK.fullmatch(name))}
    if present != set(range(n)):
        raise ModelError(f"{gguf.path} can't be cut to some of its blocks: they are not blk.0 to blk.{n - 1}")


def keep_layers(gguf: Gguf, kept: Sequence[int]) -> Gguf:
    """Return a model with only these blocks, in their order, and all that stands before and behind them.

    Lists in the metadata with an element for each block are cut likewise.

    Raises:
        ModelError: as of `check_layers`.
    """
    check_layers(gguf, kept)
    n = n_layers(gguf)
    prefix = f"{gguf.architecture}."
    metadata = dict(gguf.metadata)
    for key, value in gguf.metadata.items():
        name = key.decode("utf-8", "replace")
        if name.startswith(prefix) and name != prefix + _NOT_BY_LAYER:
            listed = decode(value)
            if isinstance(listed, list) and len(listed) == n:
                metadata[key] = pick(value, kept)
    metadata[f"{prefix}block_count".encode()] = uint32(len(kept))
    numbers = {old: new for new, old in enumerate(kept)}
    tensors = {}
    for name, tensor in gguf.tensors.items():
        block = _BLOCK.fullmatch(name)
        if block is None:
            tensors[name] = tensor
        elif int(block[1]) in numbers:
            tensors[f"blk.{numbers[int(block[1])]}.{block[2]}"] = tensor
    return replace(gguf, metadata=metadata, tensors=tensors)


def _check_windows(gguf: Gguf, kept: Sequence[int]) -> None:
    """Make sure that each block keeps its sliding window, or its lack of one: mostly its number says which."""
    window = gguf.of_architecture("attention.sliding_window")
    if not window:
        return
    pattern = gguf.of_architecture("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        return
    period = pattern or _DEFAULT_PERIODS.get(gguf.architecture)
    if not isinstance(period, int):
        raise ModelError(
            f"{gguf.path} can't be cut to some of its blocks: which of them have a sliding window is not in the file"
        )
    if any(new % period != old % period for new, old in enumerate(kept)):
        raise ModelError(
            f"{gguf.path} can't be cut to these blocks: one of every {period} has no sliding window, so the number of "
            f"blocks left out before a kept one has to be a multiple of {period}"
        )
