"""What is kept of a conversation on disk."""

from contextlib import suppress

import click

from lcspec.conversation import Conversation
from lcspec.conversations import Conversations
from lcspec.engine import SpeculativeLM
from lcspec.errors import FileError


class Keeping:
    """Keeps the conversation that goes on, and where that is wanted what the model made of it.

    Args:
        conversations: where.
        is_on: whether anything is kept before `name` is called.
        with_cache: keep the engine's cache too, so that to go on later costs no evaluation.
    """

    def __init__(self, conversations: Conversations, *, is_on: bool, with_cache: bool) -> None:
        self.conversations = conversations
        self._is_on = is_on
        self._with_cache = with_cache
        self._failure = ""
        self._automatic = ""  # the name of a conversation that the user did not name

    def begin(self, model: str) -> Conversation:
        """Return a new conversation."""
        conversation = self.conversations.begin(model)
        self._automatic = conversation.name
        return conversation

    def save(self, conversation: Conversation) -> None:
        """Write the conversation, or remove one in which nothing was said; what keeps it from that is said once."""
        if not self._is_on:
            return
        if conversation.name == self._automatic and not _roles(conversation) & {"user", "assistant"}:
            with suppress(FileError):
                self.conversations.remove(conversation.name)
            return
        try:
            self.conversations.save(conversation)
            self._failure = ""
        except FileError as error:
            if str(error) != self._failure:
                click.echo(f"Error: {error}", err=True)
            self._failure = str(error)

    def name(self, conversation: Conversation, name: str) -> None:
        """Write the conversation under another name, now and from now on; one that the user gave stays, too.

        Raises:
            FileError: it can't be written, or the name is taken.
        """
        former = conversation.name
        if name not in ("", former):
            self.conversations.begin(conversation.model, name)  # fails if it is taken
            conversation.name = name
        try:
            self.conversations.save(conversation)
        except FileError:
            conversation.name = former
            raise
        self._is_on = True
        if former == self._automatic != conversation.name:
            with suppress(FileError):
                self.conversations.remove(former)

    def save_cache(self, engine: SpeculativeLM, conversation: Conversation) -> None:
        """Write what the engine evaluated of the conversation."""
        if self._with_cache and self.is_kept(conversation):
            engine.save_state(self.conversations.state_path(conversation))

    def restore_cache(self, engine: SpeculativeLM, conversation: Conversation) -> None:
        """Read what an engine evaluated of the conversation earlier."""
        if self._with_cache:
            engine.restore_state(self.conversations.state_path(conversation))

    def is_kept(self, conversation: Conversation) -> bool:
        """Whether the conversation is on disk, with an answer in it."""
        return self._is_on and "assistant" in _roles(conversation)


def _roles(conversation: Conversation) -> set[str]:
    return {message["role"] for message in conversation.messages}
