"""Long conversations: the oldest turns go, and what the cache holds of the others moves up."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from lcspec import Completion, EvaluationError, PromptError, SpeculativeLM
from lcspec.context_shift import span_to_drop
from lcspec.conversation import Message
from lcspec.layouts import TwoLayouts
from lcspec.llama import Context, Model, common_prefix_length
from lcspec.planner import CostCurve, LayoutChoice
from lcspec.tasks.chat import FittedPrompt, fit

N_CTX = 300
SYSTEM = {"role": "system", "content": "be brief"}


def load(model: Path, draft: Path | None = None, **options: Any) -> SpeculativeLM:
    return SpeculativeLM(model, draft, **{"n_ctx": N_CTX, "threads": 1, "measure": False, **options})


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with load(tiny_llama) as engine:
        yield engine


def tokens_of(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, n).tolist()


# the span that goes


def test_the_span_is_what_the_prompt_leaves_out() -> None:
    system, first, second, third = (tokens_of(40, seed) for seed in range(4))
    cached = [*system, *first, *second]
    assert span_to_drop(cached, [*system, *second, *third]) == (40, 80)
    assert span_to_drop(cached, [*system, *first, *second, *third]) is None, "it goes on anyway"
    assert span_to_drop(cached, system) is None
    assert span_to_drop(cached, [*system, *third]) is None, "nothing that is cached follows"
    assert span_to_drop(cached, [*system, *second[:20], *third]) is None, "too little follows"
    assert span_to_drop([], cached) is None
    assert span_to_drop(cached, []) is None


def test_of_several_places_the_one_where_most_follows_is_taken() -> None:
    again, end = tokens_of(35), tokens_of(60, 1)
    cached = [1, *again, 2, *again, 3, *again, *end]
    assert span_to_drop(cached, [1, 4]) is None
    assert span_to_drop([5, *cached], [5, *again, *end]) == (1, 2 + 2 * 36)


@given(st.lists(st.integers(0, 2), max_size=150), st.lists(st.integers(0, 2), max_size=150))
def test_without_the_span_more_of_the_prompt_is_cached(cached: list[int], prompt: list[int]) -> None:
    span = span_to_drop(cached, prompt)
    if span is not None:
        start, end = span
        assert 0 <= start < end < len(cached)
        left = cached[:start] + cached[end:]
        assert common_prefix_length(left, prompt) >= common_prefix_length(cached, prompt) + 32


def first_longest(cached: list[int], prompt: list[int]) -> tuple[int, int] | None:
    """The span by trying each place."""
    start = common_prefix_length(cached, prompt)
    rest = prompt[start:]
    longest, end = 31, start
    for i in range(start + 1, len(cached)):
        if (n := common_prefix_length(cached[i:], rest)) > longest:
            longest, end = n, i
    return (start, end) if longest > 31 else None


@given(st.data())
def test_the_span_is_the_one_that_trying_each_place_finds(data: st.DataObject) -> None:
    few = st.lists(st.integers(0, 1), max_size=3)
    part = st.builds(lambda tokens, n: tokens * n, few, st.integers(1, 40))
    cached, prompt = ([token for one in data.draw(st.lists(part, max_size=4)) for token in one] for _ in range(2))
    start, end = (data.draw(st.integers(0, len(cached))) for _ in range(2))
    for one in prompt, cached[:start] + cached[end:] + prompt:
        assert span_to_drop(cached, one) == first_longest(cached, one)


def test_a_span_of_repeated_tokens_is_found_in_a_long_cache() -> None:
    n = 100_000
    assert span_to_drop([1, *[5] * n], [2, *[5] * (n // 2)]) is None
    assert span_to_drop([1, 9, *[5] * n], [1, *[5] * (n // 2)]) == (1, 2)


# the cache


@pytest.fixture(scope="module")
def deaf_at_first(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose first layer's attention says nothing.

    So what its second layer keeps of a token depends on the token and its position alone, and a cache from which a
    span was cut has to be that of evaluating without the span, up to rounding.
    """
    path = tmp_path_factory.mktemp("deaf") / "deaf.gguf"
    shutil.copy(tiny_llama, path)
    reader = gguf.GGUFReader(path, "r+")
    next(tensor for tensor in reader.tensors if tensor.name == "blk.0.attn_output.weight").data[:] = 0
    return path


ROUNDING = 0.15
"""The most that rounding adds, as a root mean square; logits have a deviation of 8."""


def difference(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 50), (10, 60), (60, 99), (97, 98), (5, 100)])
def test_a_cut_cache_is_that_of_the_other_tokens(deaf_at_first: Path, start: int, end: int) -> None:
    tokens = tokens_of(103)
    left = tokens[:start] + tokens[end:]
    with Model(deaf_at_first) as model, Context(model, N_CTX, threads=1) as context:
        context.prefill(left[:-2])
        expected = context.evaluate(left[-2:]).copy()
        context.clear()
        context.prefill(tokens[:-2])
        context.cut(start, end)
        assert context.tokens == left[:-2]
        assert context.n_tokens == len(left) - 2
        state = context.save()
        found = context.evaluate(left[-2:]).copy()
        assert difference(found, expected) < ROUNDING
        context.restore(state)
        assert difference(context.evaluate(left[-2:]), expected) < ROUNDING, "it was saved with its keys turned"
        context.truncate(3)
        context.prefill(left[3:-2])
        assert difference(context.evaluate(left[-2:]), expected) < ROUNDING


@pytest.mark.parametrize("by", [49, 51])
def test_a_position_that_is_off_by_one_would_show(deaf_at_first: Path, by: int) -> None:
    tokens = tokens_of(103)
    left = tokens[:10] + tokens[60:]
    with Model(deaf_at_first) as model, Context(model, N_CTX, threads=1) as context:
        context.prefill(left[:-2])
        expected = context.evaluate(left[-2:]).copy()
        context.clear()
        context.prefill(tokens[:-2])
        llama_cpp.llama_memory_seq_rm(context._memory, 0, 10, 60)
        llama_cpp.llama_memory_seq_add(context._memory, 0, 60, -1, -by)
        assert difference(context.evaluate(left[-2:]), expected) > 1.5 * ROUNDING


def test_a_cache_is_cut_and_filled_again_and_again(deaf_at_first: Path) -> None:
    tokens = tokens_of(60)
    with Model(deaf_at_first) as model, Context(model, 64, threads=1) as context:
        context.prefill(tokens)
        for i in range(8):
            context.cut(7 + i, 30 + i)
            tokens = tokens[: 7 + i] + tokens[30 + i :]
            new = tokens_of(23, i + 1)
            for token in new:
                found = context.evaluate([token])[0].copy()
            tokens += new
            assert context.tokens == tokens
        context.clear()
        assert difference(context.prefill(tokens), found) < ROUNDING


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 5), (6, 5), (5, 20), (5, 21), (20, 30)])
def test_what_is_no_span_cannot_be_cut(engine: SpeculativeLM, start: int, end: int) -> None:
    with Context(engine.target, 64, threads=1) as context:
        context.prefill(tokens_of(20))
        with pytest.raises(ValueError, match="there are no tokens"):
            context.cut(start, end)
        assert context.n_tokens == 20


@pytest.mark.parametrize("name", ["tiny_sliding", "tiny_recurrent"])
def test_some_memory_cannot_be_shifted(request: pytest.FixtureRequest, name: str) -> None:
    with Model(request.getfixturevalue(name)) as model, Context(model, 64, threads=1) as context:
        assert not context.can_shift
        context.prefill(tokens_of(20))
        with pytest.raises(EvaluationError, match="can't be shifted"):
            context.cut(5, 10)
        assert context.n_tokens == 20


def test_a_cache_in_the_other_layout_is_cut_there(tiny_llama: Path, engine: SpeculativeLM) -> None:
    tokens = tokens_of(60)
    with Model(tiny_llama) as other, Context(engine.target, 64, threads=1) as context:
        two = TwoLayouts(context, lambda: Context(other, 64, threads=1), LayoutChoice((CostCurve(), None)))
        two.prefill(tokens[:50])
        two.choice.wanted = 1
        two.evaluate(tokens[50:])
        assert two.can_shift
        two.cut(10, 30)
        two.choice.wanted = 0
        found = two.evaluate([65])[0].copy()
        assert context.tokens == [*tokens[:10], *tokens[30:], 65]
        context.clear()
        context.prefill(tokens)
        context.cut(10, 30)
        assert difference(context.evaluate([65])[0], found) < ROUNDING


# the engine


PARTS = [tokens_of(40, seed) for seed in range(5)]
LONG = [*PARTS[0], *PARTS[1], *PARTS[2], *PARTS[3]]
SHORTER = [*PARTS[0], *PARTS[3], *PARTS[4]]


def test_behind_a_shift_only_new_tokens_are_evaluated_and_the_text_is_not_called_exact(engine: SpeculativeLM) -> None:
    engine.clear()
    assert engine.generate(LONG, max_tokens=5, drafter="none").stats.exact is True
    assert engine.shift_to(SHORTER) == 80
    assert engine.shift_to(SHORTER) == 0, "it went"
    found = engine.generate(SHORTER, max_tokens=20, drafter="none")
    assert found.stats.cached_tokens == 80
    assert found.stats.exact == 0
    more = engine.generate([*SHORTER, *found.tokens, 65], max_tokens=5, drafter="none")
    assert more.stats.cached_tokens == len(SHORTER) + 19
    assert more.stats.exact == 0
    assert engine.generate([*PARTS[0], 65], max_tokens=5, drafter="none").stats.exact is True, "before the span it is"


@pytest.mark.parametrize("prompt", [None, "text", b"text", 5, [1.5], {1: 2}])
def test_a_shift_to_what_is_no_prompt_of_tokens_is_refused(engine: SpeculativeLM, prompt: Any) -> None:
    with pytest.raises(PromptError, match="token ids"):
        engine.shift_to(prompt)


def restored(engine: SpeculativeLM, path: Path, **options: Any) -> Completion:
    """Go on behind a shifted cache, whose cells a file brings into an order."""
    assert engine.restore_state(path) == 80 + 4
    return engine.generate(SHORTER, max_tokens=40, **options)


@pytest.mark.parametrize("drafter", ["lookup", "model", "auto"])
def test_drafters_work_behind_a_shift(tiny_llama: Path, tiny_draft: Path, tmp_path: Path, drafter: Any) -> None:
    with load(tiny_llama, tiny_draft) as engine:
        engine.generate(LONG, max_tokens=5, drafter=drafter)
        assert engine.shift_to(SHORTER) == 80
        assert engine.save_state(tmp_path / "a.kv")
        found, plain = (restored(engine, tmp_path / "a.kv", drafter=name) for name in (drafter, "none"))
        assert plain.stats.cached_tokens == found.stats.cached_tokens == 80
        assert plain.stats.exact == 0
        assert found.tokens == plain.tokens


def test_a_draft_model_s_cache_moves_up_too(tiny_llama: Path) -> None:
    with load(tiny_llama, tiny_llama, drafter="model") as engine:
        engine.generate(LONG, max_tokens=9)
        draft = engine._loaded.draft.context
        assert draft is not None
        assert draft.tokens[: len(LONG)] == LONG
        engine.shift_to(SHORTER)
        assert draft.tokens[:80] == SHORTER[:80]
        assert engine.generate(SHORTER, max_tokens=30).stats.accepted > 0


def test_an_exact_engine_evaluates_anew(tiny_llama: Path) -> None:
    with load(tiny_llama, exact=True) as engine:
        expected = engine.generate(SHORTER, max_tokens=20, logprobs=2)
        engine.generate(LONG, max_tokens=5)
        assert engine.shift_to(SHORTER) == 0
        found = engine.generate(SHORTER, max_tokens=20, logprobs=2)
        assert found.stats.cached_tokens == 40
        assert found.logprobs == expected.logprobs
        assert found.stats.exact is True


@pytest.mark.filterwarnings("ignore:.*can't be truncated")
@pytest.mark.parametrize("name", ["tiny_sliding", "tiny_recurrent"])
def test_where_memory_cannot_be_shifted_the_prompt_is_evaluated(request: pytest.FixtureRequest, name: str) -> None:
    with load(request.getfixturevalue(name)) as engine:
        expected = engine.generate(SHORTER, max_tokens=5)
        engine.generate(LONG, max_tokens=5)
        assert engine.shift_to(SHORTER) == 0
        assert engine.generate(SHORTER, max_tokens=5).tokens == expected.tokens


# fitting


def conversation(*lengths: int, answers: int = 20, system: bool = True) -> list[Message]:
    """Return turns of so many characters, which are tokens here; the last has no answer."""
    messages = [SYSTEM] if system else []
    for i, length in enumerate(lengths):
        messages.append({"role": "user", "content": chr(97 + i % 26) * length})
        messages.append({"role": "assistant", "content": chr(65 + i % 26) * answers})
    return messages[:-1]


def test_what_fits_is_left_as_it_is(engine: SpeculativeLM) -> None:
    messages = conversation(10, 10, 10)
    assert fit(engine, messages, 50) == FittedPrompt(engine.chat_prompt(messages), 0, messages)


def test_the_oldest_turns_go_down_to_half_of_the_context(engine: SpeculativeLM) -> None:
    messages = conversation(*[20] * 6)
    fitted = fit(engine, messages[:-2], 50)
    assert fitted.dropped_turns == 3
    assert fitted.messages == [SYSTEM, *messages[7:-2]]
    assert fitted.tokens == engine.chat_prompt(fitted.messages)
    assert len(fitted.tokens) <= N_CTX // 2 < len(engine.chat_prompt([SYSTEM, *messages[5:-2]]))
    assert fit(engine, messages, 50).dropped_turns == 3, "there is room again"


def test_a_long_last_turn_takes_as_many_along_as_fit(engine: SpeculativeLM) -> None:
    messages = conversation(20, 20, 20, 140)
    fitted = fit(engine, messages, 50)
    assert N_CTX // 2 < len(fitted.tokens) <= N_CTX - 50
    assert fitted.dropped_turns == 2


@pytest.mark.parametrize("system", [True, False])
def test_a_last_turn_that_does_not_fit_alone_is_an_error(engine: SpeculativeLM, system: bool) -> None:
    with pytest.raises(PromptError, match=r"the last message .* the context holds 300, 60 of them for the answer"):
        fit(engine, conversation(20, 20, 240, system=system), 60)
    with pytest.raises(PromptError, match="the last message"):
        fit(engine, [{"role": "system", "content": "x" * 300}, *conversation(1, system=False)], 60)
    with pytest.raises(PromptError, match="the last message"):
        fit(engine, [{"role": "system", "content": "x" * 300}], 60)


def test_the_reserve_is_a_quarter_at_the_most_and_a_token_at_least(engine: SpeculativeLM) -> None:
    length = N_CTX // 4 * 3 - len(engine.chat_prompt(conversation(0)))
    assert fit(engine, conversation(length), 100_000).dropped_turns == 0
    with pytest.raises(PromptError, match="75 of them"):
        fit(engine, conversation(length + 1), 100_000)
    length = N_CTX - 1 - len(engine.chat_prompt(conversation(0)))
    assert len(fit(engine, conversation(length), 0).tokens) == N_CTX - 1
    with pytest.raises(PromptError, match="1 of them"):
        fit(engine, conversation(length + 1), 0)


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), min_size=1, max_size=12), st.integers(0, 90))
@settings(deadline=None, max_examples=40)
def test_a_fitted_conversation_fits_and_drops_as_it_did_before(
    engine: SpeculativeLM, turns: list[tuple[int, int]], reserve: int
) -> None:
    messages: list[Message] = [SYSTEM]
    dropped = 0
    changes = 0
    for i, (asked, answered) in enumerate(turns):
        messages.append({"role": "user", "content": chr(97 + i) * asked})
        fitted = fit(engine, messages, reserve)
        assert len(fitted.tokens) <= N_CTX - max(1, min(reserve, N_CTX // 4))
        assert fitted.dropped_turns <= i
        assert fitted.messages == [SYSTEM, *messages[1 + 2 * fitted.dropped_turns :]]
        assert fitted.tokens == engine.chat_prompt(fitted.messages)
        assert fitted.dropped_turns >= dropped, "what is gone stays away"
        if fitted.dropped_turns > dropped:
            changes += 1
            more = engine.chat_prompt([SYSTEM, *messages[1 + 2 * dropped :]])
            assert len(more) > N_CTX - max(1, min(reserve, N_CTX // 4)), "only what does not fit goes"
        dropped = fitted.dropped_turns
        messages.append({"role": "assistant", "content": chr(65 + i) * answered})


def test_a_long_chat_evaluates_what_is_new_and_shifts_now_and_then(tiny_llama: Path) -> None:
    with load(tiny_llama) as engine:
        messages: list[Message] = [SYSTEM]
        dropped = []
        for i in range(20):
            messages.append({"role": "user", "content": chr(97 + i) * 12})
            fitted = fit(engine, messages, 40)
            completion = engine.generate(fitted.tokens, max_tokens=8, drafter="none")
            new = len(engine.chat_prompt(messages[-1:])) + 8
            assert completion.stats.prompt_tokens - completion.stats.cached_tokens <= new or not i
            assert completion.stats.exact is (0 if fitted.dropped_turns else True)
            dropped.append(fitted.dropped_turns)
            messages.append({"role": "assistant", "content": "ok"})  # which breaks off what is cached of the answer
        assert dropped[-1] > 10
        assert len(set(dropped)) == 5, "many turns go at once"


def test_an_exact_long_chat_depends_on_its_turns_only(tiny_llama: Path) -> None:
    messages = conversation(*[30] * 8)
    with load(tiny_llama, exact=True) as engine:
        fitted = fit(engine, messages, 40)
        assert fitted.dropped_turns
        expected = engine.generate(fitted.tokens, max_tokens=10, logprobs=1)
        engine.clear()
        for n in range(2, len(messages) + 1, 2):
            fitted = fit(engine, messages[:n], 40)
            found = engine.generate(fitted.tokens, max_tokens=10, logprobs=1)
        assert found.logprobs == expected.logprobs
        assert found.stats.exact is True


QUESTIONS = (
    (
        "Why is the sea salty?",
        "Rivers carry minerals to the sea, where water evaporates and salt stays. " * 3,
    ),
    ("What do bees eat?", "Bees eat nectar, which they turn into honey, and pollen, which gives them protein. " * 3),
    ("How is bread made?", "Flour, water, salt and yeast are kneaded, left to rise, and baked in a hot oven. " * 3),
    ("What is the capital of Italy?", "The capital of Italy is Rome. It lies on the river Tiber."),
)


@pytest.mark.real
def test_a_real_chat_stays_sensible_behind_a_shift(smollm2: Path) -> None:
    messages: list[Message] = [{"role": "system", "content": "You are a helpful assistant."}]
    for question, answer in QUESTIONS:
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": "What is the capital of France?"})
    with load(smollm2, n_ctx=320) as engine:
        engine.generate(engine.chat_prompt(messages[:-1]), max_tokens=1)
        fitted = fit(engine, messages, 80)
        assert fitted.dropped_turns > 0
        found = engine.generate(fitted.tokens, max_tokens=24)
        assert found.stats.prompt_tokens - found.stats.cached_tokens < 24
        assert found.stats.exact == 0
        engine.clear()
        anew = engine.generate(fitted.tokens, max_tokens=24)
        assert anew.stats.cached_tokens == 0
        print(found.text, anew.text)
        assert "Paris" in anew.text
        assert "Paris" in found.text
