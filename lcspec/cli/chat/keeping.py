"""What is kept of a conversation on disk."""

from contextlib import suppress

import click

from lcspec.cli.report import print_error, printable
from lcspec.conversation import Conversation
from lcspec.conversations import ChangedError, Conversations
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
        self._problems: dict[str, str] = {}  # what keeps conversations from being written, by their names
        self._automatic = ""  # the name of a conversation that the user did not name

    def begin(self, model: str) -> Conversation:
        """Return a new conversation."""
        conversation = self.conversations.begin(model)
        self._automatic = conversation.name
        return conversation

    def load(self, name: str) -> Conversation:
        """Read a conversation, to go on with it.

        Raises:
            FileError: as of `Conversations.load`.
        """
        conversation = self.conversations.load(name)
        self._problems.pop(name, None)
        return conversation

    def save(self, conversation: Conversation) -> None:
        """Write the conversation, or remove one in which nothing was said.

        One whose file another process changed goes on under another name. What else keeps it from being written is
        said once.
        """
        if not self._is_on:
            return
        if conversation.name == self._automatic and not _roles(conversation) & {"user", "assistant"}:
            with suppress(FileError):
                self.conversations.remove(conversation.name)
            return
        try:
            self._write(conversation)
            self._problems.pop(conversation.name, None)
        except FileError as error:
            if str(error) != self.problem(conversation):
                print_error(error)
            self._problems[conversation.name] = str(error)

    def _write(self, conversation: Conversation) -> None:
        try:
            self.conversations.save(conversation)
        except ChangedError:
            former, conversation.name = conversation.name, self.conversations.begin(conversation.model).name
            try:
                self.conversations.save(conversation)
            except FileError:
                conversation.name = former
                raise
            self._automatic = conversation.name
            click.echo(
                f"Error: the file of {printable(former)} was changed elsewhere; this conversation is kept as "
                f"{conversation.name} from now on",
                err=True,
            )

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
        self._problems.pop(conversation.name, None)
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
        return self._is_on and not self.problem(conversation) and "assistant" in _roles(conversation)

    def problem(self, conversation: Conversation) -> str:
        """Return what kept the conversation from being written as it is; an empty text where nothing did."""
        return self._problems.get(conversation.name, "")


def _roles(conversation: Conversation) -> set[str]:
    return {message["role"] for message in conversation.messages}
