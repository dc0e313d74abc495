"""Many clients of one server for minutes, some of which leave in the midst: every text has to be right.

    python -m bench.soak [--model M] [--seconds S] [--clients N]

Starts `lcspec serve --exact`, asks each of some requests alone, and then lets the clients ask them in any order, as
streams. A client leaves a third of its streams before their end. Each text is compared with the one that was asked for
alone, so far as it was read. At the end nothing may be written or wait, and the same requests, alone again, must have
the same answers. Exit status 1 if a text was wrong, something stayed behind, or the server's memory grew.
"""

import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import httpx
import psutil

_LEAVING = 1 / 3  # of the streams
_TOPICS = ("rivers", "clocks", "bread", "the moon", "trains", "bees", "paper", "salt")
_LETTER = (
    "Dear neighbours, last weekend we have celebrated our street festival. Nearly hundred people came, alltough the "
    "weather was not good. We collected 340 euros for the playground. Kind regards, Tom"
)
_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"
_GROWTH = 32.0  # MB that are no leak


@dataclass(frozen=True)
class Ask:
    """A request that is made again and again."""

    path: str
    body: dict[str, Any]


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        texts: streams that were read to their end.
        left: streams that were not.
        refused: answers that the queue was full.
        wrong: texts that were not those that were asked for alone, and where they began to differ.
        failed: answers that were errors, or no answers.
        memory: the server's, in MB, once a second.
        remains: what was still there at the end, by the name of the metric.
        tokens: that the server wrote meanwhile.
    """

    texts: int = 0
    left: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    remains: dict[str, float] = field(default_factory=dict)
    tokens: float = 0.0

    @property
    def growth(self) -> float:
        """MB by which memory grew from the first third to the end; what is loaded and kept first is no leak."""
        if len(self.memory) < 6:
            return 0.0
        third = len(self.memory) // 3
        return max(self.memory[-third:]) - max(self.memory[:third])

    @property
    def is_good(self) -> bool:
        """Whether all was as it must be."""
        return (
            not (self.wrong or self.failed or any(self.remains.values())) and self.growth < _GROWTH and self.texts > 0
        )


def asks(length: int) -> list[Ask]:
    """Return what is asked: short questions, drawn texts, and texts that repeat their prompts."""
    found = []
    for i, topic in enumerate(_TOPICS):
        drawing = {"temperature": 0.9, "seed": i} if i % 2 else {"temperature": 0}
        question = [
            {"role": "system", "content": "You answer briefly."},
            {"role": "user", "content": f"Tell me of {topic}."},
        ]
        found.append(Ask(_CHAT, {"messages": question, "max_tokens": length, **drawing}))
        prompt = f"{topic}, {topic} and {topic}. " * (i + 1)
        found.append(Ask(_TEXT, {"prompt": prompt, "max_tokens": length, **drawing}))
    edit = [{"role": "user", "content": f"Correct the spelling: {_LETTER}"}]
    prediction = {"type": "content", "content": _LETTER}
    found.append(Ask(_CHAT, {"messages": edit, "max_tokens": 2 * length, "temperature": 0, "prediction": prediction}))
    return found


async def soak(
    url: str, server: psutil.Process, *, seconds: float, clients: int, length: int, seed: int = 0
) -> Outcome:
    """Let clients ask for some time.

    Args:
        url: the server's.
        server: its process.
        seconds: how long.
        clients: how many.
        length: tokens of a text at the most, of some twice as many.
        seed: of who asks what, and leaves when.
    """
    outcome = Outcome()
    limits = httpx.Limits(max_connections=clients + 2)
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, limits=limits) as http:
        asked = asks(length)
        alone = [await _stream(http, ask, None, outcome) for ask in asked]
        if outcome.failed:
            return outcome
        before = await _metrics(http)
        outcome.texts = 0
        end = time.monotonic() + seconds
        generator = random.Random(seed)
        watching = asyncio.create_task(_watch(server, end, outcome))
        await asyncio.gather(
            *(_client(http, random.Random(generator.random()), end, asked, alone, outcome) for _ in range(clients))
        )
        await watching
        outcome.remains = await _remains(http)
        outcome.tokens = (await _metrics(http))["lcspec_tokens_total"] - before["lcspec_tokens_total"]
        for ask, text in zip(asked, alone, strict=True):
            _compare(await _stream(http, ask, None, outcome), text, is_whole=True, outcome=outcome)
    return outcome


async def _client(
    http: httpx.AsyncClient,
    draw: random.Random,
    end: float,
    asked: Sequence[Ask],
    alone: Sequence[str | None],
    outcome: Outcome,
) -> None:
    while time.monotonic() < end:
        i = draw.randrange(len(asked))
        stop = draw.randrange(1, 40) if draw.random() < _LEAVING else None
        text = await _stream(http, asked[i], stop, outcome)
        if text is None:
            await asyncio.sleep(0.2 * draw.random())
        else:
            _compare(text, alone[i], is_whole=stop is None, outcome=outcome)


async def _stream(http: httpx.AsyncClient, ask: Ask, stop: int | None, outcome: Outcome) -> str | None:
    """Return a stream's text, up to as many chunks as `stop` says; None where it is refused or fails."""
    text, n, is_done = "", 0, False
    try:
        async with http.stream("POST", ask.path, json={**ask.body, "stream": True}) as response:
            if response.status_code == 429:
                outcome.refused += 1
                return None
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    text += _text_of(json.loads(line[6:]))
                    n += 1
                    if n == stop:
                        outcome.left += 1
                        return text
                is_done = is_done or line == "data: [DONE]"
    except (httpx.HTTPError, KeyError) as error:
        outcome.failed.append(f"{ask.path}: {type(error).__name__} {error}")
        return None
    if not is_done:
        outcome.failed.append(f"{ask.path}: status {response.status_code}, or a stream that was cut off")
        return None
    outcome.texts += 1
    return text


def _text_of(chunk: dict[str, Any]) -> str:
    (choice,) = chunk["choices"]
    return str(choice["text"] if "text" in choice else choice["delta"].get("content", ""))


def _compare(text: str | None, alone: str | None, *, is_whole: bool, outcome: Outcome) -> None:
    if text is None or alone is None:
        return
    if text != alone if is_whole else not alone.startswith(text):
        same = next((i for i, (one, other) in enumerate(zip(text, alone, strict=False)) if one != other), len(text))
        outcome.wrong.append(f"from character {same}: {text[same : same + 30]!r}, not {alone[same : same + 30]!r}")


async def _watch(server: psutil.Process, end: float, outcome: Outcome) -> None:
    while time.monotonic() < end:
        outcome.memory.append(server.memory_info().rss / 1e6)
        await asyncio.sleep(1)


async def _metrics(http: httpx.AsyncClient) -> dict[str, float]:
    text = (await http.get("/metrics")).text
    return {name: float(value) for name, value in re.findall(r"^(lcspec_\w+) (\S+)$", text, re.MULTILINE)}


async def _remains(http: httpx.AsyncClient) -> dict[str, float]:
    """Return what is written or waits, and the sequences of that, as soon as that is nothing, or after some seconds."""
    names = ("lcspec_requests_active", "lcspec_requests_queued", "lcspec_sequences")
    for _ in range(100):
        metrics = await _metrics(http)
        if not any(metrics[name] for name in names):
            break
        await asyncio.sleep(0.05)
    too_many = max(0.0, metrics["lcspec_cells"] - metrics["lcspec_cells_most"])
    return {**{name: metrics[name] for name in names}, "cells beyond the most": too_many}


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server on a free port, and end it with the block."""
    command = [str(Path(sys.executable).with_name("lcspec")), "serve", "--exact", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as popen:
        try:
            assert popen.stderr is not None
            for line in popen.stderr:
                if found := re.search(r"serving .* at (http\S+)/v1", line):
                    break
                print(line, end="", file=sys.stderr)
            else:
                raise click.ClickException("the server did not start")
            threading.Thread(target=popen.stderr.read, daemon=True).start()  # or the pipe would be full one day
            yield found[1], psutil.Process(popen.pid)
            popen.terminate()
            popen.wait(60)
        finally:
            popen.kill()


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True)
@click.option("--seconds", default=180.0, show_default=True)
@click.option("--clients", default=50, show_default=True)
@click.option("--length", default=48, show_default=True, help="Tokens of a text at the most.")
@click.option("--parallel", default=8, show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(model: str, seconds: float, clients: int, length: int, parallel: int, seed: int) -> None:
    with serving("-m", model, "--parallel", str(parallel), "--queue", str(clients)) as (url, server):
        outcome = asyncio.run(soak(url, server, seconds=seconds, clients=clients, length=length, seed=seed))
    print(f"{outcome.texts:,} texts read to their end, {outcome.left:,} left before it, {outcome.refused:,} refused")
    print(f"{outcome.tokens / seconds:,.1f} tokens/s")
    print(f"wrong texts: {len(outcome.wrong)}")
    print(f"failed: {len(outcome.failed)}")
    print(f"memory: {outcome.memory[0]:,.0f} to {outcome.memory[-1]:,.0f} MB, growth {outcome.growth:+.1f} MB")
    print(f"left behind: {outcome.remains}")
    for line in (outcome.wrong + outcome.failed)[:10]:
        print(f"  {line}")
    sys.exit(not outcome.is_good)


if __name__ == "__main__":
    main()
