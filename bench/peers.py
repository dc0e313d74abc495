"""Others to time on the same file: `llama_cpp.Llama` and llama.cpp's server.

Both are given the same tokens, context and threads, and choose greedily. What else they do is their default.
"""

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import click
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaDraftModel, LlamaPromptLookupDecoding

from bench.report import LLAMA, SERVER, Timing
from bench.server_process import PeerError, free_port, request_json, server_process

LOOKUP_LENGTHS = (10, 2)
"""Tokens that llama-cpp-python's prompt lookup drafts: its default, and what it recommends without a GPU."""

_FORGETFUL, _REMEMBERING = ("ngram-simple",), ("ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")


@dataclass(frozen=True)
class Run:
    """A generation: how long it took, and the tokens of the text without one that ends it."""

    timing: Timing
    text: tuple[int, ...]


class Contender(Protocol):
    """Something to time.

    Attributes:
        name: in the results.
        once: whether it must not be asked a question again, since it would copy its first answer.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def once(self) -> bool: ...  # noqa: D102

    def run(self, prompt: Sequence[int], max_tokens: int, *, fresh: bool) -> Run:
        """Continue a prompt: from an empty cache (`fresh`), or with the prompt in the cache where it was."""


@dataclass(frozen=True)
class Setting:
    """What all contenders are given.

    Attributes:
        model: its file.
        n_ctx: tokens of context.
        threads: for prompts and texts.
        is_eog: tells tokens that end a generation.
    """

    model: Path
    n_ctx: int
    threads: int
    is_eog: Callable[[int], bool]


# llama_cpp.Llama


@dataclass(frozen=True)
class LlamaPeer:
    """A `llama_cpp.Llama`, drafting or not."""

    name: str
    llama: Llama
    drafter: LlamaDraftModel | None
    is_eog: Callable[[int], bool]
    once: bool = False

    def run(self, prompt: Sequence[int], max_tokens: int, *, fresh: bool) -> Run:
        """Continue a prompt; see `Contender`."""
        self.llama.draft_model = self.drafter
        if fresh:
            self.llama.reset()
        started = time.perf_counter()
        generated = islice(self.llama.generate(prompt, temp=0.0, repeat_penalty=1.0), max_tokens)
        tokens = [next(generated)]
        first = time.perf_counter()
        while not self.is_eog(tokens[-1]) and (token := next(generated, None)) is not None:
            tokens.append(token)
        timing = Timing(first - started, time.perf_counter() - first, len(tokens))
        return Run(timing, text_of(tokens, self.is_eog))


@contextmanager
def llamas(setting: Setting) -> Iterator[list[LlamaPeer]]:
    """Load `llama_cpp.Llama` once to decode plainly and once for prompt lookup, which needs all logits."""
    with closing(_llama(setting, logits_all=False)) as plain, closing(_llama(setting, logits_all=True)) as drafting:
        yield [
            LlamaPeer(LLAMA, plain, None, setting.is_eog),
            *(
                LlamaPeer(f"{LLAMA} lookup-{n}", drafting, LlamaPromptLookupDecoding(num_pred_tokens=n), setting.is_eog)
                for n in LOOKUP_LENGTHS
            ),
        ]


def _llama(setting: Setting, *, logits_all: bool) -> Llama:
    return Llama(
        str(setting.model),
        n_ctx=setting.n_ctx,
        n_threads=setting.threads,
        n_threads_batch=setting.threads,
        logits_all=logits_all,
        verbose=False,
    )


def text_of(tokens: Sequence[int], is_eog: Callable[[int], bool]) -> tuple[int, ...]:
    """Return tokens without one that ends the generation."""
    return tuple(tokens[:-1] if tokens and is_eog(tokens[-1]) else tokens)


# llama-server


@dataclass(frozen=True)
class Mode:
    """One way of the server to draft.

    Attributes:
        name: in the results, behind the server's.
        arguments: what chooses it.
        once: whether it remembers texts from one request to the next.
    """

    name: str
    arguments: tuple[str, ...]
    once: bool = False


def server_modes(draft: Path | None) -> list[Mode]:
    """Return plain decoding, what drafts without a model, and the draft model if there is one.

    All n-gram modes but the simple one keep statistics, or what was written, from one request to the next.
    """
    modes = [Mode("", ())]
    modes += [Mode(name, ("--spec-type", name)) for name in _FORGETFUL]
    modes += [Mode(name, ("--spec-type", name), once=True) for name in _REMEMBERING]
    if draft is not None:
        modes.append(Mode("draft-simple", ("--spec-type", "draft-simple", "--model-draft", str(draft))))
    return modes


def server_command(binary: Path, setting: Setting, mode: Mode, port: int) -> list[str]:
    """Return how a server is started: one slot, and no cache of earlier prompts beside it."""
    threads = str(setting.threads)
    return [
        *(str(binary), "--host", "127.0.0.1", "--port", str(port), "--no-webui"),
        *("--model", str(setting.model), "--ctx-size", str(setting.n_ctx)),
        *("--threads", threads, "--threads-batch", threads, "--parallel", "1", "--cache-ram", "0"),
        *mode.arguments,
    ]


def timing_of(timings: dict[str, Any]) -> Timing:
    """Return what a server's 'timings' say; its times of prediction begin at the first token."""
    return Timing(
        prefill_seconds=timings["prompt_ms"] / 1e3,
        decode_seconds=timings["predicted_ms"] / 1e3,
        tokens=timings["predicted_n"],
        drafted=timings.get("draft_n", 0),
        accepted=timings.get("draft_n_accepted", 0),
    )


@dataclass(frozen=True)
class ServerPeer:
    """A llama-server that answers on a local port."""

    name: str
    port: int
    is_eog: Callable[[int], bool]
    once: bool

    def run(self, prompt: Sequence[int], max_tokens: int, *, fresh: bool) -> Run:
        """Continue a prompt; see `Contender`.

        Raises:
            PeerError: the server does not answer.
        """
        question = {
            "prompt": list(prompt),
            "n_predict": max_tokens,
            "temperature": 0,
            "cache_prompt": not fresh,
            "return_tokens": True,
        }
        status, answer = request_json(self.port, "POST", "/completion", question)
        if status != http.client.OK:
            raise PeerError(f"{self.name}: {answer}")
        return Run(timing_of(answer["timings"]), text_of(answer["tokens"], self.is_eog))


@contextmanager
def servers(binary: Path, setting: Setting, draft: Path | None) -> Iterator[list[ServerPeer]]:
    """Start a server for each mode; one that doesn't start is told of and left out."""
    with ExitStack() as stack:
        peers = []
        for mode in server_modes(draft):
            try:
                peers.append(stack.enter_context(_server(binary, setting, mode)))
            except PeerError as error:
                click.echo(f"{error}; going on without it", err=True)
        yield peers


@contextmanager
def _server(binary: Path, setting: Setting, mode: Mode) -> Iterator[ServerPeer]:
    name = f"{SERVER} {mode.name}".strip()
    port = free_port()
    with server_process(name, server_command(binary, setting, mode, port), port, speculation_complaint):
        yield ServerPeer(name, port, setting.is_eog, mode.once)


def speculation_complaint(log: str) -> str | None:
    """Return the line of a server's log that says it will decode plainly instead, if there is one."""
    return next(
        (
            line.strip()
            for line in log.splitlines()
            if "speculative decoding" in line and ("failed" in line or "not supported" in line)
        ),
        None,
    )
