"""The real target and draft pair: Qwen2.5-Coder 1.5B and 0.5B."""

from collections.abc import Iterator

import pytest
from prompts import PROMPTS

from lcspec import SpeculativeLM

pytestmark = pytest.mark.pair

EXACT_DRAFT = 2  # tokens; Q4_K_M rows are exact in passes of up to 3 with repacked weights


@pytest.fixture(scope="module")
def pair() -> Iterator[SpeculativeLM]:
    with SpeculativeLM(
        "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", n_ctx=512, draft_tokens=EXACT_DRAFT, download=True
    ) as engine:
        yield engine


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_text_is_that_of_plain_decoding(pair: SpeculativeLM, prompt: str) -> None:
    completions = {}
    for drafter in ("none", "lookup", "model", "auto"):
        pair.clear()
        completions[drafter] = pair.generate(prompt, max_tokens=100, drafter=drafter)
    for completion in completions.values():
        assert completion.tokens == completions["none"].tokens
    assert completions["model"].stats.acceptance_rate > 0.3
