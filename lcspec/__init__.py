"""Quantized language models made fast on ordinary CPUs by speculative decoding."""

import logging
from typing import TYPE_CHECKING

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
from lcspec.lazily import lazily

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

__getattr__ = lazily(
    __name__,
    {
        "lcspec.engine": ("SpeculativeLM",),
        "lcspec.logprobs": ("TokenLogprob",),
        "lcspec.sampling": ("GREEDY", "SamplingParams"),
        "lcspec.stats": ("DrafterStats", "Stats"),
        "lcspec.stream": ("Completion", "Piece", "Stream"),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
