"""From token bytes to text that can be shown."""

import codecs
from collections.abc import Sequence


class TextAssembler:
    """Joins the bytes of tokens into text, releasing only what can no longer change.

    Held back are the bytes of a character that is not complete, and text that may turn out to be the
    beginning of a stop string. Bytes that are no UTF-8 become U+FFFD.

    Args:
        stop: strings that end the text, which is cut before the first that is complete.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = stop
        self._held = ""
        self.stopped = False
        """Whether a stop string has been found."""

    def add(self, piece: bytes) -> str:
        """Take the bytes of the next token and return the text that is certain now."""
        return self._release(self._decoder.decode(piece), everything=False)

    def finish(self) -> str:
        """Return the rest of the text: no more tokens will come."""
        return self._release(self._decoder.decode(b"", final=True), everything=True)

    def _release(self, text: str, *, everything: bool) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [position for stop in self._stop if (position := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            text, self._held = text[: min(found)], ""
            return text
        keep = 0 if everything else max((_overlap(text, stop) for stop in self._stop), default=0)
        cut = len(text) - keep
        self._held = text[cut:]
        return text[:cut]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` with which `stop` begins, without being all of it."""
    start = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while start >= 0 and not stop.startswith(text[start:]):
        start = text.find(stop[0], start + 1)
    return len(text) - start if start >= 0 else 0
