"""Final hidden states beside the logits."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from lcspec import ModelError
from lcspec.draft_head import TargetRows
from lcspec.llama import Context, Model, dequantize, read_header

TEXT = [5, 80, 200, 31, 7, 80, 200, 31, 9, 140]
ARCHITECTURES = ["tiny_llama", "tiny_sliding", "tiny_recurrent"]


def evaluations(model: Model, *, hidden: bool, exact: bool = False) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the logits of a prefill and passes of several widths, and the hidden states of the passes."""
    with Context(model, 256, threads=1, batch_invariant=exact, hidden=hidden) as context:
        logits = [context.prefill(TEXT * 3).copy()]
        assert context.hidden is None
        states = []
        for width in (1, 2, 5, 1):
            logits.append(context.evaluate(TEXT[:width]).copy())
            if hidden:
                assert context.hidden is not None
                states.append(context.hidden.copy())
            else:
                assert context.hidden is None
        logits.append(context.prefill(TEXT).copy())
        assert context.hidden is None
    return logits, states


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_are_the_same_bits_with_hidden_states_and_without(
    name: str, exact: bool, request: pytest.FixtureRequest
) -> None:
    with Model(request.getfixturevalue(name)) as model:
        plain, _ = evaluations(model, hidden=False, exact=exact)
        with_states, _ = evaluations(model, hidden=True, exact=exact)
    for a, b in zip(plain, with_states, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_output_matrix_makes_the_logits_of_the_hidden_states(tiny_llama: Path) -> None:
    rows = TargetRows(read_header(tiny_llama))
    with Model(tiny_llama) as model:
        logits, states = evaluations(model, hidden=True)
        assert [len(part) for part in states] == [1, 2, 5, 1]
        assert states[0].shape[1] == model.n_embd == rows.n_embd
    output = rows.output(range(rows.n_vocab))
    for found, state in zip(logits[1:-1], states, strict=True):
        assert np.abs(state @ output.T - found).max() < 0.05 * np.abs(found).max()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_rows_are_read_as_the_gguf_package_reads_them(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    values = np.random.default_rng(5).normal(0, 1, (7, 64)).astype(np.float32)
    rows = np.ascontiguousarray(gguf.quants.quantize(values, kind)).view(np.uint8).reshape(7, -1)
    found = dequantize(rows[::2], kind.value, 64)
    assert found.shape == (4, 64)
    np.testing.assert_allclose(found, values[::2], atol=0.5)
    whole = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    np.testing.assert_allclose(found, whole[::2], atol=1e-6)


@pytest.mark.parametrize("kind", [-1, 4, 10_000])
def test_rows_of_unknown_types_are_refused(kind: int) -> None:
    with pytest.raises(ModelError, match=f"type {kind}"):
        dequantize(np.zeros((1, 34), dtype=np.uint8), kind, 32)


def test_hidden_states_can_not_be_written_to(tiny_llama: Path) -> None:
    with Model(tiny_llama) as model, Context(model, 64, threads=1, hidden=True) as context:
        context.evaluate([1])
        assert context.hidden is not None
        assert not context.hidden.flags.writeable


@pytest.mark.real
def test_smollm2_has_the_same_bits_with_hidden_states(smollm2: Path) -> None:
    with Model(smollm2) as model:
        plain, _ = evaluations(model, hidden=False, exact=True)
        with_states, _ = evaluations(model, hidden=True, exact=True)
    for a, b in zip(plain, with_states, strict=True):
        np.testing.assert_array_equal(a, b)
