"""Drafts from the target itself under bad conditions: the text stays the target's whatever happens to the draft."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
from drafts import write_cut, write_draft
from heads import PROMPTS, train_head

from lcspec import GREEDY, SamplingParams, SpeculativeLM
from lcspec.gguf_edit import frequent_tokens
from lcspec.hub import check_pair
from lcspec.layouts import TwoLayouts
from lcspec.limits import DrafterName
from lcspec.llama import Model, quantize, read_header
from lcspec.loop import speculate
from lcspec.planner import CostCurve, LayoutChoice
from lcspec.rules import GreedyRule

N_CTX = 160
LETTERS = [*range(97, 123), tiny.EOS, tiny.BOS, tiny.END_OF_TURN]
DRAWN = SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=3)
KINDS = ["layers", "quant", "vocab", "head"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("robust") / "target.gguf", layers=4)


@pytest.fixture(scope="module")
def drafts(target: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("drafts")
    quantized = folder / "quant.gguf"
    quantize(write_draft(target, folder / "whole.gguf", range(4)), quantized, "Q4_0", 1)
    return {
        "layers": write_draft(target, folder / "layers.gguf", (0, 1, 3)),
        "quant": quantized,
        "vocab": write_cut(target, folder / "vocab.gguf", LETTERS),
        "head": train_head(target, folder, epochs=4).path,
    }


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def engine(target: Path, drafts: dict[str, Path], kind: str) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(target, drafts[kind], n_ctx=N_CTX, threads=1, measure=False) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(target: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(target, n_ctx=N_CTX, threads=1, measure=False, drafter="none") as engine:
        yield engine


def name_of(kind: str) -> DrafterName:
    return "head" if kind == "head" else "model"


SAMPLINGS = {
    "greedy": GREEDY,
    "drawn": DRAWN,
    "penalties": replace(DRAWN, repeat_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2),
    "greedy penalties": replace(GREEDY, repeat_penalty=1.3),
    "all that drafts have is forbidden": replace(DRAWN, logit_bias=dict.fromkeys(LETTERS, -np.inf)),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
def test_a_text_that_fills_the_context_is_the_targets(
    engine: SpeculativeLM, plain: SpeculativeLM, kind: str, sampling: SamplingParams
) -> None:
    for prompt in PROMPTS[:2]:
        plain.clear()
        expected = plain.generate(prompt, max_tokens=1000, sampling=sampling)
        for drafter in (name_of(kind), "auto"):
            engine.clear()
            found = engine.generate(prompt, max_tokens=1000, sampling=sampling, drafter=drafter)
            assert found.tokens == expected.tokens
            assert found.finish_reason == expected.finish_reason


def test_a_text_by_rejection_goes_on_where_nothing_can_be_drafted(engine: SpeculativeLM, kind: str) -> None:
    sampling = SAMPLINGS["all that drafts have is forbidden"]
    text = engine.generate(PROMPTS[0], max_tokens=40, sampling=sampling, rule="rejection", drafter=name_of(kind))
    assert not set(text.tokens) & set(LETTERS)


def test_stop_strings_end_a_text_where_they_end_the_targets(
    engine: SpeculativeLM, plain: SpeculativeLM, kind: str
) -> None:
    written = plain.generate("some text", max_tokens=40, sampling=DRAWN).text
    for start in (3, 11, 20):
        stop = [written[start : start + 3]]
        expected = plain.generate("some text", max_tokens=60, sampling=DRAWN, stop=stop)
        found = engine.generate("some text", max_tokens=60, sampling=DRAWN, stop=stop, drafter=name_of(kind))
        assert (found.text, found.finish_reason) == (expected.text, expected.finish_reason)


def test_turns_that_share_a_beginning_are_the_targets(engine: SpeculativeLM, plain: SpeculativeLM, kind: str) -> None:
    random = np.random.default_rng(5)
    text = list(b"a conversation that goes on and on")
    for _ in range(12):
        length = int(random.integers(1, len(text) + 1))
        text = [*text[:length], *random.integers(0, 256, 9).tolist()]
        plain.clear()
        expected = plain.generate(text, max_tokens=17).tokens
        assert engine.generate(text, max_tokens=17, drafter=name_of(kind)).tokens == expected
        text += expected[: int(random.integers(0, 17))]


def test_a_kept_state_is_gone_on_from(engine: SpeculativeLM, target: Path, kind: str, tmp_path: Path) -> None:
    first = engine.generate("what is kept", max_tokens=30, drafter=name_of(kind))
    text = [*engine.target.tokenize("what is kept"), *first.tokens]
    assert engine.save_state(tmp_path / "kept.kv")
    expected = engine.generate(text, max_tokens=30, drafter="none").tokens
    for drafter in (name_of(kind), "auto"):
        engine.generate("another text is in the cache now", max_tokens=10, drafter=drafter)
        assert engine.restore_state(tmp_path / "kept.kv") >= len(text) - 1
        found = engine.generate(text, max_tokens=30, drafter=drafter)
        assert found.tokens == expected
        assert found.stats.cached_tokens >= len(text) - 1


def test_a_context_that_was_shifted_drafts_on(engine: SpeculativeLM, plain: SpeculativeLM, kind: str) -> None:
    random = np.random.default_rng(6)
    system, first, second = (random.integers(97, 123, 40).tolist() for _ in range(3))
    texts = []
    for lm, drafter in ((plain, "none"), (engine, name_of(kind))):
        lm.clear()
        lm.generate([*system, *first, *second], max_tokens=5, drafter=drafter)
        assert lm.shift_to([*system, *second]) == 40
        texts.append(lm.generate([*system, *second], max_tokens=40, drafter=drafter).tokens)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", ["layers", "vocab"])
def test_texts_behind_a_sliding_window_are_the_targets(
    tiny_sliding: Path, tmp_path: Path, kind: str, exact: bool
) -> None:
    path = tmp_path / "draft.gguf"
    draft = write_draft(tiny_sliding, path, (0, 1)) if kind == "layers" else write_cut(tiny_sliding, path, LETTERS)
    with SpeculativeLM(tiny_sliding, draft, n_ctx=N_CTX, threads=1, measure=False, exact=exact) as lm:
        text = list(b"a text that is longer than the window of sixteen tokens")
        for sampling in (GREEDY, DRAWN):
            for drafter in ("model", "auto"):
                for length in (len(text), 30, len(text)):
                    lm.clear()
                    expected = lm.generate(text[:length], max_tokens=60, sampling=sampling, drafter="none").tokens
                    found = lm.generate(text[:length], max_tokens=60, sampling=sampling, drafter=drafter).tokens
                    assert found == expected


def test_a_head_follows_a_text_that_moves_between_layouts(target: Path, drafts: dict[str, Path]) -> None:
    """Its hidden states are those of the layout where the text is."""
    with SpeculativeLM(target, drafts["head"], n_ctx=N_CTX, threads=1, measure=False) as lm:
        other = lm._loaded._load_other_layout()
        assert other is not None
        layouts = TwoLayouts(lm._loaded._decoding, lambda: other, LayoutChoice((CostCurve(), CostCurve())))
        lm._loaded.context = layouts
        written = []
        for moves in (False, True):
            layouts.clear()
            drafted, text = 0, list[int]()
            head = lm._loaded.drafters["head"]
            for done in speculate(layouts, PROMPTS[0], head, GreedyRule(), max_tokens=40, is_eog=lm.target.is_eog):
                drafted += len(done.draft.tokens)
                text += done.emitted
                if moves:
                    layouts.choice.wanted = 1 - layouts.layout
            written.append(text)
            assert drafted > 0
            assert layouts.is_mixed == moves
        lm._loaded.context = lm._loaded._decoding
        layouts.close()
    assert written[0] == written[1]


# pairs


def test_any_cut_of_a_vocabulary_drafts_for_its_target(smollm2: Path, tmp_path: Path) -> None:
    """Which token ends a turn is llama.cpp's guess where a file does not say, and another in another vocabulary."""
    header = read_header(smollm2)
    with Model(header, vocabulary_only=True) as whole:
        for n in (2000, 16_384, 40_000, 49_152):
            path = write_cut(smollm2, tmp_path / "cut.gguf", frequent_tokens(header, n))
            with Model(path, vocabulary_only=True) as draft:
                check_pair(whole, draft)
