"""Limits and names of options, apart from what it takes to load a model, so that a command line knows them at once."""

from typing import Literal, TypeAlias, get_args

MAX_CONTEXT = 1 << 24
"""The most tokens that a context may be asked to hold; beyond any model there is."""

MAX_THREADS = 512
"""The most threads that llama.cpp takes (GGML_MAX_N_THREADS)."""

MAX_WIDTH = 128
"""The most tokens that one pass may have."""

DrafterName: TypeAlias = Literal["auto", "none", "lookup", "model", "head"]
DRAFTERS: tuple[DrafterName, ...] = get_args(DrafterName)

AUTO_DRAFT = "auto"
"""In the place of a draft model's name, the best of those that were measured with the target."""

QUANTIZATIONS = (
    *("Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_0", "Q4_1", "Q4_K_S", "Q4_K_M", "Q5_0", "Q5_1"),
    *("Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0", "IQ3_S", "IQ3_M", "IQ4_XS", "IQ4_NL", "F16", "BF16"),
)
"""Types to which llama.cpp quantizes weights without an importance matrix."""
