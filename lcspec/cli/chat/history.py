"""What was typed earlier."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory

from lcspec.files import write_atomically

_LARGEST = 1 << 20  # bytes of the file; then its older half goes


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
            content = self._file.read_bytes()
            start = content.find(b"\n# ", len(content) - _LARGEST // 2)
            write_atomically(self._file, content[start:] if start >= 0 else b"", mode=0o600)
