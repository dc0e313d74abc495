"""Limits and names of options, apart from what it takes to load a model, so that a command line knows them at once."""

from typing import Literal, TypeAlias, get_args

MAX_CONTEXT = 1 << 24
"""The most tokens that a context may be asked to hold; beyond any model there is."""

MAX_THREADS = 512
"""The most threads that llama.cpp takes (GGML_MAX_N_THREADS)."""

MAX_WIDTH = 128
"""The most tokens that one pass may have."""

DrafterName: TypeAlias = Literal["auto", "none", "lookup", "model"]
DRAFTERS: tuple[DrafterName, ...] = get_args(DrafterName)
