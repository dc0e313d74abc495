"""llama.cpp behind two nouns: a `Model` (a GGUF file) and a `Context` (its KV cache).

The only package that imports llama_cpp; everyone else sees tokens and numpy arrays.
"""

import llama_cpp

from lcspec.llama import log
from lcspec.llama.context import MAX_CONTEXT, MAX_THREADS, MAX_WIDTH, Context, State, common_prefix_length
from lcspec.llama.model import Model
from lcspec.llama.threads import usable_physical_cores

log.install()
llama_cpp.llama_backend_init()

__all__ = [
    "MAX_CONTEXT",
    "MAX_THREADS",
    "MAX_WIDTH",
    "Context",
    "Model",
    "State",
    "common_prefix_length",
    "usable_physical_cores",
]
