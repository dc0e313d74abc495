"""A store as an engine uses it."""

import logging
import secrets
from collections.abc import Sequence
from datetime import datetime, timezone

from lcspec.errors import LcspecError
from lcspec.llama import Model
from lcspec.store.document import SHORTEST
from lcspec.store.store import Continuation, NgramStore
from lcspec.store.vocabulary import vocabulary_digest

_log = logging.getLogger(__name__)


class StoreOfModel:
    """What a store holds in the vocabulary of a model.

    Args:
        store: the store, which the caller closes.
        model: gives the vocabulary.
        learns: whether `learn` adds to the store.
    """

    def __init__(self, store: NgramStore, model: Model, *, learns: bool) -> None:
        self._store = store
        self._vocabulary = vocabulary_digest(model)
        self._learns = learns

    def find(self, suffix: Sequence[int], limit: int) -> Continuation | None:
        """Return up to `limit` tokens that followed a text's last tokens in the store; what fails finds nothing."""
        try:
            return self._store.find(self._vocabulary, suffix, limit)
        except LcspecError as error:
            _log.warning("nothing is found in the store: %s", error)
            return None

    def learn(self, tokens: Sequence[int]) -> None:
        """Add a text that was written; what fails is logged, since the text is there anyway."""
        if not self._learns or len(tokens) < SHORTEST:
            return
        name = f"{datetime.now(timezone.utc).isoformat(timespec='seconds')} {secrets.token_hex(3)}"
        try:
            self._store.add(self._vocabulary, name, tokens, kind="output")
        except LcspecError as error:
            _log.warning("a text is not stored: %s", error)
