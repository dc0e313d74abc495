"""What tests of the engine for many requests share."""

import math
import threading
import time

import numpy as np
import tiny

from lcspec import GREEDY, Completion, Piece, SamplingParams, SpeculativeLM
from lcspec.batching import BatchingEngine, Finished, Request, Ticket

A_MINUTE = 60
ENDLESS = SamplingParams(temperature=0.0, logit_bias={tiny.EOS: -math.inf, tiny.END_OF_TURN: -math.inf})
"""Of a tiny model that does not end its texts."""


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


class Held:
    """A listener that holds the engine at the first piece, until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, what: Piece | Finished) -> None:
        self.begun.set()
        assert self.go_on.wait(A_MINUTE)


def ignore(what: Piece | Finished) -> None:
    """Listen to nothing."""


def random_prompt(seed: int, n: int = 40) -> tuple[int, ...]:
    """Return a prompt that repeats itself, so that there are drafts."""
    random = np.random.default_rng(seed)
    part = [int(token) for token in random.integers(32, 122, max(1, n // 3))]
    return tuple((part * 4)[:n])


def random_request(random: np.random.Generator, longest_prompt: int = 110) -> Request:
    """Return a request that may begin like others, with random options."""
    longest = longest_prompt // 2
    shared = random_prompt(int(random.integers(3)), int(random.integers(1, longest)))
    own = random_prompt(int(random.integers(100)), int(random.integers(1, longest)))
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


def finish(ticket: Ticket) -> Completion:
    """Wait for a request that does not fail."""
    assert ticket.wait(A_MINUTE)
    assert ticket.error is None
    assert ticket.completion is not None
    return ticket.completion


def settle(engine: BatchingEngine) -> None:
    """Wait until nothing is queued or active."""
    deadline = time.monotonic() + A_MINUTE
    while (metrics := engine.metrics()).queued or metrics.active:
        assert time.monotonic() < deadline, metrics
        time.sleep(0.002)


def lone(lm: SpeculativeLM, request: Request) -> Completion:
    """Return what an engine without neighbours and without a cache writes."""
    lm.clear()
    return lm.generate(
        request.prompt,
        max_tokens=request.max_tokens,
        sampling=request.sampling,
        stop=request.stop,
        logprobs=request.logprobs,
        drafter="none",
    )


def is_same(found: Completion, expected: Completion) -> bool:
    """Tell whether texts are the same, to the last bit of their log-probabilities."""
    return (found.text, found.tokens, found.logprobs, found.finish_reason, found.seed) == (
        expected.text,
        expected.tokens,
        expected.logprobs,
        expected.finish_reason,
        expected.seed,
    )


def run_workload(
    engine: BatchingEngine, lm: SpeculativeLM, seed: int, n: int, longest_prompt: int = 110, *, together: bool = False
) -> None:
    """Run random requests that come and go, or come together, and compare each text with that of a run alone."""
    random = np.random.default_rng(seed)
    asked: list[tuple[Ticket, Heard, bool]] = []
    all_are_there = threading.Event()
    if together:  # the engine goes on from this one's first piece when the others have come
        engine.submit(Request((1, 2, 3), 4), lambda _: all_are_there.wait(60))
    for _ in range(n):
        heard = Heard()
        ticket = engine.submit(random_request(random, longest_prompt), heard)
        is_cancelled = bool(random.random() < 0.2)
        if is_cancelled:
            threading.Timer(float(random.random()) * 0.02, ticket.cancel).start()
        asked.append((ticket, heard, is_cancelled))
        time.sleep(0 if together else float(random.random()) * 0.01)
    all_are_there.set()
    for ticket, heard, is_cancelled in asked:
        found = finish(ticket)
        expected = lone(lm, ticket.request)
        assert heard.ends == [ticket.finished]
        assert heard.text == found.text
        if is_cancelled and found.finish_reason == "cancelled":
            assert expected.tokens[: len(found.tokens)] == found.tokens
        else:
            assert is_same(found, expected), (seed, ticket.request)
            assert found.stats.exact is True
    settle(engine)
