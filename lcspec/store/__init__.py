"""Texts that were written before, kept as tokens, so that what followed in them can be proposed again."""

from lcspec.store.database import default_path
from lcspec.store.document import SHORTEST, Document, Kind
from lcspec.store.ngrams import LONGEST_MATCH, N
from lcspec.store.of_model import StoreOfModel
from lcspec.store.repair import repair
from lcspec.store.store import LIMIT, Added, Continuation, NgramStore, StoreStats, VocabularyStats
from lcspec.store.vocabulary import vocabulary_digest

__all__ = [
    "LIMIT",
    "LONGEST_MATCH",
    "SHORTEST",
    "Added",
    "Continuation",
    "Document",
    "Kind",
    "N",
    "NgramStore",
    "StoreOfModel",
    "StoreStats",
    "VocabularyStats",
    "default_path",
    "repair",
    "vocabulary_digest",
]
