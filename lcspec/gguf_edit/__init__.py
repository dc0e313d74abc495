"""GGUF files made from others: fewer blocks, other metadata, the tensors that stay byte for byte."""

from lcspec.gguf_edit import values
from lcspec.gguf_edit.file import Gguf, Tensor, parts_of, read_gguf, write_gguf
from lcspec.gguf_edit.layers import check_layers, keep_layers, n_layers
from lcspec.gguf_edit.provenance import Provenance, target_digest
from lcspec.gguf_edit.vocabulary import cut_vocabulary, frequent_tokens

__all__ = [
    "Gguf",
    "Provenance",
    "Tensor",
    "check_layers",
    "cut_vocabulary",
    "frequent_tokens",
    "keep_layers",
    "n_layers",
    "parts_of",
    "read_gguf",
    "target_digest",
    "values",
    "write_gguf",
]
