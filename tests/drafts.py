"""Drafts made of a target, written by the library's own functions."""

from collections.abc import Sequence
from pathlib import Path

from lcspec.gguf_edit import Provenance, cut_vocabulary, keep_layers, read_gguf, target_digest, write_gguf
from lcspec.llama import read_header


def write_draft(target: Path, path: Path, layers: Sequence[int], *, of: str | None = None) -> Path:
    """Write a draft of some of a target's blocks; `of` is the digest of the target that it names."""
    header = read_header(target)
    provenance = Provenance(of or target_digest(header), target.name, tuple(layers))
    gguf = keep_layers(read_gguf(header), layers).with_metadata(provenance.as_metadata())
    with path.open("wb") as file:
        write_gguf(file, gguf)
    return path


def write_cut(target: Path, path: Path, tokens: Sequence[int]) -> Path:
    """Write a draft of all blocks whose output has only these tokens."""
    header = read_header(target)
    provenance = Provenance(target_digest(header), target.name, vocabulary=len(tokens))
    gguf = cut_vocabulary(read_gguf(header), tokens).with_metadata(provenance.as_metadata())
    with path.open("wb") as file:
        write_gguf(file, gguf)
    return path
