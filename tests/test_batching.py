"""Many requests on one engine: each gets its own text, whatever the others do."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lcspec import GREEDY, SamplingParams, SpeculativeLM
from lcspec.batching import BatchingEngine, Finished, Request, Ticket
from lcspec.stream import Completion, Piece

N_CTX = 400


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.ends: list[Finished] = []

    def __call__(self, what: Piece | Finished) -> None:
        assert not self.ends, "nothing comes behind the end"
        if isinstance(what, Piece):
            self.pieces.append(what)
        else:
            self.ends.append(what)

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def ignore(what: Piece | Finished) -> None:
    pass


def random_prompt(seed: int, n: int = 40) -> tuple[int, ...]:
    """Return a prompt that repeats itself, so that there are drafts."""
    random = np.random.default_rng(seed)
    part = [int(token) for token in random.integers(32, 122, max(1, n // 3))]
    return tuple((part * 4)[:n])


def finish(ticket: Ticket) -> Completion:
    assert ticket.wait(60)
    assert ticket.error is None
    assert ticket.completion is not None
    return ticket.completion


def settled(engine: BatchingEngine) -> None:
    """Wait until nothing is queued or active."""
    for _ in range(2000):
        metrics = engine.metrics()
        if not metrics.queued and not metrics.active:
            return
        time.sleep(0.005)
    raise AssertionError(engine.metrics())


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[BatchingEngine]:
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=1, exact=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def alone(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, n_ctx=N_CTX, threads=1, exact=True, drafter="none") as lm:
        yield lm


def lone(lm: SpeculativeLM, request: Request) -> Completion:
    lm.clear()
    return lm.generate(
        request.prompt,
        max_tokens=request.max_tokens,
        sampling=request.sampling,
        stop=request.stop,
        logprobs=request.logprobs,
    )


def random_request(random: np.random.Generator) -> Request:
    shared = random_prompt(int(random.integers(3)), int(random.integers(1, 60)))
    own = random_prompt(int(random.integers(100)), int(random.integers(1, 50)))
    sampling = SamplingParams(temperature=0.9, top_k=int(random.integers(2, 30)), seed=int(random.integers(100)))
    return Request(
        (*shared, *own),
        int(random.integers(1, 60)),
        GREEDY if random.random() < 0.5 else sampling,
        stop=("a",) if random.random() < 0.3 else (),
        logprobs=2 if random.random() < 0.5 else None,
        prediction=random_prompt(int(random.integers(100)), 30) if random.random() < 0.3 else (),
        speculate=bool(random.random() < 0.8),
    )


def same(found: Completion, expected: Completion) -> bool:
    return (found.text, found.tokens, found.logprobs, found.finish_reason, found.seed) == (
        expected.text,
        expected.tokens,
        expected.logprobs,
        expected.finish_reason,
        expected.seed,
    )


def workload(engine: BatchingEngine, lm: SpeculativeLM, seed: int, n: int) -> None:
    """Run random requests that come and go, and compare each text with that of a run alone."""
    random = np.random.default_rng(seed)
    tickets: list[tuple[Ticket, Heard, bool]] = []
    for _ in range(n):
        heard = Heard()
        ticket = engine.submit(random_request(random), heard)
        cancelled = bool(random.random() < 0.2)
        if cancelled:
            threading.Timer(float(random.random()) * 0.02, ticket.cancel).start()
        tickets.append((ticket, heard, cancelled))
        time.sleep(float(random.random()) * 0.01)
    for ticket, heard, cancelled in tickets:
        found = finish(ticket)
        expected = lone(lm, ticket.request)
        assert heard.ends == [ticket.finished]
        assert heard.text == found.text
        if cancelled and found.finish_reason == "cancelled":
            assert expected.tokens[: len(found.tokens)] == found.tokens
        else:
            assert same(found, expected), (seed, ticket.request)
            assert found.stats.exact is True
    settled(engine)


@pytest.mark.parametrize("seed", range(6))
def test_each_text_is_that_of_a_run_alone(engine: BatchingEngine, alone: SpeculativeLM, seed: int) -> None:
    workload(engine, alone, seed, 24)


def test_there_were_drafts_prefixes_and_neighbours(engine: BatchingEngine, alone: SpeculativeLM) -> None:
    workload(engine, alone, 100, 24)
    metrics = engine.metrics()
    assert metrics.drafters["lookup"].accepted > 0
    assert metrics.cache_hits > 0
    assert metrics.passes < metrics.tokens
    assert metrics.cells <= N_CTX
