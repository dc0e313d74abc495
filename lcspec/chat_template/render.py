"""Rendering in Jinja's sandbox; as a script, the process that renders: a line of JSON in, a line of JSON out.

A chat waits for it to start, so it imports the standard library and jinja2 only.
"""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
    sys.path += sys.argv[1:]  # where jinja2 is

if sys.platform != "win32":
    import resource

from jinja2 import Template, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_LONGEST_REASON = 500


def to_line(value: Any) -> bytes:
    """Return `value` as a line of JSON; lone surrogates are kept."""
    return (json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def from_line(line: bytes) -> Any:
    """Return the value of a line of JSON."""
    return json.loads(line.decode("utf-8", "surrogatepass"))


def answer(request: dict[str, Any]) -> bytes:
    """Compile a template and render messages.

    Args:
        request: 'source', 'bos' and 'eos' of the template; 'messages', a list as JSON text, empty to only
            compile; 'length', the characters that the text may have; 'memory', the bytes that there are.

    Returns:
        The line of an object with one of 'text', 'refused' (by the template, and why) and 'limit' (which one
        the template broke).
    """
    with suppress(MemoryError):
        return to_line(_outcome(request))
    # the frames that held the memory are gone
    return to_line({"limit": f"took more than {request['memory'] >> 20} MiB of memory"})


def _outcome(request: dict[str, Any]) -> dict[str, str]:
    problem = "can't be used"
    try:
        template = _compile(request["source"], request["bos"], request["eos"])
        problem = "refuses these messages"
        return {"text": _render(template, request["messages"], request["length"]) if request["messages"] else ""}
    except _LengthError:
        return {"limit": f"wrote more than {request['length'] >> 20} MiB"}
    except Exception as error:  # a template is a program; it can fail in any way
        if isinstance(error, MemoryError) and not error.args:  # with a text: Python's compiler gave up
            raise
        return {"refused": f"{problem}: {_one_line(error)}"}


@lru_cache(maxsize=4)
def _compile(source: str, bos: str, eos: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        bos_token=bos, eos_token=eos, raise_exception=_raise_exception, strftime_now=_strftime_now
    )
    return environment.from_string(source)


def _render(template: Template, messages: str, length: int) -> str:
    chunks = []
    for chunk in template.generate(
        messages=json.loads(messages), tools=None, documents=None, add_generation_prompt=True
    ):
        chunks.append(chunk)
        length -= len(chunk)
        if length < 0:
            raise _LengthError
    return "".join(chunks)


class _LengthError(Exception):
    """The text is longer than it may be."""


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


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _one_line(error: Exception) -> str:
    """Return the error's text as one line that any terminal can show."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 1] + "…"
    return "".join(character if character.isprintable() else "�" for character in text)


@contextmanager
def _limits(seconds: float, memory: int) -> Iterator[None]:
    """Let the system end this process after `seconds` of CPU time, and refuse it more than `memory` bytes."""
    if sys.platform == "win32":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    _limit_memory(memory, before[1])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, also where the parent ignores it
    signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    _limit_memory(*before)


def _limit_memory(soft: int, hard: int) -> None:
    if sys.platform != "win32":
        with suppress(ValueError):  # a lower limit holds already, or the system has none (macOS)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _serve() -> None:
    for line in sys.stdin.buffer:
        request = from_line(line)
        with _limits(request["seconds"], request["memory"]):
            reply = answer(request)
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
