"""Quantized language models made fast on ordinary CPUs by speculative decoding."""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from lcspec.errors import (
    AnswerError,
    BusyError,
    ClosedError,
    EvaluationError,
    FileError,
    LcspecError,
    LcspecWarning,
    ModelError,
    PairError,
    PromptError,
)

if TYPE_CHECKING:
    from lcspec.engine import SpeculativeLM
    from lcspec.logprobs import TokenLogprob
    from lcspec.sampling import GREEDY, SamplingParams
    from lcspec.stats import DrafterStats, Stats
    from lcspec.stream import Completion, Piece, Stream

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "GREEDY",
    "AnswerError",
    "BusyError",
    "ClosedError",
    "Completion",
    "DrafterStats",
    "EvaluationError",
    "FileError",
    "LcspecError",
    "LcspecWarning",
    "ModelError",
    "PairError",
    "Piece",
    "PromptError",
    "SamplingParams",
    "SpeculativeLM",
    "Stats",
    "Stream",
    "TokenLogprob",
]

_IMPORTED_WHEN_USED = {  # llama.cpp and numpy take a while, which completion in a shell does not have
    "lcspec.engine": ("SpeculativeLM",),
    "lcspec.logprobs": ("TokenLogprob",),
    "lcspec.sampling": ("GREEDY", "SamplingParams"),
    "lcspec.stats": ("DrafterStats", "Stats"),
    "lcspec.stream": ("Completion", "Piece", "Stream"),
}


def __getattr__(name: str) -> Any:
    for module, names in _IMPORTED_WHEN_USED.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
