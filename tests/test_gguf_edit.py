"""GGUF files are written with a subset of another's blocks, and all else byte for byte."""

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from lcspec.errors import ModelError
from lcspec.gguf_edit import Gguf, Provenance, keep_layers, read_gguf, target_digest, values, write_gguf
from lcspec.layer_search import SwitchedBlocks
from lcspec.llama import Context, Model, read_header

TOKENS = list(b"any text will do to compare logits")
ARCHITECTURES = ("llama", "gemma2", "mamba")
LAYERS = 6


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: tiny.write_model(folder / f"{name}.gguf", name, layers=LAYERS) for name in ARCHITECTURES}


def rewritten(model: Path, to: Path, kept: Sequence[int]) -> Path:
    with to.open("wb") as file:
        write_gguf(file, keep_layers(read_gguf(read_header(model)), kept))
    return to


def logits(path: Path) -> np.ndarray:
    with Model(path, repack=False) as model, Context(model, 64, threads=1) as context:
        return context.prefill(TOKENS).copy()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_blocks_kept_give_the_logits_of_the_model_bit_for_bit(
    models: dict[str, Path], tmp_path: Path, architecture: str
) -> None:
    copy = rewritten(models[architecture], tmp_path / "copy.gguf", range(LAYERS))
    assert np.array_equal(logits(copy), logits(models[architecture]))


@pytest.mark.parametrize(
    ("architecture", "kept"),
    [
        ("llama", [0]),
        ("llama", [5]),
        ("llama", [0, 2, 3, 5]),
        ("llama", [1, 2, 3, 4]),
        ("gemma2", [0, 1, 4, 5]),
        ("gemma2", [0, 3]),
        ("gemma2", [2, 3, 4, 5]),
        ("mamba", [0, 2, 5]),
    ],
)
def test_a_file_without_blocks_is_the_model_with_these_blocks_switched_off(
    models: dict[str, Path], tmp_path: Path, architecture: str, kept: list[int]
) -> None:
    path = rewritten(models[architecture], tmp_path / "cut.gguf", kept)
    with SwitchedBlocks(read_header(models[architecture]), 64, 1, tmp_path) as blocks:
        blocks.skip(set(range(LAYERS)) - set(kept))
        switched = blocks.context.prefill(TOKENS).copy()
    assert np.array_equal(logits(path), switched)
    assert not np.array_equal(switched, logits(models[architecture]))


def test_what_is_written_reads_with_the_gguf_package(models: dict[str, Path], tmp_path: Path) -> None:
    before, after = (
        gguf.GGUFReader(path)
        for path in (models["llama"], rewritten(models["llama"], tmp_path / "cut.gguf", [0, 2, 5]))
    )
    fields = {name: field.contents() for name, field in before.fields.items() if not name.startswith("GGUF.")}
    assert {name: field.contents() for name, field in after.fields.items() if not name.startswith("GGUF.")} == {
        **fields,
        "llama.block_count": 3,
    }
    old, new = ({tensor.name: tensor for tensor in reader.tensors} for reader in (before, after))
    numbers = {"blk.0.": "blk.0.", "blk.1.": "blk.2.", "blk.2.": "blk.5."}
    assert len(new) == len(old) - 3 * sum(name.startswith("blk.0.") for name in old)
    for name, tensor in new.items():
        was = old[numbers.get(name[:6], name[:6]) + name[6:]]
        assert (tensor.tensor_type, tensor.shape.tolist()) == (was.tensor_type, was.shape.tolist())
        assert tensor.data.tobytes() == was.data.tobytes()
        assert tensor.data_offset % 32 == 0


def test_lists_with_an_element_for_each_block_are_cut_likewise(tmp_path: Path) -> None:
    path = tiny.write_model(tmp_path / "listed.gguf", layers=4, by_layer=True)
    model = read_gguf(read_header(path)).with_metadata({"llama.attention.head_count_kv": values.int32s([2, 2, 1, 2])})
    cut = keep_layers(model, [0, 2])
    assert cut.of_architecture("attention.head_count_kv") == [2, 1]
    assert cut.of_architecture("feed_forward_length") == [tiny.FEED_FORWARD] * 2
    assert isinstance(cut.value("tokenizer.ggml.tokens"), list), "the vocabulary is no such list"
    whole = rewritten(path, tmp_path / "cut.gguf", [0, 2])
    assert np.isfinite(logits(whole)).all()


def test_a_split_model_becomes_one_file(tmp_path: Path) -> None:
    tiny.write_model(tmp_path / "m.gguf", layers=3, tensors_in_a_file=7)
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert len(parts) > 2
    one = rewritten(parts[0], tmp_path / "one.gguf", range(3))
    assert np.array_equal(logits(one), logits(parts[0]))
    assert not [key for key in read_header(one).values if key.startswith(b"split.")]
    assert np.array_equal(
        logits(rewritten(parts[0], tmp_path / "cut.gguf", [1])), logits(rewritten(one, tmp_path / "cut2.gguf", [1]))
    )


# what can't be cut


@pytest.mark.parametrize("kept", [[], [0, 0], [2, 1], [-1], [0, 6]])
def test_blocks_that_are_not_there_are_refused(models: dict[str, Path], kept: list[int]) -> None:
    with pytest.raises(ModelError, match="has the blocks 0 to 5; name some of them, each once and in order"):
        keep_layers(read_gguf(read_header(models["llama"])), kept)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("expert_count", values.uint32(8), "mixtures of experts"),
        ("nextn_predict_layers", values.uint32(1), "predict further tokens"),
        ("attention.shared_kv_layers", values.uint32(2), "keys and values of others"),
        ("attention.sliding_window", values.uint32(16), "which of them have a sliding window is not in the file"),
    ],
)
def test_what_depends_on_the_number_of_a_block_is_refused(
    models: dict[str, Path], key: str, value: bytes, reason: str
) -> None:
    model = read_gguf(read_header(models["llama"])).with_metadata({f"llama.{key}": value})
    with pytest.raises(ModelError, match=reason):
        keep_layers(model, [0, 1])
    keep_layers(model, range(LAYERS))


def test_blocks_keep_their_sliding_windows(models: dict[str, Path]) -> None:
    model = read_gguf(read_header(models["gemma2"]))
    with pytest.raises(ModelError, match="every 2th has no sliding window"):
        keep_layers(model, [0, 2])
    stated = model.with_metadata({"gemma2.attention.sliding_window_pattern": values.int32s([1, 0, 1, 0, 1, 0])})
    assert keep_layers(stated, [0, 2]).of_architecture("attention.sliding_window_pattern") == [1, 1]
    with pytest.raises(ModelError, match="every 3th"):
        keep_layers(model.with_metadata({"gemma2.attention.sliding_window_pattern": values.uint32(3)}), [0, 2])


def test_a_model_with_other_blocks_is_refused(models: dict[str, Path]) -> None:
    model = read_gguf(read_header(models["llama"]))
    tensors = {name: tensor for name, tensor in model.tensors.items() if not name.startswith("blk.4.")}
    with pytest.raises(ModelError, match=r"they are not blk\.0 to blk\.5"):
        keep_layers(Gguf(model.metadata, tensors, model.path), [0, 1])


# values


@given(
    st.one_of(
        st.binary(max_size=40).map(lambda text: (values.string, text)),
        st.integers(0, (1 << 32) - 1).map(lambda number: (values.uint32, number)),
        st.integers(0, (1 << 64) - 1).map(lambda number: (values.uint64, number)),
        st.floats(width=32, allow_nan=False).map(lambda number: (values.float32, number)),
        st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=9).map(lambda numbers: (values.int32s, numbers)),
        st.lists(st.floats(width=32, allow_nan=False), max_size=9).map(lambda numbers: (values.float32s, numbers)),
        st.lists(st.binary(max_size=9), max_size=9).map(lambda texts: (values.strings, texts)),
    )
)
def test_values_are_what_they_were(case: tuple) -> None:
    encode, value = case
    if encode is values.string:
        assert values.string(value) == len(value).to_bytes(8, "little") + value
    else:
        assert values.decode(encode(value)) == value


def test_a_text_that_is_no_utf8_stays_what_it_is(tmp_path: Path, models: dict[str, Path]) -> None:
    odd = b"\x08\0\0\0" + values.string(b"\xff\xfe")
    empty = values.int32s([])
    model = read_gguf(read_header(models["llama"])).with_metadata({"general.odd": odd, "general.empty": empty})
    path = tmp_path / "odd.gguf"
    with path.open("wb") as file:
        write_gguf(file, model)
    again = read_gguf(read_header(path))
    assert (again.value("general.odd"), again.value("general.empty")) == (b"\xff\xfe", [])


# provenance


def test_a_file_says_what_it_was_made_of(models: dict[str, Path], tmp_path: Path) -> None:
    provenance = Provenance(
        "digest", "name", layers=(0, 3), quant="Q2_K", vocabulary=9, seed=5, text="t", agreement=0.5, options={"a": [1]}
    )
    path = tmp_path / "made.gguf"
    with path.open("wb") as file:
        write_gguf(file, read_gguf(read_header(models["llama"])).with_metadata(provenance.as_metadata()))
    assert Provenance.of(read_header(path)) == provenance
    assert Provenance.of_texts(provenance.as_texts()) == provenance
    assert provenance.kind == "layers+vocab+quant"


def test_another_file_or_a_later_version_says_nothing(models: dict[str, Path]) -> None:
    assert Provenance.of(read_header(models["llama"])) is None
    texts = Provenance("digest", "name").as_texts()
    assert Provenance.of_texts(texts) is not None
    for changed in ({"lcspec.draft.version": "2"}, {"lcspec.draft.layers": "{"}, {"lcspec.draft.options": "[1"}):
        assert Provenance.of_texts({**texts, **changed}) is None


def test_a_target_is_named_by_its_weights_too(tmp_path: Path, models: dict[str, Path]) -> None:
    other = tiny.write_model(tmp_path / "other.gguf", layers=LAYERS, seed=1)
    first, second = read_header(models["llama"]), read_header(other)
    assert first.digest == second.digest
    assert target_digest(first) != target_digest(second)
