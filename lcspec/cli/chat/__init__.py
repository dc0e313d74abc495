"""`lcspec chat`: a conversation in the terminal."""

from lcspec.cli.chat.command import chat

__all__ = ["chat"]
