"""Quantized language models made fast on ordinary CPUs by speculative decoding."""

import logging

from lcspec.engine import SpeculativeLM
from lcspec.errors import (
    BusyError,
    ClosedError,
    EvaluationError,
    LcspecError,
    LcspecWarning,
    ModelError,
    PairError,
    PromptError,
)
from lcspec.stats import DrafterStats, Stats
from lcspec.stream import Completion, Piece, Stream

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "BusyError",
    "ClosedError",
    "Completion",
    "DrafterStats",
    "EvaluationError",
    "LcspecError",
    "LcspecWarning",
    "ModelError",
    "PairError",
    "Piece",
    "PromptError",
    "SpeculativeLM",
    "Stats",
    "Stream",
]
