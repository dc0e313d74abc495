"""A conversation: what was said, in turns."""

from dataclasses import dataclass
from datetime import datetime, timezone

Message = dict[str, str]
"""A message: its 'role' (system, user or assistant) and its 'content'."""


@dataclass
class Conversation:
    """What a user and a model said to each other.

    A turn is a user's message and the answer to it. The last one may have no answer yet.

    Attributes:
        name: of the conversation, unique among the user's.
        model: who answers, as the user named it.
        messages: all messages; a system message comes first.
        created: when it began, in UTC and ISO 8601.
        changed: when it last changed.
    """

    name: str
    model: str
    messages: list[Message]
    created: str
    changed: str

    @property
    def system(self) -> str | None:
        """The system prompt; None without one."""
        return self.messages[0]["content"] if self._n_system else None

    @property
    def unanswered(self) -> str | None:
        """The user's last message where it has no answer."""
        last = self.messages[-1] if self.messages else None
        return last["content"] if last is not None and last["role"] == "user" else None

    def set_system(self, text: str | None) -> None:
        """Put another system prompt in place of the one there is; None or an empty text removes it."""
        self.messages[: self._n_system] = [{"role": "system", "content": text}] if text else []
        self._note_change()

    def ask(self, text: str) -> None:
        """Add a message of the user's, in place of one that has no answer."""
        if self.unanswered is not None:
            self.messages.pop()
        self.messages.append({"role": "user", "content": text})
        self._note_change()

    def answer(self, text: str) -> None:
        """Add an answer.

        Raises:
            ValueError: nothing was asked.
        """
        if self.unanswered is None:
            raise ValueError("there is nothing to answer")
        self.messages.append({"role": "assistant", "content": text})
        self._note_change()

    def undo(self) -> str | None:
        """Drop the last turn, answered or not, and return what the user said in it; None where there is none."""
        for i in reversed(range(len(self.messages))):
            if self.messages[i]["role"] == "user":
                text = self.messages[i]["content"]
                del self.messages[i:]
                self._note_change()
                return text
        return None

    def reset(self) -> None:
        """Drop all turns and keep the system prompt."""
        del self.messages[self._n_system :]
        self._note_change()

    @property
    def _n_system(self) -> int:
        return int(bool(self.messages) and self.messages[0]["role"] == "system")

    def _note_change(self) -> None:
        self.changed = now()


def now() -> str:
    """Return the time, in UTC and ISO 8601."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
