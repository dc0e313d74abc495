"""Models and contexts on tiny GGUFs."""

import copy
import gc
import logging
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import pytest
import tiny

from lcspec import ClosedError, EvaluationError, ModelError, PromptError
from lcspec.llama import MAX_WIDTH, Context, Model, State, usable_physical_cores

PACKAGE = Path(__file__).parents[1] / "lcspec"
TOKENS = list(b"once upon a time there was a fox, and once more")


@pytest.fixture
def model(tiny_llama: Path) -> Iterator[Model]:
    with Model(tiny_llama) as model:
        yield model


@pytest.fixture
def context(model: Model) -> Context:
    return Context(model, 256)


def test_only_the_llama_package_imports_llama_cpp() -> None:
    importers = {path for path in PACKAGE.rglob("*.py") if "import llama_cpp" in path.read_text()}
    assert importers
    assert {path.parent.name for path in importers} == {"llama"}


# models


def test_a_model_knows_its_file(model: Model, tiny_llama: Path) -> None:
    assert model.architecture == "llama"
    assert model.metadata["llama.block_count"] == "2"
    assert model.n_vocab == tiny.N_VOCAB
    assert model.n_ctx_train == tiny.CONTEXT
    assert 0 < model.size < tiny_llama.stat().st_size
    assert model.n_params > 2 * tiny.WIDTH * tiny.N_VOCAB
    assert model.chat_template == tiny.TEMPLATE
    assert "Q8_0" in model.description


def test_a_model_knows_its_vocabulary(model: Model) -> None:
    assert (model.bos, model.eos, model.eot) == (tiny.BOS, tiny.EOS, tiny.END_OF_TURN)
    assert not model.adds_bos
    assert [token for token in range(model.n_vocab) if model.is_eog(token)] == [tiny.EOS, tiny.END_OF_TURN]
    assert [token for token in range(model.n_vocab) if model.is_padding(token)] == [259, 260, 261, 262, 263]
    assert model.token_text(tiny.EOS) == "<eos>"


def test_special_tokens_are_read_only_when_asked(model: Model) -> None:
    assert model.tokenize("a<end>b") == [97, tiny.END_OF_TURN, 98]
    assert model.tokenize("a<end>b", parse_special=False) == list(b"a<end>b")


def test_tokens_become_the_bytes_that_they_came_from(model: Model) -> None:
    text = "naïve 東京 👩‍👩‍👧 e\u0301\n"
    assert model.detokenize(model.tokenize(text)) == text.encode()
    assert model.piece(255) == b"\xff"
    assert model.piece(tiny.EOS) == b""


def test_unpaired_surrogates_do_not_break_tokenizing(model: Model) -> None:
    assert model.tokenize("a\ud800b") == list(b"a?b")


@pytest.mark.parametrize("token", [-1, tiny.N_VOCAB, 2**40])
def test_tokens_outside_the_vocabulary_are_refused(model: Model, token: int) -> None:
    with pytest.raises(PromptError, match=str(token)):
        model.piece(token)


def test_a_model_can_be_closed_twice_and_not_used_afterwards(tiny_llama: Path) -> None:
    model = Model(tiny_llama)
    context = Context(model, 64)
    model.close()
    model.close()
    for use in (lambda: model.tokenize("a"), lambda: model.piece(3), lambda: context.evaluate([1]), context.clear):
        with pytest.raises(ClosedError, match="closed"):
            use()
    context.close()


def test_bad_files_are_refused_with_a_reason(tiny_llama: Path, tmp_path: Path) -> None:
    whole = tiny_llama.read_bytes()
    cases = {
        "missing.gguf": (None, "No such file"),
        "text.gguf": (b"GGML?", "not a GGUF file"),
        "empty.gguf": (b"", "not a GGUF file"),
        "header.gguf": (whole[:12], "cut short"),
        "metadata.gguf": (whole[:2000], "cut short"),
        "weights.gguf": (whole[:-5000], "incomplete"),
        "semantics.gguf": (whole.replace(b"output_norm", b"output_form"), "can't be loaded: .*output_norm"),
    }
    for name, (content, reason) in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError, match=reason) as error:
            Model(path)
        assert name in str(error.value)
    with pytest.raises(ModelError, match="folder"):
        Model(tmp_path)


def test_llama_cpp_is_silent_and_heard_in_logging(tiny_llama: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="lcspec.llama.cpp"):
        Model(tiny_llama).close()
    assert any("general.architecture" in record.getMessage() for record in caplog.records)
    script = f"from lcspec.llama import *; Context(Model({str(tiny_llama)!r}), 64)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


# contexts


def test_evaluation_gives_a_row_of_logits_for_each_token(model: Model, context: Context) -> None:
    rows = context.evaluate(TOKENS[:5])
    assert rows.shape == (5, model.n_vocab)
    assert rows.dtype == np.float32
    together = rows.copy()
    context.clear()
    one_by_one = np.stack([context.evaluate([token])[0].copy() for token in TOKENS[:5]])
    assert np.array_equal(together, one_by_one)


def test_logits_are_a_read_only_view_of_llama_cpps_buffer(context: Context) -> None:
    rows = context.evaluate(TOKENS[:3])
    assert not rows.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1
    before = rows.copy()
    context.evaluate(TOKENS[3:6])
    assert not np.array_equal(rows, before)


def test_prefill_gives_the_logits_behind_the_last_token(context: Context) -> None:
    last = context.prefill(TOKENS).copy()
    context.clear()
    assert np.array_equal(last, context.evaluate(TOKENS)[-1])
    assert context.n_tokens == len(TOKENS)


def test_prefill_goes_in_batches(model: Model) -> None:
    context = Context(model, 1200)
    tokens = (TOKENS * 30)[:1100]
    assert context.prefill(tokens).shape == (model.n_vocab,)
    assert context.n_tokens == 1100
    assert context.tokens == tokens


class InterruptedAt(list[int]):
    """Tokens at which Ctrl-C is pressed, when a batch that begins at `position` is taken."""

    position = 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.start == self.position:
            signal.raise_signal(signal.SIGINT)
        return super().__getitem__(index)


@pytest.mark.parametrize("position", [0, 512])
def test_ctrl_c_ends_a_prefill_within_its_batch(model: Model, position: int) -> None:
    context = Context(model, 1200)
    tokens = InterruptedAt((TOKENS * 30)[:1100])
    tokens.position = position
    with pytest.raises(KeyboardInterrupt):
        context.prefill(tokens)
    assert context.n_tokens == len(context.tokens) == position
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert context.keep_prefix(tokens) == position
    tokens.position = -1
    rest = context.prefill(list(tokens)[position:]).copy()
    context.clear()
    assert np.array_equal(context.prefill(list(tokens)), rest)


def test_truncation_forgets_what_was_behind(context: Context) -> None:
    context.prefill(TOKENS[:10])
    expected = context.evaluate(TOKENS[10:20]).copy()
    context.truncate(10)
    context.evaluate([1, 2, 3, 4])
    context.truncate(10)
    assert context.n_tokens == len(context.tokens) == 10
    assert np.array_equal(context.evaluate(TOKENS[10:20]), expected)


def test_truncation_to_more_than_there_is_keeps_all(context: Context) -> None:
    context.prefill(TOKENS[:10])
    context.truncate(99)
    assert context.tokens == TOKENS[:10]


def test_a_saved_state_can_be_restored_in_another_context(model: Model, context: Context) -> None:
    context.prefill(TOKENS[:20])
    state = context.save()
    expected = context.evaluate([7]).copy()
    other = Context(model, 64)
    other.prefill([9, 9, 9])
    other.restore(state)
    assert other.tokens == TOKENS[:20]
    assert other.n_tokens == 20
    assert np.array_equal(other.evaluate([7]), expected)


def test_a_state_of_another_model_is_refused(context: Context, tiny_sliding: Path) -> None:
    context.prefill(TOKENS[:20])
    with Model(tiny_sliding) as other_model:
        other = Context(other_model, 64)
        with pytest.raises(EvaluationError, match="does not fit"):
            other.restore(context.save())
        assert other.n_tokens == 0


def test_a_common_prefix_is_kept_but_never_the_last_token(context: Context) -> None:
    context.prefill(TOKENS[:20])
    assert context.keep_prefix([*TOKENS[:10], 1, 2]) == 10
    assert context.n_tokens == 10
    assert context.keep_prefix(TOKENS[:10]) == 9
    assert context.keep_prefix([5, 5]) == 0


def test_what_cannot_be_evaluated_is_refused(context: Context) -> None:
    with pytest.raises(EvaluationError, match="no tokens"):
        context.evaluate([])
    with pytest.raises(EvaluationError, match=f"{MAX_WIDTH} is the most"):
        context.evaluate([1] * (MAX_WIDTH + 1))
    with pytest.raises(EvaluationError, match="do not fit a context of 256"):
        context.prefill([1] * 257)
    with pytest.raises(EvaluationError, match="invalid token"):
        context.evaluate([tiny.N_VOCAB])
    assert context.evaluate([1]).shape == (1, tiny.N_VOCAB)


def test_a_failed_evaluation_leaves_the_cache_as_it_was(context: Context) -> None:
    context.prefill(TOKENS[:10])
    expected = context.evaluate([7]).copy()
    context.truncate(10)
    with pytest.raises(EvaluationError):
        context.evaluate([1, 2, tiny.N_VOCAB])
    context.truncate(10)
    assert np.array_equal(context.evaluate([7]), expected)


def test_contexts_know_whether_they_can_be_truncated(
    context: Context, tiny_sliding: Path, tiny_recurrent: Path
) -> None:
    assert context.can_truncate
    assert Context(Model(tiny_sliding), 64).can_truncate
    recurrent = Context(Model(tiny_recurrent), 64)
    assert not recurrent.can_truncate
    assert recurrent.n_tokens == 0
    recurrent.prefill(TOKENS[:5])
    recurrent.truncate(5)
    with pytest.raises(EvaluationError, match="mamba"):
        recurrent.truncate(4)


def test_a_recurrent_context_starts_anew_where_a_prefix_would_have_to_be_cut(tiny_recurrent: Path) -> None:
    context = Context(Model(tiny_recurrent), 64)
    context.prefill(TOKENS[:5])
    assert context.keep_prefix(TOKENS[:9]) == 5
    assert context.keep_prefix([*TOKENS[:3], 1, 2]) == 0
    assert context.n_tokens == 0


def test_sliding_windows_are_truncated_without_loss(tiny_sliding: Path) -> None:
    """The window is 16 tokens; a truncation by 40 needs cells that a small cache would have dropped."""
    context = Context(Model(tiny_sliding), 256)
    context.prefill(TOKENS[:20])
    expected = context.evaluate([7]).copy()
    context.truncate(20)
    context.evaluate(TOKENS[:40])
    context.truncate(20)
    assert np.array_equal(context.evaluate([7]), expected)


def test_threads_default_to_the_usable_cores(model: Model) -> None:
    assert Context(model, 64).threads == usable_physical_cores()
    assert Context(model, 64, threads=1).threads == 1


def interrupted(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return `call` with Ctrl-C pressed just as it returns."""

    def calling(*arguments: Any) -> None:
        call(*arguments)
        raise KeyboardInterrupt

    return calling


@pytest.mark.parametrize("what", ["truncate", "clear", "keep_prefix"])
def test_an_interrupt_leaves_no_tokens_that_the_cache_lacks(
    model: Model, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    context = Context(model, 256)
    context.prefill(TOKENS)
    for name in ("llama_memory_seq_rm", "llama_memory_clear"):
        monkeypatch.setattr(llama_cpp, name, interrupted(getattr(llama_cpp, name)))
    uses = {
        "truncate": lambda: context.truncate(5),
        "clear": context.clear,
        "keep_prefix": lambda: context.keep_prefix([*TOKENS[:9], 1, 2]),
    }
    with pytest.raises(KeyboardInterrupt):
        uses[what]()
    assert len(context.tokens) == context.n_tokens < len(TOKENS)


def test_models_and_contexts_are_not_copied(model: Model, context: Context) -> None:
    for owner in (model, context):
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="can't be copied"):
                duplicate(owner)


def test_a_handler_that_does_not_raise_is_left_alone(model: Model) -> None:
    context = Context(model, 1200)
    tokens = InterruptedAt((TOKENS * 30)[:1100])
    tokens.position = 512
    seen: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        context.prefill(tokens)
    finally:
        signal.signal(signal.SIGINT, previous)
    assert seen == [signal.SIGINT]
    assert context.n_tokens == 1100


def test_wrong_states_and_lengths_are_refused(model: Model, context: Context) -> None:
    context.prefill(TOKENS[:20])
    state = context.save()
    with pytest.raises(EvaluationError, match="damaged or too long"):
        context.restore(State(state.tokens[:5], state.cells))
    assert context.n_tokens == len(context.tokens) == 0
    with pytest.raises(EvaluationError):
        Context(model, 16).restore(state)
    with pytest.raises(ValueError, match="-1"):
        context.truncate(-1)
    with pytest.raises(ModelError, match="too small"):
        Context(model, 1)


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_what_is_dropped_is_freed_the_context_before_its_model(
    tiny_llama: Path, monkeypatch: pytest.MonkeyPatch, in_a_cycle: bool
) -> None:
    freed = []
    for name in ("llama_free", "llama_model_free"):
        free = getattr(llama_cpp, name)
        monkeypatch.setattr(llama_cpp, name, lambda handle, name=name, free=free: (freed.append(name), free(handle)))
    context = Context(Model(tiny_llama), 256)
    context.prefill(TOKENS)
    if in_a_cycle:
        context.itself = context  # type: ignore[attr-defined]
    del context
    gc.collect()
    assert freed == ["llama_free", "llama_model_free"]


@pytest.mark.real
def test_digits_are_tokens_of_their_own(smollm2: Path) -> None:
    with Model(smollm2, vocabulary_only=True) as model:
        assert [model.piece(token) for token in model.digits] == [b"%d" % i for i in range(10)]


def test_a_vocabulary_without_digits_has_none(tiny_llama: Path) -> None:
    with Model(tiny_llama) as model:
        assert len(model.digits) in (0, 10)
        assert all(model.piece(token) == b"%d" % i for i, token in enumerate(model.digits))
