"""Clients that ask a server of OpenAI's API at once, and what they see of it."""

import http.client
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

from bench.server_process import ANSWER_SECONDS, PeerError
from bench.workloads import Question

ALIAS = "benchmarked"
"""What all servers are told to call their model."""


@dataclass(frozen=True)
class Seen:
    """What a client saw of one answer.

    Attributes:
        prompt_tokens: length of the prompt.
        tokens: length of the answer.
        first_seconds: from the request to the first text.
        longest_wait: the most seconds between two events of the stream behind that.
        seconds: from the request to the end.
    """

    prompt_tokens: int
    tokens: int
    first_seconds: float
    longest_wait: float
    seconds: float


@dataclass(frozen=True)
class Run:
    """What some clients saw together.

    Attributes:
        seconds: from the first request to the end of the last answer.
        answers: one for each question.
    """

    seconds: float
    answers: tuple[Seen, ...]

    @property
    def throughput(self) -> float:
        """Tokens of all answers for each second."""
        return sum(answer.tokens for answer in self.answers) / self.seconds

    @property
    def first_seconds(self) -> float:
        """The median of the seconds to the first text."""
        return median(answer.first_seconds for answer in self.answers)

    @property
    def longest_wait(self) -> float:
        """The longest of all answers' waits."""
        return max(answer.longest_wait for answer in self.answers)


def run_clients(port: int, clients: int, questions: Sequence[Question], max_tokens: int, mark: str) -> Run:
    """Let clients ask all questions, each the next one as soon as it has its answer.

    Args:
        port: where the server is.
        clients: how many ask at once.
        questions: what they ask.
        max_tokens: tokens of an answer at the most.
        mark: begins each conversation, so that nothing evaluated in an earlier run is of use.

    Raises:
        PeerError: a question was not answered.
    """
    waiting: SimpleQueue[Question] = SimpleQueue()
    for question in questions:
        waiting.put(question)
    seen: list[Seen] = []
    errors: list[PeerError] = []

    def client() -> None:
        while not errors:
            try:
                question = waiting.get_nowait()
            except Empty:
                return
            try:
                seen.append(_ask(port, question, max_tokens, mark))
            except PeerError as error:
                errors.append(error)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return Run(time.perf_counter() - started, tuple(seen))


def _ask(port: int, question: Question, max_tokens: int, mark: str) -> Seen:
    body = {
        "model": ALIAS,
        "messages": [{"role": "system", "content": f"{mark} You are a helpful assistant."}, *question.messages()],
        "max_tokens": min(max_tokens, question.max_tokens),
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    started = time.perf_counter()
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise PeerError(f"the server on port {port} answers {response.status}: {response.read(500)!r}")
        first, longest, usage = _read_events(response)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PeerError(f"the server on port {port}: {error or type(error).__name__}") from error
    finally:
        connection.close()
    ended = time.perf_counter()
    first_seconds = (first or ended) - started
    return Seen(usage["prompt_tokens"], usage["completion_tokens"], first_seconds, longest, ended - started)


def _read_events(response: http.client.HTTPResponse) -> tuple[float | None, float, dict[str, Any]]:
    """Return when the first text came, the longest wait behind it, and the usage; most events are not even parsed."""
    first = last = None
    longest = 0.0
    usage: dict[str, Any] | None = None
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        now = time.perf_counter()
        if first is None or b'"usage":{' in line.replace(b" ", b""):
            event = json.loads(line[len(b"data: ") :])
            usage = event.get("usage") or usage
            if first is None and any(choice["delta"].get("content") for choice in event.get("choices", ())):
                first = now
        if last is not None:
            longest = max(longest, now - last)
        last = now if first is not None else None
    if usage is None:
        raise PeerError("the answer ended without its usage")
    return first, longest, usage
