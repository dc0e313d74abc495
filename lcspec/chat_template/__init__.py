"""Chat templates: the Jinja text in a GGUF that turns messages into a prompt."""

from lcspec.chat_template.template import ChatTemplate

__all__ = ["ChatTemplate"]
