"""llama.cpp behind two nouns: a `Model` (a GGUF file) and a `Context` (its KV cache).

The only package that imports llama_cpp; everyone else sees tokens and numpy arrays.
"""

import llama_cpp
from llama_cpp.llama_speculative import LlamaDraftModel

from lcspec.limits import MAX_CONTEXT, MAX_THREADS, MAX_WIDTH
from lcspec.llama import log
from lcspec.llama.context import Context, State, common_prefix_length
from lcspec.llama.cut_vocabulary import CUT, CUTTABLE, CutVocabulary, check_whole
from lcspec.llama.dequantize import dequantize
from lcspec.llama.exact_width import NOT_PROBED, SHALLOW, WIDEST_PROBED, ExactWidths, probe_exact_widths
from lcspec.llama.gguf_header import Header, read_header, split_files
from lcspec.llama.machine import machine
from lcspec.llama.memory import check_memory, free_memory, memory_need
from lcspec.llama.model import Model
from lcspec.llama.native_context import PREFILL_BATCH
from lcspec.llama.openmp import release_threads, share_processors
from lcspec.llama.quantize import quantize
from lcspec.llama.shared_context import MAX_SEQUENCES, Chunk, SharedContext, slack
from lcspec.llama.state_format import take_blocks
from lcspec.llama.threads import usable_physical_cores

log.install()
llama_cpp.llama_backend_init()

__all__ = [
    "CUT",
    "CUTTABLE",
    "MAX_CONTEXT",
    "MAX_SEQUENCES",
    "MAX_THREADS",
    "MAX_WIDTH",
    "NOT_PROBED",
    "PREFILL_BATCH",
    "SHALLOW",
    "WIDEST_PROBED",
    "Chunk",
    "Context",
    "CutVocabulary",
    "ExactWidths",
    "Header",
    "LlamaDraftModel",
    "Model",
    "SharedContext",
    "State",
    "check_memory",
    "check_whole",
    "common_prefix_length",
    "dequantize",
    "free_memory",
    "machine",
    "memory_need",
    "probe_exact_widths",
    "quantize",
    "read_header",
    "release_threads",
    "share_processors",
    "slack",
    "split_files",
    "take_blocks",
    "usable_physical_cores",
]
