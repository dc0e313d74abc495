"""What fails in one request stays there, and an engine that fails goes on once."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batching import ENDLESS, Heard, Held, finish, ignore, random_prompt, settle

import lcspec.batching.engine
import lcspec.llama.shared_context
from lcspec import EvaluationError, Piece, SamplingParams
from lcspec.batching import BatchingEngine, Finished, Request
from lcspec.batching.slots import Prefix, Slots
from lcspec.errors import EngineDownError
from lcspec.rules import Rule, make_rule

N_CTX = 300
BAD_SEED = 13
SAMPLED = SamplingParams(temperature=0.9, seed=BAD_SEED)


@pytest.fixture
def engine(tiny_llama: Path) -> Iterator[BatchingEngine]:
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=3, threads=1, exact=True) as engine:
        yield engine


class BrokenStore:
    """A store whose library raises what it should not."""

    def find(self, vocabulary: bytes, suffix: Sequence[int], limit: int) -> None:
        raise ZeroDivisionError("the store is broken")


@pytest.fixture
def failing_decode(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Lets llama.cpp's evaluations fail: `times` of them, after some that succeed."""
    decode = lcspec.llama.shared_context.llama_cpp.llama_decode
    left = [10**9, 0]

    def sometimes(*arguments: Any) -> int:
        left[0] -= 1
        if left[0] < 0 < left[1]:
            left[1] -= 1
            return -3
        return int(decode(*arguments))

    def fail(after: int, times: int) -> None:
        left[:] = [after, times]

    monkeypatch.setattr(lcspec.llama.shared_context.llama_cpp, "llama_decode", sometimes)
    return fail


def test_a_listener_that_raises_ends_its_own_request_only(engine: BatchingEngine) -> None:
    heard: list[Piece | Finished] = []

    def listen(what: Piece | Finished) -> None:
        heard.append(what)
        if len(heard) >= 3:
            raise ValueError("cannot listen")

    others = [engine.submit(Request(random_prompt(i), 40), Heard()) for i in range(2)]
    bad = engine.submit(Request(random_prompt(7), 40), listen)
    assert all(len(finish(ticket).tokens) > 0 for ticket in others)
    assert bad.wait(10)
    assert isinstance(bad.error, ValueError)
    assert isinstance(heard[-1], Finished)
    assert len(heard) == 4
    assert bad.completion is not None
    assert bad.completion.finish_reason == "cancelled"
    settle(engine)
    metrics = engine.metrics()
    assert (metrics.requests["error"], metrics.crashes, metrics.is_up) == (1, 0, True)


def test_a_rule_that_fails_ends_its_own_request_only(engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __init__(self, rule: Rule) -> None:
            self.rule, self.n = rule, 0

        def propose(self, *arguments: Any) -> Any:
            return self.rule.propose(*arguments)

        def verify(self, *arguments: Any) -> Any:
            self.n += 1
            if self.n == 4:
                raise EvaluationError("nothing is left to choose from")
            return self.rule.verify(*arguments)

    def rule(params: SamplingParams, name: Any, seed: int) -> Any:
        made = make_rule(params, name, seed)
        return Failing(made) if seed == BAD_SEED else made

    monkeypatch.setattr(lcspec.batching.engine, "make_rule", rule)
    others = [engine.submit(Request(random_prompt(i), 40), ignore) for i in range(2)]
    bad = engine.submit(Request(random_prompt(7), 40, SAMPLED), ignore)
    texts = [finish(ticket).tokens for ticket in others]
    assert bad.wait(10)
    assert isinstance(bad.error, EvaluationError)
    assert bad.completion is not None
    assert len(bad.completion.tokens) == 3
    again = [finish(engine.submit(ticket.request, ignore)).tokens for ticket in others]
    assert again == texts
    settle(engine)


def test_a_drafter_that_fails_ends_its_own_request_only(tiny_llama: Path) -> None:
    store: Any = BrokenStore()
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=3, threads=1, store=store) as engine:
        good = [engine.submit(Request(random_prompt(i), 40, speculate=False), ignore) for i in range(2)]
        bad = engine.submit(Request(random_prompt(7), 40), ignore)
        assert all(len(finish(ticket).tokens) > 0 for ticket in good)
        assert bad.wait(10)
        assert isinstance(bad.error, ZeroDivisionError)
        settle(engine)


def test_logits_that_are_no_numbers_end_the_request_that_samples_them(tmp_path: Path) -> None:
    import tiny

    path = tiny.write_model(tmp_path / "nan.gguf", nan=True)
    with BatchingEngine(path, n_ctx=N_CTX, threads=1) as engine:
        ticket = engine.submit(Request((40, 41), 5, SAMPLED), ignore)
        assert ticket.wait(10)
        assert isinstance(ticket.error, EvaluationError)
        assert engine.metrics().is_up


def test_after_a_crash_the_engine_goes_on_and_what_waited_is_served(
    engine: BatchingEngine, failing_decode: Callable[[int, int], None]
) -> None:
    request = Request(random_prompt(1), 30)
    expected = finish(engine.submit(request, ignore)).tokens
    held = Held()
    first = engine.submit(Request(random_prompt(2), 200, ENDLESS), held)
    assert held.begun.wait(10)
    active = [engine.submit(Request(random_prompt(3 + i), 200, ENDLESS), ignore) for i in range(2)]
    waiting = engine.submit(request, ignore)
    failing_decode(5, 1)
    held.go_on.set()
    for ticket in (first, *active):
        assert ticket.wait(10)
        assert isinstance(ticket.error, EngineDownError)
        assert isinstance(ticket.error.__cause__, EvaluationError)
    assert finish(waiting).tokens == expected
    metrics = engine.metrics()
    assert (metrics.crashes, metrics.is_up, metrics.active) == (1, True, 0)


def test_after_a_second_crash_the_engine_is_down(
    engine: BatchingEngine, failing_decode: Callable[[int, int], None]
) -> None:
    for _ in range(2):
        failing_decode(0, 1)
        ticket = engine.submit(Request(random_prompt(1), 30), ignore)
        assert ticket.wait(10)
        assert isinstance(ticket.error, EngineDownError)
    for _ in range(200):
        if not engine.metrics().is_up:
            break
        time.sleep(0.01)
    with pytest.raises(EngineDownError, match="failed 2 times and is down"):
        engine.submit(Request(random_prompt(1), 30), ignore)
    engine.close()


def test_an_engine_that_cannot_be_restarted_is_down_at_once(
    engine: BatchingEngine, failing_decode: Callable[[int, int], None]
) -> None:
    failing_decode(0, 2)
    ticket = engine.submit(Request(random_prompt(1), 30), ignore)
    assert ticket.wait(10)
    assert isinstance(ticket.error, EngineDownError)
    assert not engine.metrics().is_up


def test_requests_that_wait_when_the_engine_goes_down_are_told(
    engine: BatchingEngine, failing_decode: Callable[[int, int], None]
) -> None:
    held = Held()
    first = engine.submit(Request(random_prompt(2), 200, ENDLESS), held)
    assert held.begun.wait(10)
    tickets = [engine.submit(Request(random_prompt(3 + i), 200, ENDLESS), ignore) for i in range(9)]
    failing_decode(2, 10**6)
    held.go_on.set()
    for ticket in (first, *tickets):
        assert ticket.wait(10)
        assert isinstance(ticket.error, EngineDownError)


def test_an_error_in_a_step_is_a_crash_too(engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def divide(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("lcspec.batching.packing.divide", divide)
    engine._target.alone.costs.record(1, 0, 1e-4)
    ticket = engine.submit(Request(random_prompt(1), 200, ENDLESS), ignore)
    assert ticket.wait(10)
    assert isinstance(ticket.error, EngineDownError)
    monkeypatch.undo()
    finish(engine.submit(Request(random_prompt(1), 20), ignore))


def test_a_request_whose_beginning_fails_ends_once(engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    take, failures = Slots.take, [EvaluationError("no room")]

    def fail_once(self: Slots, prefix: Prefix) -> int:
        if failures:
            raise failures.pop()
        return take(self, prefix)

    monkeypatch.setattr(Slots, "take", fail_once)
    heard = Heard()
    ticket = engine.submit(Request(random_prompt(1), 20), heard)
    assert ticket.wait(10)
    assert isinstance(ticket.error, EngineDownError)
    finish(engine.submit(Request(random_prompt(1), 20), ignore))
    settle(engine)
    assert len(heard.ends) == 1
    assert engine.metrics().requests["error"] == 1


def test_requests_that_failed_and_were_cancelled_leave_no_sequence_behind(engine: BatchingEngine) -> None:
    random = np.random.default_rng(0)

    def raising(what: Piece | Finished) -> None:
        if random.random() < 0.2:
            raise RuntimeError

    tickets = [engine.submit(Request(random_prompt(i), 40), raising if i % 3 else ignore) for i in range(40)]
    for ticket in tickets[::4]:
        ticket.cancel()
    for ticket in tickets:
        assert ticket.wait(20)
    settle(engine)
    slots = engine._service._batch.slots
    assert not slots._taken
    assert len(slots._free) == engine._target.n_sequences
    metrics = engine.metrics()
    assert metrics.cells == 0
    assert (metrics.sequences, metrics.kept) == (0, len(slots._kept))
    assert metrics.kept > 0
