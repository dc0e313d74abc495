"""A model's chat template."""

import json
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from lcspec.chat_template import render
from lcspec.chat_template.worker import Worker
from lcspec.errors import ClosedError, PromptError

LENGTH = 1 << 20  # characters of a prompt, and 4 for each of the messages'
MEMORY = 512 << 20  # bytes, and 64 for each character of the messages: some copies of it, at 4 bytes


class ChatTemplate:
    """A chat template, which may be anyone's: it renders in Jinja's sandbox, with limits.

    What a template may use (`bos_token`, `raise_exception`, `strftime_now`, `tojson`, `break`, `generation`)
    and how blank space is trimmed follow Hugging Face's chat templates, for which these texts are written.

    Rendering happens in a process of its own, which `close` ends, and which may take 3 s of CPU time, 20 s in all,
    512 MiB of memory (on Linux) and write 1 MiB, more for long messages. In a frozen application, which has no
    Python to start, it happens in the application's process and only the length of the text is limited.

    Threads may share a template: they render one after the other.

    Args:
        source: the Jinja text.
        bos, eos: the texts of the model's beginning- and end-of-text tokens.

    Raises:
        PromptError: the template has a syntax error, or breaks a limit while it is compiled.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self._template = {"source": source, "bos": bos, "eos": eos}
        self._lock = threading.Lock()
        self._closed = False
        has_python = bool(sys.executable) and not getattr(sys, "frozen", False)
        self._worker = Worker() if has_python else None
        if self._worker is not None:
            weakref.finalize(self, self._worker.stop)
        try:
            self._ask("")
        except PromptError:
            self.close()
            raise

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the prompt for `messages`, ready for the assistant's answer.

        Args:
            messages: mappings with 'role' (system, user or assistant) and 'content'; all they hold can be
                written as JSON.

        Raises:
            PromptError: the messages are no conversation, or the template refuses them or breaks a limit.
            ClosedError: the template is closed.
        """
        if not messages:
            raise PromptError("a chat needs at least one message")
        for message in messages:
            if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
                raise PromptError("each message of a chat is a mapping with 'role' and 'content'")
        try:
            text = json.dumps(list(messages), ensure_ascii=False, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise PromptError(f"the messages of a chat must be JSON: {error}") from error
        return self._ask(text)

    def close(self) -> None:
        """End the process, after a render that runs in another thread; closing again does nothing."""
        with self._lock:
            self._closed = True
            if self._worker is not None:
                self._worker.stop()

    def _ask(self, messages: str) -> str:
        length = LENGTH + 4 * len(messages)
        memory = MEMORY + 64 * len(messages)
        request = {**self._template, "messages": messages, "length": length, "memory": memory}
        with self._lock:
            if self._closed:
                raise ClosedError("the chat template is closed")
            if self._worker is None:
                line = render.answer(request)
            else:
                line = self._worker.ask(request, longest=6 * length + 4096)  # JSON writes \u0000 for a character
            answer: dict[str, str] = render.from_line(line)
            if "limit" in answer and self._worker is not None:
                self._worker.stop()
        if "text" not in answer:
            raise PromptError(f"the model's chat template {answer.get('limit') or answer['refused']}")
        return answer["text"]


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not")
