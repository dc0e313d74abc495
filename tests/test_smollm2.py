"""The real SmolLM2-135M: the same text whoever drafts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prompts import PROMPTS

from lcspec import Completion, SpeculativeLM
from lcspec.engine import DrafterName

pytestmark = pytest.mark.real

TOKENS = 100


def text_of(engine: SpeculativeLM, prompt: str, drafter: DrafterName) -> Completion:
    engine.clear()
    return engine.generate(prompt, max_tokens=TOKENS, drafter=drafter)


@pytest.fixture(scope="module")
def with_itself(smollm2: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(smollm2, smollm2, n_ctx=512) as engine:
        yield engine


@pytest.fixture(scope="module")
def with_requantized(smollm2: Path, smollm2_q2_k: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(smollm2, smollm2_q2_k, n_ctx=512) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(with_itself: SpeculativeLM) -> dict[str, Completion]:
    return {prompt: text_of(with_itself, prompt, "none") for prompt in PROMPTS}


def test_the_prompts_are_exact_and_give_varied_texts(plain: dict[str, Completion]) -> None:
    assert len({completion.text for completion in plain.values()}) == len(PROMPTS) == 12
    for completion in plain.values():
        assert len(completion.tokens) == TOKENS
        assert completion.stats.prompt_tokens + TOKENS <= 256


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("drafter", ["lookup", "itself", "requantized", "both"])
def test_the_text_is_that_of_plain_decoding(
    prompt: str,
    drafter: str,
    plain: dict[str, Completion],
    with_itself: SpeculativeLM,
    with_requantized: SpeculativeLM,
) -> None:
    engine = with_itself if drafter == "itself" else with_requantized
    names: dict[str, DrafterName] = {"lookup": "lookup", "both": "auto"}
    completion = text_of(engine, prompt, names.get(drafter, "model"))
    assert completion.tokens == plain[prompt].tokens
    assert completion.text == plain[prompt].text
    assert completion.finish_reason == plain[prompt].finish_reason
    if drafter == "itself":
        assert completion.stats.acceptance_rate == 1.0
    if drafter == "requantized":
        assert 0 < completion.stats.acceptance_rate <= 1


def test_a_requantized_self_is_sometimes_wrong(with_requantized: SpeculativeLM) -> None:
    drafted = [text_of(with_requantized, prompt, "model").stats for prompt in PROMPTS]
    assert 0 < sum(stats.accepted for stats in drafted) < sum(stats.drafted for stats in drafted)


def test_lookup_finds_repetition(with_itself: SpeculativeLM) -> None:
    stats = text_of(with_itself, PROMPTS[4], "lookup").stats
    assert stats.tokens_per_pass > 1.5


def test_a_chat_reuses_the_cache_between_turns(with_itself: SpeculativeLM) -> None:
    with_itself.clear()
    messages = [{"role": "user", "content": "Name three colors."}]
    first = with_itself.chat(messages, max_tokens=40)
    assert first.finish_reason == "eog"
    messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And three animals."},
    ]
    second = with_itself.chat(messages, max_tokens=40)
    assert second.stats.cached_tokens >= first.stats.prompt_tokens + len(first.tokens)
    assert second.text
