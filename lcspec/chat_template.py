"""Chat templates: the Jinja text in a GGUF that turns messages into a prompt."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lcspec.errors import PromptError


class ChatTemplate:
    """A compiled chat template; rendering runs in Jinja's sandbox.

    What a template may use (`bos_token`, `raise_exception`, `strftime_now`, `tojson`, `break`, `generation`)
    and how blank space is trimmed follow Hugging Face's chat templates, for which these texts are written.

    Args:
        source: the Jinja text.
        bos, eos: the texts of the model's beginning- and end-of-text tokens.

    Raises:
        PromptError: the template has a syntax error.
    """

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(
            bos_token=bos, eos_token=eos, raise_exception=_raise_exception, strftime_now=_strftime_now
        )
        try:
            self._template = environment.from_string(source)
        except Exception as error:  # a template is a program; compiling it can fail in any way
            raise PromptError(f"the model's chat template can't be used: {_one_line(error)}") from error

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the prompt for `messages`, ready for the assistant's answer.

        Args:
            messages: mappings with 'role' (system, user or assistant) and 'content'.

        Raises:
            PromptError: the messages are no conversation, or the template refuses them.
        """
        if not messages:
            raise PromptError("a chat needs at least one message")
        for message in messages:
            if not isinstance(message, Mapping) or not {"role", "content"} <= message.keys():
                raise PromptError("each message of a chat is a mapping with 'role' and 'content'")
        try:
            return self._template.render(
                messages=list(messages), tools=None, documents=None, add_generation_prompt=True
            )
        except Exception as error:
            raise PromptError(f"the model's chat template refuses these messages: {_one_line(error)}") from error


class _GenerationTag(Extension):
    """Ignores {% generation %}, with which templates mark what an assistant says, for training."""

    tags = {"generation"}  # noqa: RUF012  as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
