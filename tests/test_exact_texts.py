"""With `exact`, real models give one text for one seed, to the last bit of its log-probabilities."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from prompts import long_question, questions

from lcspec import GREEDY, Completion, SamplingParams, SpeculativeLM
from lcspec.engine import DrafterName
from lcspec.llama import ExactWidths

SAMPLINGS = [
    GREEDY,
    SamplingParams(temperature=0.7, top_p=0.9, seed=11),
    SamplingParams(temperature=1.2, seed=12),
    SamplingParams(temperature=0.0, repeat_penalty=1.2),
    SamplingParams(temperature=0.7, repeat_penalty=1.1, presence_penalty=0.3, seed=13),
    SamplingParams(temperature=1.2, top_k=0, top_p=0.95, min_p=0.0, logit_bias={30: 2.0, 28: -1.0}, seed=14),
]
LENGTHS = (2, 5, 12)


def answer(lm: SpeculativeLM, question: str, drafter: DrafterName, sampling: SamplingParams, n: int) -> Completion:
    lm.clear()
    prompt = lm.chat_prompt([{"role": "user", "content": question}])
    return lm.generate(prompt, max_tokens=n, sampling=sampling, drafter=drafter, logprobs=1)


def differences(runs: Sequence[tuple[SpeculativeLM, DrafterName]], asked: Sequence[str], n: int) -> int:
    """Count texts of `n` tokens that are not those of plain decoding, to the last bit."""
    count = 0
    for number, question in enumerate(asked):
        sampling = SAMPLINGS[number % len(SAMPLINGS)]
        expected = answer(runs[0][0], question, "none", sampling, n)
        for lm, drafter in runs:
            found = answer(lm, question, drafter, sampling, n)
            same = (found.tokens, found.logprobs) == (expected.tokens, expected.logprobs)
            count += not (same and found.stats.exact is True)
    return count


@pytest.fixture(scope="module")
def exact_engines(smollm2: Path, smollm2_q2_k: Path) -> Iterator[list[SpeculativeLM]]:
    """One for each length of drafts."""
    engines = [SpeculativeLM(smollm2, smollm2_q2_k, n_ctx=1024, exact=True, draft_tokens=n) for n in LENGTHS]
    yield engines
    for engine in engines:
        engine.close()


@pytest.mark.real
def test_fifty_questions_have_one_answer_whoever_drafts(exact_engines: list[SpeculativeLM]) -> None:
    short, middle, long = exact_engines
    runs: list[tuple[SpeculativeLM, DrafterName]] = [(short, "model"), (middle, "model"), (long, "model")]
    assert differences([*runs, (long, "lookup")], questions(50), 24) == 0
    assert differences([(lm, "lookup") for lm in exact_engines], questions(6), 60) == 0


@pytest.mark.real
def test_a_long_prompt_has_one_answer_whoever_drafts(exact_engines: list[SpeculativeLM]) -> None:
    asked = long_question(250)
    assert differences([(exact_engines[1], "lookup"), (exact_engines[2], "model")], [asked], 40) == 0
    assert answer(exact_engines[0], asked, "none", GREEDY, 1).stats.prompt_tokens > 600


def turns(lm: SpeculativeLM, drafter: DrafterName) -> list[Completion]:
    """Three turns of a conversation, each on the cache of those before."""
    lm.clear()
    messages, answers = [], []
    for question in ("List four colors.", "Repeat the list, and add a color.", "Now in capital letters."):
        messages.append({"role": "user", "content": question})
        answers.append(lm.chat(messages, max_tokens=60, drafter=drafter, stop=["4."], logprobs=1))
        messages.append({"role": "assistant", "content": answers[-1].text})
    return answers


@pytest.mark.real
def test_later_turns_on_a_reused_cache_are_those_of_plain_decoding(exact_engines: list[SpeculativeLM]) -> None:
    plain = turns(exact_engines[0], "none")
    assert all(one.stats.cached_tokens > 0 for one in plain[1:])
    for engine in exact_engines:
        for drafter in ("lookup", "model"):
            found = turns(engine, drafter)
            assert [(one.tokens, one.logprobs) for one in found] == [(one.tokens, one.logprobs) for one in plain]
            assert [one.stats.cached_tokens for one in found] == [one.stats.cached_tokens for one in plain]


@pytest.mark.real
def test_turns_on_a_reused_cache_and_one_long_prompt_are_the_same_where_any_width_is_exact(
    exact_engines: list[SpeculativeLM],
) -> None:
    """A Q4_1 file: how a text is cut into passes does not show. Of other types this is not promised."""
    lm = exact_engines[0]
    history = lm.chat_prompt([{"role": "user", "content": "List four colors."}])
    first = lm.generate(history, max_tokens=40)
    longer = [*history, *first.tokens, *lm.target.tokenize(" And then")]
    reused = lm.generate(longer, max_tokens=30, logprobs=1)
    assert reused.stats.cached_tokens > len(history)
    lm.clear()
    anew = lm.generate(longer, max_tokens=30, logprobs=1)
    assert (anew.tokens, anew.logprobs) == (reused.tokens, reused.logprobs)


@pytest.mark.real
def test_a_q4_k_m_model_has_one_answer_whoever_drafts(smollm2_q4_k_m: Path, smollm2_q2_k: Path) -> None:
    with SpeculativeLM(smollm2_q4_k_m, smollm2_q2_k, n_ctx=512, exact=True, draft_tokens=9) as lm:
        assert differences([(lm, "lookup"), (lm, "model")], questions(6), 32) == 0


@pytest.mark.real
def test_a_width_that_is_too_wide_is_seen(
    smollm2_q4_k_m: Path, smollm2_q2_k: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcspec.loaded.exact_widths", lambda *_: ExactWidths(10, 10))
    with SpeculativeLM(smollm2_q4_k_m, smollm2_q2_k, n_ctx=512, exact=True, draft_tokens=9) as lm:
        assert differences([(lm, "model")], questions(6), 32) > 3


# the real pair


@pytest.fixture(scope="module")
def pair() -> Iterator[SpeculativeLM]:
    with SpeculativeLM("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", n_ctx=2048, exact=True, download=True) as lm:
        yield lm


@pytest.mark.pair
@pytest.mark.parametrize("number", range(20))
def test_the_pair_has_one_answer_whoever_drafts(pair: SpeculativeLM, number: int) -> None:
    question = long_question(400 + number) if number % 4 == 3 else questions(20)[number]
    sampling = SAMPLINGS[number % len(SAMPLINGS)]
    expected = answer(pair, question, "none", sampling, 150)
    if number % 4 == 3:
        assert expected.stats.prompt_tokens > 700
    for drafter in ("lookup", "model"):
        found = answer(pair, question, drafter, sampling, 150)
        assert (found.tokens, found.logprobs) == (expected.tokens, expected.logprobs)
        assert found.stats.exact is True


@pytest.mark.pair
def test_the_pair_shows_a_width_that_is_too_wide(pair: SpeculativeLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair._loaded._cells, "widths", ExactWidths(5, 5))
    assert differences([(pair, "model")], questions(3), 40) == 3
