"""Quantized language models made fast on ordinary CPUs by speculative decoding."""

import logging

from lcspec.engine import SpeculativeLM
from lcspec.errors import (
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
from lcspec.logprobs import TokenLogprob
from lcspec.sampling import GREEDY, SamplingParams
from lcspec.stats import DrafterStats, Stats
from lcspec.stream import Completion, Piece, Stream

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "GREEDY",
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
