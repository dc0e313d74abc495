"""The engine on tiny GGUFs: text, limits, reuse, threads."""

import gc
import math
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

import lcspec
from lcspec import (
    BusyError,
    ClosedError,
    EvaluationError,
    LcspecError,
    LcspecWarning,
    ModelError,
    PairError,
    Piece,
    PromptError,
    SamplingParams,
    SpeculativeLM,
)

PROMPT = "the fox and the hen and the fox and the hen"


@pytest.fixture
def engine(tiny_llama: Path, tiny_draft: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, tiny_draft, n_ctx=250) as engine:
        yield engine


def test_every_drafter_gives_one_text(engine: SpeculativeLM) -> None:
    texts = {name: engine.generate(PROMPT, max_tokens=60, drafter=name) for name in engine._loaded.drafters}
    plain = texts["none"]
    assert plain.stats.drafted == 0
    assert plain.stats.tokens_per_pass == 1
    for name in ("lookup", "model", "auto"):
        assert texts[name].tokens == plain.tokens
        assert texts[name].text == plain.text
        assert texts[name].finish_reason == plain.finish_reason
    assert set(texts["model"].stats.drafters) == {"model"}


def test_a_completion_counts_what_happened(engine: SpeculativeLM) -> None:
    completion = engine.generate(PROMPT, max_tokens=50, drafter="lookup")
    stats = completion.stats
    assert stats.plan is None
    assert stats.prompt_tokens == len(PROMPT)
    assert stats.cached_tokens == 0
    assert len(completion.tokens) == stats.tokens == 50
    assert completion.finish_reason == "length"
    assert stats.tokens == 1 + stats.target_passes + stats.accepted
    assert stats.drafted == sum(share.drafted for share in stats.drafters.values()) > 0
    assert stats.acceptance_rate == stats.accepted / stats.drafted
    assert stats.tokens_per_pass == 49 / stats.target_passes
    assert stats.prefill_seconds > 0
    assert stats.decode_seconds > 0
    assert completion.as_dict()["stats"]["tokens_per_second"] == stats.tokens_per_second


def test_the_text_is_that_of_the_tokens(engine: SpeculativeLM) -> None:
    completion = engine.generate(PROMPT, max_tokens=80)
    assert completion.text == engine.target.detokenize(completion.tokens).decode("utf-8", "replace")


def test_pieces_say_which_tokens_came_from_a_draft(engine: SpeculativeLM) -> None:
    with engine.stream(PROMPT, max_tokens=60, drafter="lookup") as stream:
        pieces = list(stream)
        completion = stream.completion
    assert "".join(piece.text for piece in pieces) == completion.text
    assert tuple(token for piece in pieces for token in piece.tokens) == completion.tokens
    assert {piece.drafter for piece in pieces} == {None, "lookup"}
    assert sum(len(piece.tokens) for piece in pieces if piece.drafter) == completion.stats.accepted


def test_max_tokens_is_exact_though_a_draft_overshoots(engine: SpeculativeLM, tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, tiny_llama, "model", n_ctx=250, draft_tokens=8) as itself:
        plain = itself.generate(PROMPT, max_tokens=30, drafter="none").tokens
        assert len(plain) == 30
        for n in range(31):
            completion = itself.generate(PROMPT, max_tokens=n)
            assert completion.tokens == plain[:n]
            assert completion.finish_reason == "length"


def test_no_tokens_wanted_no_tokens_given(engine: SpeculativeLM) -> None:
    completion = engine.generate(PROMPT, max_tokens=0)
    assert (completion.text, completion.tokens, completion.finish_reason) == ("", (), "length")
    assert completion.stats.tokens_per_second == 0


def test_the_end_of_the_context_ends_the_text(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, tiny_llama, n_ctx=60) as engine:
        for drafter in ("none", "lookup", "model"):
            completion = engine.generate(PROMPT, drafter=drafter)
            assert len(completion.tokens) == 60 - len(PROMPT)
            assert completion.finish_reason == "length"


def test_a_prompt_that_does_not_fit_is_an_error_with_both_numbers(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=60) as engine:
        assert len(engine.generate("x" * 59).tokens) == 1
        for length in (60, 61, 5000):
            with pytest.raises(PromptError, match=f"{length:,} tokens and the context holds 60"):
                engine.generate("x" * length)


def test_an_empty_prompt_starts_from_the_beginning_of_text(engine: SpeculativeLM) -> None:
    completion = engine.generate("", max_tokens=5)
    assert completion.tokens == engine.generate([tiny.BOS], max_tokens=5).tokens
    with pytest.raises(PromptError, match="empty"):
        engine.generate([])


def test_an_end_of_generation_ends_the_text_and_is_no_part_of_it(engine: SpeculativeLM) -> None:
    for seed in range(200):
        completion = engine.generate(f"prompt {seed}", max_tokens=50)
        if completion.finish_reason == "eog":
            break
    assert completion.finish_reason == "eog"
    assert not any(engine.target.is_eog(token) for token in completion.tokens)
    assert completion.stats.tokens == len(completion.tokens) + 1
    assert engine.generate(f"prompt {seed}", max_tokens=50, drafter="none").tokens == completion.tokens


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_stop_strings_work_anywhere_in_tokens_and_drafts(tiny_llama: Path, length: int) -> None:
    with SpeculativeLM(tiny_llama, tiny_llama, n_ctx=250, draft_tokens=9) as engine:
        text = engine.generate(PROMPT, max_tokens=80, drafter="none").text
        for start in range(0, len(text) - length, 3):
            stop = text[start : start + length]
            expected = text[: text.find(stop)]
            ends = []
            for drafter in ("none", "lookup", "model"):
                with engine.stream(PROMPT, max_tokens=80, stop=[stop, "never there"], drafter=drafter) as stream:
                    assert "".join(piece.text for piece in stream) == expected
                    ends.append((stream.completion.tokens, stream.completion.finish_reason))
            assert ends == [(ends[0][0], "stop")] * 3


def test_a_split_character_is_held_until_it_is_whole(engine: SpeculativeLM) -> None:
    text = "é東👩‍👩‍👧e\u0301"
    pieces = []
    assembled = ""
    for token in engine.target.tokenize(text):  # a token is a byte here
        pieces.append(engine.target.piece(token))
    assembler = lcspec.text.TextAssembler()
    for piece in pieces:
        new = assembler.add(piece)
        assert "\ufffd" not in new
        assembled += new
    assert len(pieces) > len(text)
    assert assembled + assembler.finish() == text


def test_a_shared_prefix_is_not_evaluated_again(engine: SpeculativeLM) -> None:
    first = engine.generate(PROMPT, max_tokens=20)
    again = engine.generate(PROMPT, max_tokens=20)
    assert again.stats.cached_tokens == len(PROMPT) - 1
    assert again.tokens == first.tokens
    longer = [*engine.target.tokenize(PROMPT), *first.tokens, 65, 66]
    more = engine.generate(longer, max_tokens=5)
    assert more.stats.cached_tokens == len(PROMPT) + 19
    engine.clear()
    fresh = engine.generate(longer, max_tokens=5)
    assert fresh.stats.cached_tokens == 0
    assert fresh.tokens == more.tokens


def test_a_stream_that_is_closed_early_keeps_its_text_and_frees_the_engine(engine: SpeculativeLM) -> None:
    whole = engine.generate(PROMPT, max_tokens=40)
    stream = engine.stream(PROMPT, max_tokens=40)
    first = next(stream)
    assert isinstance(first, Piece)
    stream.close()
    assert stream.completion.finish_reason == "cancelled"
    assert stream.completion.tokens == whole.tokens[: len(stream.completion.tokens)] != ()
    assert list(stream) == []
    assert engine.generate(PROMPT, max_tokens=40).tokens == whole.tokens


def test_threads_take_turns(engine: SpeculativeLM) -> None:
    prompts = [f"{PROMPT} {i}" for i in range(6)]
    expected = [engine.generate(prompt, max_tokens=40).tokens for prompt in prompts]
    got: list[object] = [None] * len(prompts)

    def work(i: int) -> None:
        got[i] = [engine.generate(prompts[i], max_tokens=40).tokens for _ in range(5)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [[tokens] * 5 for tokens in expected]


def test_a_dropped_stream_lets_the_engine_go(engine: SpeculativeLM) -> None:
    gc.disable()
    try:
        for _ in engine.stream(PROMPT, max_tokens=30):
            break
        assert engine.generate("x", max_tokens=3).tokens
    finally:
        gc.enable()


def test_reading_all_tokens_finishes_a_stream(engine: SpeculativeLM) -> None:
    stream = engine.stream(PROMPT, max_tokens=5, drafter="none")
    assert [len(next(stream).tokens) for _ in range(5)] == [1] * 5
    assert engine.generate("x", max_tokens=3).tokens
    rest = list(stream)  # no more than a character that was incomplete
    assert all(piece.tokens == () for piece in rest)
    assert stream.completion.finish_reason == "length"


def test_a_completion_is_a_snapshot(engine: SpeculativeLM) -> None:
    with engine.stream(PROMPT, max_tokens=30) as stream:
        next(stream)
        early = stream.completion
        tokens = early.stats.tokens
        list(stream)
        assert early.stats.tokens == tokens < stream.completion.stats.tokens


def test_another_thread_can_close_a_stream(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=500, drafter="none", threads=1) as engine:
        stream = engine.stream(PROMPT)
        next(stream)
        closer = threading.Thread(target=stream.close)
        closer.start()
        read = sum(len(piece.tokens) for piece in stream)
        closer.join()
        assert stream.completion.finish_reason in ("cancelled", "eog", "length")
        assert read <= 500 - len(PROMPT)
        assert engine.generate("x", max_tokens=3).tokens


def test_closing_an_engine_ends_what_other_threads_do(tiny_llama: Path) -> None:
    for _ in range(20):
        engine = SpeculativeLM(tiny_llama, n_ctx=400, drafter="none", threads=1)
        paused = engine.stream(PROMPT)
        next(paused)
        ended: list[str] = []

        def generate(engine: SpeculativeLM = engine, ended: list[str] = ended) -> None:
            try:
                ended.append(engine.generate("x").finish_reason)
            except ClosedError:
                ended.append("closed")

        workers = [threading.Thread(target=generate) for _ in range(3)]
        for worker in workers:
            worker.start()
        engine.close()
        for worker in workers:
            worker.join(timeout=60)
            assert not worker.is_alive()
        assert len(ended) == 3


def test_a_thread_is_told_of_its_own_unfinished_stream(engine: SpeculativeLM) -> None:
    with engine.stream(PROMPT, max_tokens=10) as stream:
        next(stream)
        with pytest.raises(BusyError, match="unfinished stream"):
            engine.generate("x")
        assert len([token for piece in stream for token in piece.tokens]) == 9
    assert engine.generate("x", max_tokens=3).tokens


def test_an_engine_can_be_closed_twice_and_not_used_afterwards(tiny_llama: Path, tiny_draft: Path) -> None:
    engine = SpeculativeLM(tiny_llama, tiny_draft)
    stream = engine.stream(PROMPT)
    next(stream)
    engine.close()
    engine.close()
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"
    for use in (lambda: engine.generate(PROMPT), lambda: engine.generate([1], max_tokens=0), engine.clear):
        with pytest.raises(ClosedError):
            use()


def test_chat_goes_through_the_template(engine: SpeculativeLM) -> None:
    messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "hi"}]
    text = "<|system|>short<end><|user|>hi<end><|assistant|>"
    assert engine.chat_prompt(messages) == engine.target.tokenize(text)
    assert tiny.END_OF_TURN in engine.chat_prompt(messages)
    assert engine.chat(messages, max_tokens=9).tokens == engine.generate(text, max_tokens=9).tokens


def test_without_a_template_chat_is_an_error(tiny_folder: Path) -> None:
    path = tiny.write_model(tiny_folder / "base.gguf", template=None)
    with SpeculativeLM(path) as engine, pytest.raises(PromptError, match="no chat template"):
        engine.chat([{"role": "user", "content": "hi"}])


def test_bos_is_not_doubled_where_the_template_writes_it(tiny_folder: Path) -> None:
    path = tiny.write_model(tiny_folder / "bos.gguf", template="{{ bos_token }}x", adds_bos=True)
    with SpeculativeLM(path) as engine:
        assert engine.chat_prompt([{"role": "user", "content": ""}]) == [tiny.BOS, ord("x")]
        assert engine.generate("x", max_tokens=1).stats.prompt_tokens == 2


def test_a_recurrent_model_decodes_plainly_and_says_so(tiny_recurrent: Path, tiny_draft: Path) -> None:
    with pytest.warns(LcspecWarning, match="mamba model can't be truncated"):
        engine = SpeculativeLM(tiny_recurrent, tiny_draft, n_ctx=200)
    with engine:
        first = engine.generate(PROMPT, max_tokens=30)
        assert first.stats.drafted == 0
        assert engine.generate(PROMPT, max_tokens=30).tokens == first.tokens
        assert engine.generate(PROMPT[:20], max_tokens=30, drafter="lookup").stats.cached_tokens == 0


def test_drafts_that_do_not_fit_are_refused_with_the_difference(
    tiny_llama: Path, tiny_sliding: Path, tiny_recurrent: Path, tiny_folder: Path
) -> None:
    changed = tiny.write_model(tiny_folder / "changed.gguf", changed_token=100)
    added = tiny.write_model(tiny_folder / "added.gguf", n_vocab=270, changed_token=268)
    with pytest.raises(PairError, match="token 100 is 'changed', the target's is 'd'"):
        SpeculativeLM(tiny_llama, changed)
    with pytest.raises(PairError, match=r"270 tokens, the target 264, and 'changed'"):
        SpeculativeLM(tiny_llama, added)
    with pytest.raises(PairError, match="can't be truncated"):
        SpeculativeLM(tiny_llama, tiny_recurrent)
    SpeculativeLM(tiny_llama, tiny_sliding).close()


def test_padding_at_the_end_of_a_vocabulary_is_no_difference(tiny_llama: Path, tiny_draft: Path) -> None:
    for target, draft in ((tiny_llama, tiny_draft), (tiny_draft, tiny_llama)):
        with SpeculativeLM(target, draft, "model", n_ctx=200) as engine:
            assert (
                engine.generate(PROMPT, max_tokens=40).tokens
                == engine.generate(PROMPT, max_tokens=40, drafter="none").tokens
            )


def test_damaged_weights_are_noticed(tiny_folder: Path) -> None:
    path = tiny.write_model(tiny_folder / "nan.gguf", nan=True)
    with SpeculativeLM(path) as engine:
        with pytest.raises(EvaluationError, match="not numbers"):
            engine.generate(PROMPT)
        with pytest.raises(EvaluationError, match="not numbers"):
            engine.generate(PROMPT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_ctx": 0},
        {"n_ctx": -5},
        {"threads": 0},
        {"draft_tokens": 0},
        {"draft_tokens": 128},
        {"draft_tokens": 2.5},
        {"drafter": "magic"},
        {"drafter": "model"},
    ],
)
def test_wrong_options_are_refused_before_anything_is_loaded(wrong: dict[str, object]) -> None:
    with pytest.raises(LcspecError, match=next(iter(wrong)) + "|" + str(next(iter(wrong.values())))):
        SpeculativeLM("/nowhere/there.gguf", **wrong)  # type: ignore[arg-type]


def test_wrong_arguments_are_refused(engine: SpeculativeLM) -> None:
    wrong = [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stop": [""]}, "stop string"),
        ({"stop": [5]}, "stop string"),
        ({"stop": [b"x"]}, "stop string"),
        ({"drafter": ""}, "drafter"),
        ({"drafter": "magic"}, "magic"),
    ]
    for arguments, message in wrong:
        with pytest.raises(PromptError, match=message):
            engine.generate(PROMPT, **arguments)  # type: ignore[arg-type]
    with pytest.raises(PromptError, match="not a token"):
        engine.generate([3, 9999])
    for prompt in (None, 5, b"hello", [1.9], ["1"], [None], {1: 2}, [[1, 2]], [{"role": "user", "content": "hi"}]):
        with pytest.raises(PromptError, match="token ids"):
            engine.generate(prompt)  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_are_numbers(engine: SpeculativeLM) -> None:
    prompt = np.array(engine.target.tokenize(PROMPT))
    completion = engine.generate(prompt, max_tokens=np.int64(9))  # type: ignore[arg-type]
    assert completion.tokens == engine.generate(PROMPT, max_tokens=9).tokens


def test_a_context_longer_than_the_training_is_warned_of(tiny_llama: Path) -> None:
    with pytest.warns(LcspecWarning, match="trained for 512"):
        SpeculativeLM(tiny_llama, n_ctx=600).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SpeculativeLM(tiny_llama, n_ctx=512).close()


# arguments, and draft models with other vocabularies


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"stop": 5}, "stop strings must be texts"),
        ({"stop": None}, "stop strings must be texts"),
        ({"stop": ["a", 5]}, "stop strings must be texts"),
        ({"sampling": None}, "sampling must be SamplingParams, not NoneType"),
        ({"sampling": {"temperature": 1}}, "sampling must be SamplingParams, not dict"),
        ({"rule": ["coupled"]}, "is no rule"),
        ({"rule": "coupled"}, "with a temperature of 0 the rule is greedy"),
        ({"sampling": SamplingParams(), "rule": "greedy"}, "the rule is coupled or rejection"),
        ({"logprobs": -1}, "logprobs is -1"),
        ({"logprobs": 1000}, "logprobs is 1000"),
        ({"sampling": SamplingParams(logit_bias={1000: 1.0})}, "1000 is not a token"),
        ({"sampling": SamplingParams(logit_bias=dict.fromkeys(range(264), -math.inf))}, "forbids every token"),
    ],
)
def test_bad_arguments_are_errors_before_any_work(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], reason: str
) -> None:
    with SpeculativeLM(tiny_llama, threads=1) as lm:
        monkeypatch.setattr(lm, "_passes", lambda *_: pytest.fail("it works"))
        with pytest.raises(PromptError, match=reason) as error:
            lm.generate("ab", max_tokens=3, **options)
        assert len(str(error.value).splitlines()) == 1


def test_a_model_of_no_name_is_an_error(tiny_llama: Path) -> None:
    for draft in (5, b"x"):
        with pytest.raises(ModelError, match="a model is named by a text or a path"):
            SpeculativeLM(tiny_llama, draft)  # type: ignore[arg-type]


def test_a_draft_model_without_the_targets_padding_drafts_until_it_is_used(tiny_folder: Path) -> None:
    target = tiny.write_model(tiny_folder / "padded.gguf", seed=3)
    draft = tiny.write_model(tiny_folder / "unpadded.gguf", seed=3, n_vocab=260)
    with SpeculativeLM(target, draft, threads=1, n_ctx=200) as lm:
        for prompt in ([263, 5, 6], [5, 6, 7]):
            plain = lm.generate(prompt, max_tokens=20, drafter="none")
            drafted = lm.generate(prompt, max_tokens=20, drafter="model")
            assert drafted.tokens == plain.tokens
            assert (drafted.stats.drafted > 0) == (263 not in prompt)
        hot = SamplingParams(temperature=5.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
        plain = lm.generate([5, 6], max_tokens=150, drafter="none", sampling=hot)
        assert any(token >= 260 for token in plain.tokens)
        assert lm.generate([5, 6], max_tokens=150, drafter="model", sampling=hot).tokens == plain.tokens


def test_a_cleared_engine_gives_a_text_of_rejection_again(tiny_llama: Path, tiny_draft: Path) -> None:
    sampling = SamplingParams(temperature=1.0, seed=1)
    with SpeculativeLM(tiny_llama, tiny_draft, threads=1) as lm:
        first = lm.generate("hello there", max_tokens=40, sampling=sampling, rule="rejection", drafter="model")
        lm.generate("hello, but something else", max_tokens=40, drafter="model")
        lm.clear()
        draft_context = lm._loaded.draft.context
        assert draft_context is not None
        assert draft_context.tokens == []
        again = lm.generate("hello there", max_tokens=40, sampling=sampling, rule="rejection", drafter="model")
    assert again.tokens == first.tokens
