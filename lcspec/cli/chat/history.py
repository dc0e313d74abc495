"""What was typed earlier."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory

from lcspec.files import write_atomically

_LARGEST = 1 << 20  # bytes of the file; then its older half goes, and what is longer than _LONG
_LONG = 1 << 16
_BEGINNING = re.compile(rb"(?=\n# )")  # of an entry, whose own lines begin with a plus sign


class PrivateHistory(FileHistory):
    """A history in a file that only the user can read; where that can't be written, it lasts as long as the process."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Read the file, the newest first."""
        try:
            self._shorten()
            return super().load_history_strings()
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        """Add to the file."""
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600))
            super().store_string(string)

    def _shorten(self) -> None:
        if self._file.is_file() and self._file.stat().st_size > _LARGEST:
            entries = _BEGINNING.split(self._file.read_bytes())
            kept: list[bytes] = []
            room = _LARGEST // 2
            for entry in reversed(entries):
                if len(entry) <= _LONG:
                    room -= len(entry)
                    if room < 0:
                        break
                    kept.append(entry)
            write_atomically(self._file, *reversed(kept), mode=0o600)
