"""What was measured on this machine, kept so that it is measured once."""

import hashlib
import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from lcspec.files import write_atomically

_log = logging.getLogger(__name__)


class Measurements:
    """Files of JSON, one for each measurement under its conditions.

    What can't be read or written counts as not measured: it is only ever a matter of time.

    Args:
        conditions: all that a result depends on, as JSON types: the file, the processor, the library.
        folder: where they are kept; by default the user's cache.
    """

    def __init__(self, conditions: dict[str, Any], folder: Path | None = None) -> None:
        self._conditions = conditions
        self._folder = folder or user_cache_path("lcspec") / "measured"

    def recall(self, kind: str, **conditions: Any) -> Any:
        """Return what was measured of this kind and under these conditions too, or None."""
        path, all_conditions = self._place(kind, conditions)
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["conditions"] == all_conditions:
                return kept["result"]
        return None

    def keep(self, kind: str, result: Any, **conditions: Any) -> None:
        """Remember a result, which is of JSON types."""
        path, all_conditions = self._place(kind, conditions)
        text = json.dumps({"conditions": all_conditions, "result": result}, indent=2)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text.encode())
        except OSError as error:
            _log.warning("a measurement can't be kept in %s: %s", path.parent, error.strerror)

    def _place(self, kind: str, conditions: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
        both = {"kind": kind, **self._conditions, **conditions}
        digest = hashlib.sha256(json.dumps(both, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{kind}-{digest[:24]}.json", both
