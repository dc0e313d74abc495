"""Many requests on one engine: each gets its own text, whatever the others do."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batching import A_MINUTE, ENDLESS, Heard, Held, finish, ignore, is_same, lone, random_prompt, run_workload, settle
from prompts import questions

import lcspec.batching.cuts
import lcspec.batching.target
import lcspec.loaded
from lcspec import GREEDY, PromptError, SamplingParams, SpeculativeLM
from lcspec.batching import BatchingEngine, Request
from lcspec.batching.cuts import any_cut_is_exact
from lcspec.chat_template import ChatTemplate
from lcspec.errors import ClosedError, EvaluationError, QueueFullError, TooLongError
from lcspec.exactness import LoadOptions
from lcspec.llama import MAX_SEQUENCES, ExactWidths, Model, SharedContext
from lcspec.planner import CostCurve
from lcspec.store import NgramStore

N_CTX = 400
CHEAP = CostCurve({1: 1e-3, 128: 1.2e-3})


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[BatchingEngine]:
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=1, exact=True) as engine:
        yield engine


@pytest.fixture(scope="module")
def alone(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, n_ctx=N_CTX, threads=1, exact=True) as lm:
        yield lm


@pytest.fixture
def wide_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes whose width costs next to nothing."""
    monkeypatch.setattr(lcspec.batching.target, "known_costs", lambda *_, **__: CostCurve(CHEAP.measured))


# exact: a text is what it is alone


@pytest.mark.parametrize("seed", range(4))
def test_each_text_is_that_of_a_run_alone(engine: BatchingEngine, alone: SpeculativeLM, seed: int) -> None:
    run_workload(engine, alone, seed, 24)


def test_there_are_drafts_prefixes_and_neighbours(tiny_llama: Path, alone: SpeculativeLM, wide_drafts: None) -> None:
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=1, exact=True) as engine:
        run_workload(engine, alone, 100, 40, together=True)
        metrics = engine.metrics()
        assert metrics.drafters["lookup"].accepted > 20
        assert metrics.drafters["lookup"].drafted > metrics.drafters["lookup"].accepted
        assert metrics.cache_hits > 5
        assert metrics.passes < metrics.tokens / 1.5
        assert metrics.cells <= N_CTX


def test_where_room_is_short_requests_wait_or_give_way_and_lose_nothing(tiny_llama: Path, wide_drafts: None) -> None:
    with (
        BatchingEngine(tiny_llama, n_ctx=200, max_sequences=6, threads=1, exact=True) as engine,
        SpeculativeLM(tiny_llama, n_ctx=200, threads=1, exact=True) as lm,
    ):
        engine._service._batch._context._n_cells = 230  # cells are moved together often
        run_workload(engine, lm, 1, 40, longest_prompt=150)
        requests = [Request(random_prompt(i, 20), 150) for i in range(6)]
        tickets = [engine.submit(request, ignore) for request in requests]
        assert all(is_same(finish(ticket), lone(lm, ticket.request)) for ticket in tickets)
        assert engine.metrics().preempted > 0


def test_a_sliding_window_does_not_show(tiny_sliding: Path, wide_drafts: None) -> None:
    with (
        BatchingEngine(tiny_sliding, n_ctx=300, max_sequences=4, threads=1, exact=True) as engine,
        SpeculativeLM(tiny_sliding, n_ctx=300, threads=1, exact=True) as lm,
    ):
        engine._service._batch._context._n_cells = 340
        for seed in range(3):
            run_workload(engine, lm, seed, 24)


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
@pytest.mark.parametrize("width", [1, 3])
def test_where_only_narrow_passes_are_exact_texts_take_turns(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, width: int, wide_drafts: None
) -> None:
    monkeypatch.setattr(lcspec.batching.target, "exact_widths", lambda *_: ExactWidths(width, width))
    monkeypatch.setattr(lcspec.loaded, "exact_widths", lambda *_: ExactWidths(width, width))
    with (
        BatchingEngine(tiny_llama, n_ctx=1500, max_sequences=5, threads=1, exact=True) as engine,
        SpeculativeLM(tiny_llama, n_ctx=1500, threads=1, exact=True) as lm,
    ):
        evaluate, widest = engine._service._batch._context.evaluate, []

        def watched(chunks):  # type: ignore[no-untyped-def]
            widest.append(sum(len(chunk.tokens) for chunk in chunks if chunk.n_logits == len(chunk.tokens)))
            assert len(chunks) == 1 or max(len(chunk.tokens) - chunk.n_logits for chunk in chunks) == 0
            return evaluate(chunks)

        monkeypatch.setattr(engine._service._batch._context, "evaluate", watched)
        run_workload(engine, lm, width, 16, longest_prompt=1300)
        assert max(widest) == width
        long = random_prompt(7, 1100)
        finish(engine.submit(Request(long, 5), ignore))
        again = finish(engine.submit(Request((*long[:1090], 40, 41), 5), ignore))
        assert again.stats.cached_tokens == 1024
        assert is_same(again, lone(lm, Request((*long[:1090], 40, 41), 5)))


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
@pytest.mark.parametrize("exact", [False, True])
def test_a_recurrent_model_writes_plain_texts(tiny_recurrent: Path, exact: bool) -> None:
    with (
        BatchingEngine(tiny_recurrent, n_ctx=N_CTX, max_sequences=3, threads=1, exact=exact) as engine,
        SpeculativeLM(tiny_recurrent, n_ctx=N_CTX, threads=1, exact=exact) as lm,
    ):
        if exact:
            run_workload(engine, lm, 0, 16)
        prompts = [random_prompt(i, 30) for i in range(3)]
        tickets = [engine.submit(Request(prompt, 20), ignore) for prompt in prompts]
        texts = [finish(ticket) for ticket in tickets]
        assert all(not text.stats.drafters for text in texts)
        if not exact:
            longer = (*prompts[0], *texts[0].tokens, 40, 41)
            assert finish(engine.submit(Request(longer, 5), ignore)).stats.cached_tokens >= 45


def test_without_exact_texts_are_the_same_up_to_rounding(tiny_llama: Path) -> None:
    """Where one first differs, the two likeliest tokens are about equally likely."""
    with (
        BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=4, threads=1) as engine,
        SpeculativeLM(tiny_llama, n_ctx=N_CTX, threads=1) as alone,
    ):
        tickets = [engine.submit(Request(random_prompt(i), 30, logprobs=2), ignore) for i in range(12)]
        for ticket in tickets:
            found, expected = finish(ticket), lone(alone, ticket.request)
            for one, other in zip(found.logprobs, expected.logprobs, strict=False):
                if one.token != other.token:
                    assert other.top[0][1] - other.top[1][1] < 0.6
                    break
            assert found.stats.exact == 0, "it is not known to be exact, and said"


@pytest.mark.real
@pytest.mark.parametrize("file", ["smollm2", "smollm2_q4_k_m"])
def test_nine_real_conversations_at_once_have_the_answers_that_each_has_alone(
    request: pytest.FixtureRequest, file: str, wide_drafts: None
) -> None:
    path = request.getfixturevalue(file)
    with (
        BatchingEngine(path, n_ctx=448, max_sequences=8, threads=1, exact=True) as engine,
        SpeculativeLM(path, n_ctx=448, threads=1, exact=True) as lm,
    ):
        assert engine._service._batch._context.in_order
        assert engine._target.any_cut == (file == "smollm2")
        requests = [
            Request(
                tuple(engine.chat_prompt([{"role": "user", "content": question}])),
                12 if i % 3 else 6,
                GREEDY if i % 2 else SamplingParams(temperature=0.8, seed=i),
                logprobs=1,
            )
            for i, question in enumerate(questions(9))
        ]
        tickets = [engine.submit(one, ignore) for one in requests]
        wrong = [i for i, ticket in enumerate(tickets) if not is_same(finish(ticket), lone(lm, requests[i]))]
        assert wrong == []
        assert engine.metrics().passes < engine.metrics().tokens or not engine._target.any_cut


# prefixes


def test_a_conversation_goes_on_where_it_was(engine: BatchingEngine) -> None:
    first = finish(engine.submit(Request(random_prompt(50), 20), ignore))
    longer = (*random_prompt(50), *first.tokens, 40, 41)
    again = finish(engine.submit(Request(longer, 5), ignore))
    assert again.stats.cached_tokens >= len(longer) - 4


def test_requests_that_run_together_share_their_system_prompt(engine: BatchingEngine) -> None:
    settle(engine)
    system, held = random_prompt(60, 50), Held()
    first = engine.submit(Request((*system, 33), 40), held)
    assert held.begun.wait(10)
    others = [engine.submit(Request((*system, 34 + i), 10), ignore) for i in range(3)]
    held.go_on.set()
    assert all(finish(ticket).stats.cached_tokens >= 50 for ticket in others)
    finish(first)


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
def test_what_several_prompts_begin_with_is_evaluated_once_even_when_they_come_together(tiny_llama: Path) -> None:
    with (
        BatchingEngine(tiny_llama, n_ctx=2000, max_sequences=5, threads=1, exact=True) as engine,
        SpeculativeLM(tiny_llama, n_ctx=2000, threads=1, exact=True) as lm,
    ):
        held, long = Held(), random_prompt(1, 1500)
        first = engine.submit(Request((40, 41), 60), held)
        assert held.begun.wait(10)
        tickets = [engine.submit(Request((*long, 40 + i), 10), ignore) for i in range(3)]
        gone = engine.submit(Request((*long, 90), 10), ignore)
        gone.cancel()
        held.go_on.set()
        assert all(is_same(finish(ticket), lone(lm, ticket.request)) for ticket in tickets)
        finish(first)
        assert engine.metrics().evaluated < 1800
        assert engine.metrics().cached_tokens >= 3000


def test_the_least_recently_used_prefix_goes_first(tiny_llama: Path) -> None:
    with BatchingEngine(tiny_llama, n_ctx=256, max_sequences=1, threads=1) as engine:
        old, new = random_prompt(1, 90), random_prompt(2, 90)
        for prompt in (old, new, *(random_prompt(i, 90) for i in range(3, 7))):
            finish(engine.submit(Request(prompt, 5), ignore))
        assert finish(engine.submit(Request(new, 5), ignore)).stats.cached_tokens == 89
        assert finish(engine.submit(Request(old, 5), ignore)).stats.cached_tokens < 10


def test_a_long_text_is_not_restored_for_its_first_words(tiny_llama: Path) -> None:
    with BatchingEngine(tiny_llama, n_ctx=256, max_sequences=2, threads=1) as engine:
        long = random_prompt(1, 150)
        finish(engine.submit(Request(long, 5), ignore))
        assert finish(engine.submit(Request((*long[:3], *random_prompt(2, 20)), 5), ignore)).stats.cached_tokens == 0
        assert finish(engine.submit(Request((*long[:9], *random_prompt(3, 20)), 5), ignore)).stats.cached_tokens == 9
        held = Held()
        first = engine.submit(Request(random_prompt(4, 130), 20), held)
        assert held.begun.wait(10)
        other = engine.submit(Request((*long[:20], 9), 5), ignore)  # for which all of what is kept has no room
        held.go_on.set()
        assert finish(other).stats.cached_tokens == 9
        finish(first)


def test_where_memory_is_short_nothing_is_kept(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BatchingEngine(tiny_llama, n_ctx=256, max_sequences=1, threads=1) as engine:
        finish(engine.submit(Request(random_prompt(1, 90), 5), ignore))
        assert engine.metrics().kept == 1
        monkeypatch.setattr("lcspec.batching.slots.free_memory", lambda: 1000)
        finish(engine.submit(Request(random_prompt(2, 90), 5), ignore))
        settle(engine)
        assert engine.metrics().kept == 0


@pytest.mark.parametrize("error", [MemoryError(), EvaluationError("no")])
def test_what_can_not_be_kept_or_restored_is_evaluated_again(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    with BatchingEngine(tiny_llama, n_ctx=256, max_sequences=1, threads=1) as engine:
        request = Request(random_prompt(1, 90), 5)
        with monkeypatch.context() as patch:
            patch.setattr(SharedContext, "save", fail)
            expected = finish(engine.submit(request, ignore))
        assert finish(engine.submit(request, ignore)).stats.cached_tokens == 0
        if isinstance(error, EvaluationError):
            restore = SharedContext.restore
            fails = iter([fail])
            monkeypatch.setattr(SharedContext, "restore", lambda *given: next(fails, restore)(*given))
            again = finish(engine.submit(request, ignore))
            assert (again.tokens, again.stats.cached_tokens) == (expected.tokens, 0)
        assert engine.metrics().crashes == 0


def test_a_request_as_long_as_the_context_is_written_to_its_end(engine: BatchingEngine, alone: SpeculativeLM) -> None:
    request = Request(random_prompt(5, N_CTX - 1), None)
    assert is_same(finish(engine.submit(request, ignore)), lone(alone, request))
    request = Request(random_prompt(6, 10), None)
    assert is_same(finish(engine.submit(request, ignore)), lone(alone, request))


# predictions


def test_a_prediction_that_comes_true_is_accepted(tiny_llama: Path, wide_drafts: None) -> None:
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, threads=1, exact=True) as engine:
        prompt = tuple(np.random.default_rng(9).permutation(np.arange(32, 122))[:40].tolist())
        plain = engine.submit(Request(prompt, 60, speculate=False), ignore)
        text = finish(plain).tokens
        before = engine.metrics().passes
        ticket = engine.submit(Request(prompt, 60, prediction=text), ignore)
        assert finish(ticket).tokens == text
        assert ticket.timings is not None
        assert (ticket.timings.prediction_accepted, ticket.timings.prediction_rejected) == (len(text), 0)
        assert ticket.timings.draft_n_accepted > len(text) / 2
        assert engine.metrics().passes - before < len(text) / 2


def test_a_prediction_that_does_not_is_rejected_and_changes_nothing(engine: BatchingEngine) -> None:
    request = Request(random_prompt(8), 30)
    expected = finish(engine.submit(request, ignore)).tokens
    wrong = tuple(range(130, 150))
    ticket = engine.submit(Request(random_prompt(8), 30, prediction=wrong), ignore)
    assert finish(ticket).tokens == expected
    assert ticket.timings is not None
    assert ticket.timings.prediction_accepted + ticket.timings.prediction_rejected == 20
    assert ticket.timings.prediction_rejected > 15


# what comes in, and who waits


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(()), "the prompt is empty"),
        (Request((1, 10**6)), "is not a token"),
        (Request((1,), -1), "max_tokens"),
        (Request((1,), stop=("",)), "stop strings"),
        (Request((1,), logprobs=10**6), "logprobs"),
        (Request((1,), prediction=(10**6,)), "is not a token"),
        (Request((1,), rule="coupled"), "the rule is greedy"),
        (Request((1,), sampling=SamplingParams(logit_bias={10**6: 1.0})), "is not a token"),
    ],
)
def test_what_cannot_be_used_is_refused(engine: BatchingEngine, request_: Request, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        engine.submit(request_, ignore)


def test_a_prompt_over_the_context_is_refused_with_the_numbers(engine: BatchingEngine) -> None:
    with pytest.raises(TooLongError, match="400 tokens and the context holds 400") as caught:
        engine.submit(Request((40,) * N_CTX), ignore)
    assert (caught.value.n_tokens, caught.value.n_ctx) == (N_CTX, N_CTX)


def test_nothing_wanted_is_nothing_written(engine: BatchingEngine) -> None:
    heard = Heard()
    text = finish(engine.submit(Request((40, 41), 0), heard))
    assert (text.text, text.finish_reason, heard.pieces) == ("", "length", [])


def test_a_full_queue_refuses_and_says_when_to_try_again(tiny_llama: Path) -> None:
    held = Held()
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=1, queue_limit=2, threads=1) as engine:
        first = engine.submit(Request((40, 41), 5), held)
        assert held.begun.wait(10)
        waiting = [engine.submit(Request((42, 43), 5), ignore) for _ in range(2)]
        with pytest.raises(QueueFullError, match="2 requests wait, and no more may") as caught:
            engine.submit(Request((42, 43), 5), ignore)
        assert caught.value.retry_after >= 1
        metrics = engine.metrics()
        assert (metrics.queued, metrics.active, metrics.refused) == (2, 1, 1)
        held.go_on.set()
        for ticket in (first, *waiting):
            finish(ticket)


def test_requests_begin_in_the_order_in_which_they_come(tiny_llama: Path) -> None:
    held, order = Held(), []
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=1, threads=1) as engine:
        first = engine.submit(Request((40, 41), 2), held)
        assert held.begun.wait(10)
        tickets = [engine.submit(Request((40 + i, 41), 3), lambda _, i=i: order.append(i)) for i in range(9)]
        held.go_on.set()
        for ticket in (first, *tickets):
            finish(ticket)
    assert order == sorted(order)


def test_timings_add_up(engine: BatchingEngine) -> None:
    before = time.perf_counter()
    ticket = engine.submit(Request(random_prompt(77), 20), ignore)
    finish(ticket)
    timings = ticket.timings
    assert timings is not None
    assert (timings.prompt_tokens, timings.tokens) == (40, 20)
    assert timings.first_token_seconds is not None
    parts = timings.queued_seconds + timings.prompt_seconds
    assert parts == pytest.approx(timings.first_token_seconds, abs=0.01)
    assert timings.first_token_seconds + timings.decode_seconds <= time.perf_counter() - before


# who leaves


def test_a_cancelled_request_frees_its_sequence_at_once(engine: BatchingEngine) -> None:
    settle(engine)
    held = Held()
    ticket = engine.submit(Request(random_prompt(3), 300, ENDLESS), held)
    assert held.begun.wait(10)
    ticket.cancel()
    passes = engine.metrics().passes
    held.go_on.set()
    text = finish(ticket)
    assert text.finish_reason == "cancelled"
    settle(engine)
    assert engine.metrics().passes <= passes + 1
    ticket.cancel()


def test_a_request_that_waits_can_be_cancelled(tiny_llama: Path) -> None:
    held, heard = Held(), Heard()
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=1, threads=1) as engine:
        first = engine.submit(Request((40, 41), 50, ENDLESS), held)
        assert held.begun.wait(10)
        second = engine.submit(Request((42, 43), 5), heard)
        second.cancel()
        held.go_on.set()
        text = finish(second)
        assert (text.text, text.finish_reason) == ("", "cancelled")
        assert len(heard.ends) == 1
        finish(first)
        assert engine.metrics().requests["cancelled"] == 1


def test_a_template_that_takes_long_holds_up_nobody_and_is_waited_for(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def render(self: ChatTemplate, messages: object) -> str:
        begun.set()
        assert go_on.wait(A_MINUTE)
        return "abc"

    monkeypatch.setattr(ChatTemplate, "render", render)
    prompts: list[list[int]] = []
    engine = BatchingEngine(tiny_llama, n_ctx=N_CTX, threads=1)
    waiting = threading.Thread(target=lambda: prompts.append(engine.chat_prompt([{"role": "user", "content": "a"}])))
    waiting.start()
    assert begun.wait(A_MINUTE)
    finish(engine.submit(Request(tuple(engine.tokenize("abc")), 5), ignore))
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go_on.set()
    closing.join(A_MINUTE)
    waiting.join(A_MINUTE)
    assert prompts == [[97, 98, 99]]
    with pytest.raises(ClosedError):
        engine.chat_prompt([{"role": "user", "content": "a"}])


def test_a_drained_engine_finishes_what_it_took(tiny_llama: Path) -> None:
    engine = BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=2, threads=1)
    tickets = [engine.submit(Request(random_prompt(i), 30), ignore) for i in range(7)]
    engine.close(drain=True)
    assert all(finish(ticket).finish_reason in ("length", "eog") for ticket in tickets)
    with pytest.raises(ClosedError):
        engine.submit(Request((40,), 1), ignore)
    engine.close()


def test_a_drained_engine_does_not_wait_for_ever(tiny_llama: Path) -> None:
    engine = BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=1, threads=1)
    held = Held()
    tickets = [engine.submit(Request(random_prompt(i), 300, ENDLESS), held) for i in range(3)]
    assert held.begun.wait(10)
    threading.Timer(0.2, held.go_on.set).start()
    engine.close(drain=True, timeout=0.05)
    assert [finish(ticket).finish_reason for ticket in tickets] == ["cancelled"] * 3


def test_a_closed_engine_cancels_what_it_took(tiny_llama: Path) -> None:
    engine = BatchingEngine(tiny_llama, n_ctx=N_CTX, max_sequences=2, threads=1)
    held = Held()
    tickets = [engine.submit(Request(random_prompt(i), 300, ENDLESS), held) for i in range(7)]
    assert held.begun.wait(10)
    threading.Timer(0.1, held.go_on.set).start()
    engine.close()
    assert all(finish(ticket).finish_reason == "cancelled" for ticket in tickets)
    assert not engine.metrics().is_up


# how it is set up


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_sequences": 0}, "max_sequences is 0"),
        ({"max_sequences": 1000}, "max_sequences is 1000; it must be 1 to"),
        ({"queue_limit": -1}, "queue_limit is -1"),
        ({"drafter": "model"}, "'model' is no drafter for many texts at once"),
        ({"learn": True}, "no store to learn in"),
        ({"n_ctx": 1}, "n_ctx is 1"),
    ],
)
def test_options_out_of_range_are_refused(tiny_llama: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        BatchingEngine(tiny_llama, **options)


@pytest.mark.filterwarnings("ignore::lcspec.LcspecWarning")
def test_as_many_texts_as_can_be_are_written_together(tiny_llama: Path, wide_drafts: None) -> None:
    with BatchingEngine(tiny_llama, n_ctx=4096, max_sequences=MAX_SEQUENCES // 2, threads=1) as engine:
        held = Held()
        tickets = [engine.submit(Request((40, 41), 100, ENDLESS), held)]
        assert held.begun.wait(10)
        tickets += [engine.submit(Request((42 + i, 41), 40, ENDLESS), ignore) for i in range(62)]
        held.go_on.set()
        for ticket in tickets:
            finish(ticket)
        assert engine.metrics().passes < 400, "one after the other it were more than a thousand"


def test_what_is_written_is_stored_and_drafted_from(tiny_llama: Path, tmp_path: Path, wide_drafts: None) -> None:
    prompt = tuple(np.random.default_rng(3).permutation(np.arange(32, 122))[:40].tolist())
    with (
        NgramStore(tmp_path / "store.sqlite") as store,
        BatchingEngine(tiny_llama, n_ctx=N_CTX, threads=1, exact=True, store=store, learn=True) as engine,
    ):
        first = engine.submit(Request(prompt, 60, ENDLESS), ignore)
        finish(first)
        again = engine.submit(Request(prompt, 60, ENDLESS), ignore)
        assert finish(again).tokens == finish(first).tokens
        assert first.timings is not None
        assert again.timings is not None
        assert again.timings.draft_n_accepted > first.timings.draft_n_accepted


def test_what_passes_cost_is_measured_when_nobody_asks(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.idle._PAUSE", 0.01)
    monkeypatch.setattr(lcspec.batching.target, "known_costs", lambda *_, **__: CostCurve())
    with BatchingEngine(tiny_llama, n_ctx=N_CTX, threads=1) as engine:
        finish(engine.submit(Request((40, 41), 5), ignore))
        deadline = time.monotonic() + 20
        while not engine._target.beside.costs.is_measured:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_how_prompts_are_cut_does_not_show_where_any_width_is_exact(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = LoadOptions(repack=True, batch_invariant=True, threads=1)
    with Model(tiny_llama) as model:
        assert not any_cut_is_exact(model, options, ExactWidths(16, 3))
        assert any_cut_is_exact(model, options, ExactWidths(16, 16))
        monkeypatch.setattr(lcspec.batching.cuts, "_is_same", None)
        assert any_cut_is_exact(model, options, ExactWidths(16, 16)), "remembered"


def test_a_cut_that_shows_is_seen(tiny_llama: Path) -> None:
    """With values of the keys' type, passes of 64 tokens and more take another path."""
    options = LoadOptions(repack=True, batch_invariant=False, threads=1)
    with Model(tiny_llama) as model:
        assert not lcspec.batching.cuts._is_same(model, options, ExactWidths(16, 16))
