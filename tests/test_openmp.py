"""Engines leave no threads behind that would slow down other threads' passes."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakSet

import psutil
import pytest

from lcspec import SpeculativeLM
from lcspec.batching import BatchingEngine, Request
from lcspec.llama import Chunk, Model, SharedContext, openmp, read_header, release_threads

THREADS = 5


def n_threads_is(expected: int) -> bool:
    """Wait until this process has so many threads."""
    end = time.monotonic() + 10
    while psutil.Process().num_threads() != expected and time.monotonic() < end:
        time.sleep(0.01)
    return psutil.Process().num_threads() == expected


def test_threads_of_an_evaluation_stay_until_they_are_released(tiny_llama: Path) -> None:
    release_threads()
    before = psutil.Process().num_threads()
    with (
        Model(read_header(tiny_llama)) as model,
        SharedContext(model, 64, 1, threads=THREADS) as context,
    ):
        context.evaluate([Chunk(0, [1, 2, 3], 1)])
        assert n_threads_is(before + THREADS - 1)
        release_threads()
        assert n_threads_is(before)
        context.evaluate([Chunk(0, [4], 1)])
        release_threads()
        assert n_threads_is(before)


def test_an_engine_has_those_of_the_threads_that_write(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_several", False)
    monkeypatch.setattr(openmp, "_evaluated", WeakSet())
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(int).result()
        other.submit(int).result()
        before = psutil.Process().num_threads()
        lm = SpeculativeLM(tiny_llama, threads=THREADS, measure=False)
        assert n_threads_is(before), "it is made with one"
        text = one.submit(lm.generate, [3, 4, 5], max_tokens=8).result().text
        assert n_threads_is(before + THREADS - 1), "a thread keeps them while it is alone"
        assert other.submit(lm.generate, [3, 4, 5], max_tokens=8).result().text == text
        assert n_threads_is(before + THREADS - 1)
        with one.submit(lm.stream, [3, 4, 5], max_tokens=8).result() as stream:
            one.submit(next, stream).result()
            one.submit(stream.close).result()
        assert n_threads_is(before)
        lm.close()


def test_a_shared_engine_has_those_of_its_own_thread_only(tiny_llama: Path) -> None:
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(int).result()
        before = psutil.Process().num_threads()
        engine = elsewhere.submit(BatchingEngine, tiny_llama, threads=THREADS, measure=False).result()
        with engine:
            engine.submit(Request((3, 4, 5), max_tokens=4), lambda _: None).wait()
            own = before + 2  # for texts, and for prompts
            assert n_threads_is(own + THREADS - 1)
            tickets = [engine.submit(Request((3 + i, 4, 5), max_tokens=40), lambda _: None) for i in range(4)]
            assert all(ticket.wait(60) for ticket in tickets)
            engine.submit(Request((3, 4, 5), max_tokens=4), lambda _: None).wait()
            assert n_threads_is(own + THREADS - 1), "those that read beside texts are released"
        assert n_threads_is(before)
