"""Prompts are read beside texts: their cells are those of an evaluation in place, and nobody waits for them."""

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batching import A_MINUTE, ENDLESS, Heard, Held, finish, ignore, is_same, lone, random_prompt, settle

import lcspec.batching.cuts
import lcspec.batching.target
import lcspec.idle
from lcspec import EvaluationError, Piece, SpeculativeLM
from lcspec.batching import BatchingEngine, Finished, Request
from lcspec.batching.batch import Batch
from lcspec.batching.cuts import any_threads_are_exact
from lcspec.batching.reader import PromptReader, Reading
from lcspec.errors import EngineDownError
from lcspec.exactness import LoadOptions
from lcspec.llama import Chunk, Context, Model, SharedContext
from lcspec.planner import CostCurve

N_CTX = 300


class Gate:
    """Lets the reader's own thread evaluate when it is open only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.only_long = False
        prefill = Context.prefill

        def gated(context: Context, tokens: Any) -> Any:
            if threading.current_thread().name.startswith("lcspec-reading") and (
                len(tokens) > 100 or not self.only_long
            ):
                self.reached.set()
                assert self.open.wait(A_MINUTE)
                if self.error is not None:
                    raise self.error
            return prefill(context, tokens)

        monkeypatch.setattr(Context, "prefill", gated)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


@pytest.fixture
def engine(tiny_llama: Path, gate: Gate) -> Iterator[BatchingEngine]:
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=2, exact=True) as engine:
        yield engine
        gate.open.set()


class Counting(Heard):
    """A listener that tells when it has heard enough."""

    def __init__(self, enough: int) -> None:
        super().__init__()
        self._enough, self.has_enough = enough, threading.Event()

    def __call__(self, what: Piece | Finished) -> None:
        super().__call__(what)
        if len(self.pieces) >= self._enough:
            self.has_enough.set()


class Someone:
    """Has a prompt."""


@pytest.mark.parametrize("kind", ["llama", "sliding", "recurrent"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_prompt_that_is_read_in_parts_goes_on_as_if_it_had_been_evaluated_in_place(
    request: pytest.FixtureRequest, kind: str, beside: bool
) -> None:
    texts = [random_prompt(1, 90), random_prompt(2, 70), (*random_prompt(1, 90)[:50], *random_prompt(3, 30))]
    whose: list[Any] = [Someone() for _ in texts]
    with (
        Model(request.getfixturevalue(f"tiny_{kind}")) as model,
        SharedContext(model, N_CTX, len(texts), threads=1, batch_invariant=True, in_order=True) as shared,
    ):
        context = Context(model, N_CTX, threads=1, batch_invariant=True, repeatable=True)
        reader = PromptReader(context, any_cut=True)
        n_given, ends = 0, {}
        for end in (30, 60, 90):  # in turns, so that what comes before has to be brought back
            for sequence, text in enumerate(texts):
                if (start := len(shared.tokens(sequence))) == len(text):
                    continue
                reading = Reading(whose[sequence], text[:end], start, 13)
                before = None if reader.has(reading) else shared.save(sequence)
                n_given += before is not None
                reader.begin(reading, before, 1, beside=beside)
                assert reader.n_tokens == len(text[:end]) - start
                read = reader.take(wait=True)
                assert read is not None
                assert not reader.is_busy
                shared.restore(sequence, read.state)
                ends[sequence] = read.logits[0].copy()
        assert n_given > 3
        for sequence, text in enumerate(texts):
            assert shared.tokens(sequence) == list(text)
            with Context(model, N_CTX, threads=1, batch_invariant=True) as alone:
                assert np.array_equal(ends[sequence], alone.prefill(text))
                row = shared.evaluate([Chunk(sequence, [40], 1)])[0][0]
                assert np.array_equal(row, alone.prefill([40]))
        reader.close()


def test_what_the_last_prompt_began_with_is_there_for_the_next(tiny_llama: Path) -> None:
    whose: Any = Someone()
    other: Any = Someone()
    text = random_prompt(1, 60)
    with Model(tiny_llama) as model:
        for any_cut in (True, False):
            reader = PromptReader(Context(model, N_CTX, threads=1, repeatable=True), any_cut=any_cut)
            reader.begin(Reading(whose, text, 0, 512), None, 1, beside=False)
            assert reader.take(wait=True) is not None
            assert reader.has(Reading(whose, (*text, 40), 60, 512))
            assert reader.has(Reading(other, (*text[:50], 41), 50, 512)) == any_cut
            assert not reader.has(Reading(other, (*text[:40], 41, 42), 41, 512))
            reader.close()


def test_texts_go_on_while_a_prompt_is_read(engine: BatchingEngine, gate: Gate) -> None:
    heard = Counting(100)
    first = engine.submit(Request(random_prompt(1), 200, ENDLESS), heard)
    second = engine.submit(Request(random_prompt(2, 60), 5), ignore)
    assert gate.reached.wait(A_MINUTE)
    assert heard.has_enough.wait(A_MINUTE)
    assert second.finished is None
    gate.open.set()
    finish(first)
    finish(second)


def test_a_rest_of_a_few_tokens_is_evaluated_with_the_texts(tiny_llama: Path, gate: Gate) -> None:
    with (
        BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=2, exact=True) as engine,
        SpeculativeLM(tiny_llama, n_ctx=N_CTX, threads=2, exact=True) as lm,
    ):
        known = random_prompt(7, 60)
        finish(engine.submit(Request(known, 5), ignore))
        first = engine.submit(Request(random_prompt(1), 150, ENDLESS), lambda _: time.sleep(0.001))
        texts = [engine.submit(Request((*known, 40 + i, 41, 42, 43), 20, logprobs=2), ignore) for i in range(3)]
        texts += [engine.submit(Request((5, 6, 7), 20), ignore)]
        for ticket in (*texts, first):
            assert is_same(finish(ticket), lone(lm, ticket.request))
        assert not gate.reached.is_set()
        cached = [ticket.timings.cached_tokens for ticket in texts if ticket.timings is not None]
        assert cached == [60, 60, 60, 0]


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
def test_many_rests_take_several_passes(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they were wider than a pass may be, and texts would wait for all of them."""
    monkeypatch.setattr(lcspec.batching.target, "known_costs", lambda *_, **__: CostCurve({1: 1e-3, 128: 0.1}))
    with (
        BatchingEngine(tiny_llama, n_ctx=8000, max_sequences=60, threads=1, exact=True) as engine,
        SpeculativeLM(tiny_llama, n_ctx=8000, threads=1, exact=True) as lm,
    ):
        widths: list[int] = []
        context = engine._service._batch._context
        evaluate = context.evaluate

        def watched(chunks: Sequence[Chunk]) -> Any:
            widths.append(sum(len(chunk.tokens) for chunk in chunks))
            return evaluate(chunks)

        monkeypatch.setattr(context, "evaluate", watched)
        held, known = Held(), random_prompt(7, 60)
        tickets = [engine.submit(Request((41, 42), 300, ENDLESS), held)]
        assert held.begun.wait(A_MINUTE)
        tickets += [engine.submit(Request((*known, *random_prompt(100 + i, 15)), 3), ignore) for i in range(59)]
        held.go_on.set()
        for ticket in tickets:
            assert is_same(finish(ticket), lone(lm, ticket.request))
        assert engine.metrics().cached_tokens >= 58 * 60
        assert engine.metrics().crashes == 0
        assert 60 < max(widths) < 220


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("room", [155, 160, 200, 215, 220])
def test_rests_have_their_room_beside_what_is_read(
    tiny_llama: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch, exact: bool, room: int
) -> None:
    rooms: list[int] = []
    step = Batch.step

    def watched(batch: Batch) -> Any:
        ended = step(batch)
        rooms.append(batch._room)
        return ended

    evaluate = SharedContext.evaluate

    def slow(context: SharedContext, chunks: Sequence[Chunk]) -> Any:
        time.sleep(0.02 * gate.open.is_set())  # so that a part is read by the next pass
        return evaluate(context, chunks)

    monkeypatch.setattr(Batch, "step", watched)
    monkeypatch.setattr(SharedContext, "evaluate", slow)
    with BatchingEngine(tiny_llama, n_ctx=500, max_sequences=8, threads=1, exact=exact, drafter="none") as engine:
        common = random_prompt(7, 60)
        first = engine.submit(Request((41, 42), 498, ENDLESS), lambda _: time.sleep(0.002))
        tickets = [engine.submit(Request((*common, *random_prompt(3, 4)), 2, ENDLESS), ignore)]
        tickets += [engine.submit(Request((*common, *random_prompt(50 + i, 15)), 5, ENDLESS), ignore) for i in range(3)]
        tickets += [engine.submit(Request(random_prompt(90, 180), 5, ENDLESS), ignore)]
        while not rooms or engine.metrics().queued or rooms[-1] > room:
            time.sleep(0.001)
        gate.open.set()
        for ticket in tickets:
            finish(ticket)
        first.cancel()
        finish(first)
        assert engine.metrics().crashes == 0
        assert min(rooms) >= 0


def test_a_prompt_that_is_not_wanted_any_more_leaves_at_once(engine: BatchingEngine, gate: Gate) -> None:
    first = engine.submit(Request(random_prompt(1), 200, ENDLESS), ignore)
    second = engine.submit(Request(random_prompt(2, 60), 5), ignore)
    assert gate.reached.wait(A_MINUTE)
    second.cancel()
    assert finish(second).finish_reason == "cancelled"
    finish(first)
    settle(engine)
    assert engine.metrics().sequences == 0
    assert engine.metrics().cells == 0
    gate.open.set()
    expected = finish(engine.submit(Request(random_prompt(2, 60), 5), ignore))
    assert finish(engine.submit(Request(random_prompt(2, 60), 5), ignore)).tokens == expected.tokens


def test_what_is_read_has_its_room_in_the_cache(tiny_llama: Path, gate: Gate) -> None:
    """Texts that grow while a prompt is read give way to older ones, and end as they would have."""
    with BatchingEngine(tiny_llama, n_ctx=160, max_sequences=3, threads=2, exact=True) as engine:
        requests = [Request(random_prompt(i, 40), 100, ENDLESS) for i in range(3)]
        gate.open.set()
        expected = [finish(engine.submit(request, ignore)).tokens for request in requests]
        gate.open.clear()
        gate.reached.clear()
        held, heard = Held(), Counting(90)
        other = engine.submit(Request((41, 42), 1), held)
        tickets = [engine.submit(request, heard if not i else ignore) for i, request in enumerate(requests)]
        held.go_on.set()
        finish(other)
        heard.has_enough.wait(5)
        gate.open.set()
        assert [finish(ticket).tokens for ticket in tickets] == expected
        assert engine.metrics().preempted > 0
        assert engine.metrics().crashes == 0


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
def test_a_text_that_gives_way_to_a_prompt_does_not_go_on(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    """Where whole batches are read, there may be room for one only without the youngest text."""
    monkeypatch.setattr(lcspec.batching.target, "any_cut_is_exact", lambda *_: False)
    with BatchingEngine(tiny_llama, n_ctx=1100, max_sequences=4, threads=1, exact=True) as engine:
        held, grown = Held(), Counting(190)
        tickets = [engine.submit(Request((41, 42), 1000, ENDLESS), held)]
        assert held.begun.wait(A_MINUTE)
        tickets += [engine.submit(Request(random_prompt(3, 60), 1, ENDLESS), ignore)]
        held.go_on.set()
        assert gate.reached.wait(A_MINUTE)
        tickets += [engine.submit(Request(random_prompt(1, 700), 20, ENDLESS), ignore)]
        tickets += [engine.submit(Request(random_prompt(2, 40), 400, ENDLESS), grown)]
        while engine.metrics().queued:
            time.sleep(0.001)
        gate.only_long = True
        gate.open.set()
        gate.open.clear()
        assert grown.has_enough.wait(A_MINUTE)
        gate.open.set()
        lengths = [len(finish(ticket).tokens) for ticket in tickets]
        assert lengths == [1000, 1, 20, 400]
        metrics = engine.metrics()
        assert (metrics.crashes, metrics.is_up) == (0, True)
        assert metrics.preempted > 0


def test_where_the_number_of_threads_shows_texts_wait_for_prompts(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    monkeypatch.setattr(lcspec.batching.target, "any_threads_are_exact", lambda *_: False)
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=2, exact=True) as engine:
        tickets = [engine.submit(Request(random_prompt(i), 30, ENDLESS), ignore) for i in range(6)]
        assert [len(finish(ticket).tokens) for ticket in tickets] == [30] * 6
        assert engine._service._batch._context.threads == 2
        assert not gate.reached.is_set()


def test_whether_the_number_of_threads_shows_is_tried_and_remembered(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = LoadOptions(repack=True, batch_invariant=True, threads=4)
    with Model(tiny_llama) as model:
        assert any_threads_are_exact(model, options, (2, 2))
        bits = lcspec.batching.cuts._bits
        monkeypatch.setattr(lcspec.batching.cuts, "_bits", lambda *given: (bits(*given), given[-1] == 3))
        assert any_threads_are_exact(model, options, (2, 2)), "remembered"
        assert not any_threads_are_exact(model, options, (3, 1))
        assert any_threads_are_exact(model, options, (4, 4)), "nothing to try"


def test_when_reading_in_vain_fails_nobody_else_does(engine: BatchingEngine, gate: Gate) -> None:
    first = engine.submit(Request(random_prompt(1), 200, ENDLESS), ignore)
    second = engine.submit(Request(random_prompt(2, 60), 5), ignore)
    assert gate.reached.wait(A_MINUTE)
    second.cancel()
    finish(second)
    gate.error = EvaluationError("no")
    gate.open.set()
    finish(first)
    gate.error = None
    finish(engine.submit(Request(random_prompt(2, 60), 5), ignore))
    assert engine.metrics().crashes == 0


def test_nothing_is_measured_while_a_prompt_is_read_in_vain(engine: BatchingEngine, gate: Gate) -> None:
    first = engine.submit(Request(random_prompt(1), 60, ENDLESS), lambda _: time.sleep(0.003))
    second = engine.submit(Request(random_prompt(2, 60), 5), ignore)
    assert gate.reached.wait(A_MINUTE)
    second.cancel()
    finish(second)
    finish(first)
    settle(engine)
    time.sleep(0.05)
    assert lcspec.idle._n_requests == 1, "until it is read"
    gate.open.set()
    deadline = time.monotonic() + A_MINUTE
    while lcspec.idle._n_requests:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_when_reading_fails_the_engine_goes_on_once(engine: BatchingEngine, gate: Gate) -> None:
    held = Held()
    first = engine.submit(Request(random_prompt(1), 200, ENDLESS), held)
    assert held.begun.wait(A_MINUTE)
    second = engine.submit(Request(random_prompt(2, 60), 5), ignore)
    gate.error = EvaluationError("no")
    gate.open.set()
    held.go_on.set()
    for ticket in (first, second):
        assert ticket.wait(A_MINUTE)
        assert isinstance(ticket.error, EngineDownError)
    gate.error = None
    finish(engine.submit(Request(random_prompt(2, 60), 5), ignore))
    assert engine.metrics().crashes == 1


def test_short_prompts_are_read_first(engine: BatchingEngine, gate: Gate) -> None:
    order: list[str] = []

    def note(name: str) -> Any:
        return lambda what: order.append(name) if isinstance(what, Finished) else None

    tickets = [engine.submit(Request(random_prompt(1, 20), 200, ENDLESS), lambda _: time.sleep(0.003))]
    tickets += [engine.submit(Request(random_prompt(2, 20), 1), note("first"))]
    assert gate.reached.wait(A_MINUTE)
    tickets += [engine.submit(Request(random_prompt(3, 100), 1), note("long"))]
    tickets += [engine.submit(Request(random_prompt(4, 20), 1), note("short"))]
    while engine.metrics().queued:
        time.sleep(0.001)
    gate.open.set()
    for ticket in tickets:
        finish(ticket)
    assert order == ["first", "short", "long"]


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
def test_a_long_prompt_is_not_put_off_for_ever(tiny_llama: Path) -> None:
    n_short, is_over = [0], threading.Event()
    with BatchingEngine(tiny_llama, n_ctx=4000, max_sequences=4, threads=1) as engine:

        def next_short(what: Piece | Finished | None) -> None:
            if (what is None or isinstance(what, Finished)) and not is_over.is_set() and n_short[0] < 300:
                n_short[0] += 1
                engine.submit(Request(random_prompt(n_short[0], 60), 1), next_short)

        held = Held()
        engine.submit(Request((41, 42), 1), held)
        assert held.begun.wait(A_MINUTE)
        for _ in range(3):
            next_short(None)
        long = engine.submit(Request(random_prompt(0, 1500), 1), lambda _: is_over.set())
        held.go_on.set()
        finish(long)
        settle(engine)
        assert 3 < n_short[0] < 100
