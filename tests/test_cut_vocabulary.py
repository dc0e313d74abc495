"""A draft whose output has fewer tokens: what it says of these is the same, and nothing comes of the others."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from click.testing import CliRunner, Result
from drafts import write_cut
from prompts import questions

import bench.vocabulary
from bench.recordings import Recording
from lcspec import GREEDY, SamplingParams, SpeculativeLM
from lcspec.cli import main
from lcspec.draft_making import make_draft
from lcspec.errors import ModelError, PairError
from lcspec.gguf_edit import Provenance, cut_vocabulary, frequent_tokens, read_gguf, target_digest, values, write_gguf
from lcspec.hub import check_pair
from lcspec.llama import CUT, Context, CutVocabulary, Model, read_header
from lcspec.rules import RuleName

N_CTX = 256
TEXT = list(b"what is put in can be any token, Q and {} too")
SPECIAL = [tiny.EOS, tiny.BOS, tiny.END_OF_TURN]
SOME = [*range(97, 123), *SPECIAL]
ALL = list(range(tiny.N_VOCAB))
PROMPT = "what is written may need any token: Q, {} and more"
SAMPLINGS: list[tuple[SamplingParams, RuleName | None]] = [
    (GREEDY, None),
    (SamplingParams(temperature=0.9, seed=3), None),
    (SamplingParams(temperature=1.3, top_k=0, top_p=0.9, repeat_penalty=1.2, seed=4), "coupled"),
    (SamplingParams(temperature=0.9, logit_bias={70: 4.0, 100: -2.0}, seed=5), "coupled"),
]


@pytest.fixture(params=["llama", "gemma2"], ids=["an output matrix", "tied matrices"])
def target(request: pytest.FixtureRequest, tiny_llama: Path, tiny_sliding: Path) -> Path:
    return tiny_llama if request.param == "llama" else tiny_sliding


@pytest.fixture
def cut(tiny_llama: Path, tmp_path: Path) -> Path:
    return write_cut(tiny_llama, tmp_path / "cut.gguf", SOME)


def rows(path: Path) -> np.ndarray:
    """Return logits behind a prompt, and behind some more tokens together."""
    with Model(path) as model, Context(model, N_CTX, threads=1) as context:
        first = context.prefill(TEXT).copy()
        return np.concatenate([first[None, :], context.evaluate(TEXT[:3])])


def test_all_tokens_give_the_same_logits(target: Path, tmp_path: Path) -> None:
    assert np.array_equal(rows(write_cut(target, tmp_path / "cut.gguf", ALL)), rows(target))


def test_the_kept_tokens_have_the_same_logits_and_the_others_none(target: Path, tmp_path: Path) -> None:
    whole, cut = rows(target), rows(write_cut(target, tmp_path / "cut.gguf", SOME))
    assert cut.shape == whole.shape
    assert np.array_equal(cut[:, SOME], whole[:, SOME])
    others = np.setdiff1d(ALL, SOME)
    assert (cut[:, others] == -np.inf).all()


def test_a_narrow_pass_behind_a_wide_one_has_no_old_logits(tiny_llama: Path, cut: Path) -> None:
    with Model(cut) as model, Context(model, N_CTX, threads=1) as context:
        wide = context.evaluate(TEXT[:5]).copy()
        context.clear()
        assert np.array_equal(context.evaluate(TEXT[:2]), wide[:2])
        with pytest.raises(ValueError, match="read-only"):
            context.evaluate([5])[0, 0] = 1.0


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0"])
def test_embeddings_are_the_rows_of_the_input_matrix(tiny_llama: Path, tmp_path: Path, kind: str) -> None:
    quantization = gguf.GGMLQuantizationType[kind]
    values_ = np.random.default_rng(1).normal(0, 0.1, (tiny.N_VOCAB, tiny.WIDTH)).astype(np.float32)
    data = gguf.quants.quantize(values_, quantization)
    whole = read_gguf(read_header(tiny_llama))
    matrix = replace(whole.tensors["token_embd.weight"], kind=int(quantization), data=memoryview(data).cast("B"))
    path = tmp_path / "cut.gguf"
    with path.open("wb") as file:
        write_gguf(file, cut_vocabulary(replace(whole, tensors={**whole.tensors, "token_embd.weight": matrix}), SOME))
    cut = CutVocabulary.of(read_header(path))
    assert cut is not None
    tokens = [0, tiny.N_VOCAB - 1, 5, 5]
    assert np.allclose(cut.embeddings(tokens), gguf.quants.dequantize(data, quantization)[tokens], atol=1e-6)


def test_the_file_is_a_whole_one_of_fewer_tokens(cut: Path) -> None:
    reader = gguf.GGUFReader(cut)
    assert len(reader.tensors) == len(read_header(cut).tensors)
    assert reader.fields["tokenizer.ggml.tokens"].data == list(reader.fields["tokenizer.ggml.tokens"].data)
    with Model(cut) as model:
        assert (model.n_vocab, model.cut is not None and model.cut.n_tokens) == (len(SOME), tiny.N_VOCAB)
        assert [model.token_text(own) for own in range(26)] == [chr(token) for token in SOME[:26]]
        assert (model.eos, model.bos, model.eot) == (26, 27, 28)
        assert model.is_eog(26)


def test_tokens_are_found_in_both_directions(cut: Path) -> None:
    found = CutVocabulary(read_header(cut))
    assert [found.own(token) for token in SOME] == list(range(len(SOME)))
    assert [found.own(token) for token in (0, 96, 123, 255, 263, 9999)] == [None] * 6
    with Model(cut) as model, Context(model, N_CTX, threads=1) as context:
        assert [context.is_eog(token) for token in (tiny.EOS, tiny.BOS, 97, 26, 0)] == [
            True,
            False,
            False,
            False,
            False,
        ]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("shares", [True, False], ids=["shared cells", "its own cells"])
def test_the_text_is_the_same_in_every_rule(
    tiny_llama: Path, cut: Path, exact: bool, shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shares:
        monkeypatch.setattr("lcspec.drafters.SharedPrompt.between", lambda *_: None)
    with SpeculativeLM(tiny_llama, cut, n_ctx=N_CTX, threads=1, exact=exact) as lm:
        assert (lm._loaded.draft.shared is not None) == shares
        accepted = 0
        for sampling, rule in SAMPLINGS:
            lm.clear()
            plain = lm.generate(PROMPT, max_tokens=60, sampling=sampling, drafter="none", logprobs=1)
            for drafter in ("model", "auto"):
                lm.clear()
                found = lm.generate(
                    PROMPT,
                    max_tokens=60,
                    sampling=sampling,
                    rule=rule,
                    drafter=drafter,  # type: ignore[arg-type]
                    logprobs=1,
                )
                assert found.tokens == plain.tokens
                assert not exact or (found.logprobs == plain.logprobs and found.stats.exact)
                accepted += found.stats.accepted
        assert accepted > 0
        lm.clear()
        rejected = lm.generate(PROMPT, max_tokens=60, sampling=SAMPLINGS[1][0], rule="rejection", drafter="model")
        assert rejected.stats.drafted > 0


def test_a_draft_proposes_only_what_it_kept(tiny_llama: Path, cut: Path) -> None:
    with SpeculativeLM(tiny_llama, cut, n_ctx=N_CTX, threads=1) as lm:
        drafter = lm._loaded.drafters["model"]
        proposed = {
            token
            for start in range(0, 250, 10)
            for token in _proposed(drafter, [*TEXT, start, start + 5])  # any token can come before
        }
    assert proposed <= set(SOME)
    assert len(proposed) > 5


def _proposed(drafter: object, prompt: list[int]) -> tuple[int, ...]:
    drafter.begin(prompt, lambda logits, history: (int(logits.argmax()), None))  # type: ignore[attr-defined]
    return drafter.propose(3).tokens  # type: ignore[attr-defined, no-any-return]


# what is kept


def test_special_tokens_and_bytes_are_always_kept(tiny_llama: Path) -> None:
    header = read_header(tiny_llama)
    kept = frequent_tokens(header, 259)
    assert set(kept) == {*range(256), *SPECIAL}
    with pytest.raises(ModelError, match="of which 259 are always kept; it can't be cut to 258"):
        frequent_tokens(header, 258)
    with pytest.raises(ModelError, match="has 264 tokens"):
        frequent_tokens(header, 265)
    assert frequent_tokens(header, 264) == ALL


@pytest.mark.real
def test_what_texts_have_most_is_kept_before_the_tokenizers_first_tokens(smollm2: Path) -> None:
    header = read_header(smollm2)
    with Model(header, vocabulary_only=True) as model:
        rare = max(model.tokenize(" photosynthesis"))
        eogs = [token for token in range(model.n_vocab) if model.is_eog(token)]
    plain, by_text = frequent_tokens(header, 2000), frequent_tokens(header, 2000, [" photosynthesis" * 3])
    assert (rare in plain, rare in by_text) == (False, True)
    assert set(eogs) <= set(plain)
    assert plain == sorted(plain)
    assert frequent_tokens(header, 2000, [" photosynthesis" * 3]) == by_text


# what is refused


def test_another_architecture_is_refused(tiny_recurrent: Path) -> None:
    with pytest.raises(ModelError, match="is a mamba model; a vocabulary can be cut of gemma2, llama, qwen2, qwen3"):
        cut_vocabulary(read_gguf(read_header(tiny_recurrent)), SOME)


def test_a_cut_file_is_not_cut_again(cut: Path) -> None:
    with pytest.raises(ModelError, match="is cut already"):
        cut_vocabulary(read_gguf(read_header(cut)), range(5))


def test_a_named_token_has_to_stay(tiny_llama: Path) -> None:
    with pytest.raises(ModelError, match=r"without the token 257, its tokenizer\.ggml\.bos_token_id"):
        cut_vocabulary(read_gguf(read_header(tiny_llama)), [5, 6, tiny.EOS, tiny.END_OF_TURN])


def test_a_cut_model_is_no_target(tiny_llama: Path, cut: Path) -> None:
    with pytest.raises(ModelError, match="has a cut vocabulary: it can only draft"):
        SpeculativeLM(cut, n_ctx=N_CTX)


def test_its_tokens_have_to_be_the_targets(tiny_llama: Path, cut: Path, tmp_path: Path) -> None:
    with Model(cut) as draft:
        with Model(tiny_llama) as target:
            check_pair(target, draft)
            with pytest.raises(PairError, match="the target's vocabulary is cut"):
                check_pair(draft, target)
        other = Model(tiny.write_model(tmp_path / "other.gguf", changed_token=99))
        with other, pytest.raises(PairError, match="token 99 is 'c', the target's is 'changed'"):
            check_pair(other, draft)
        with Model(tiny.write_model(tmp_path / "unlike.gguf", changed_token=5)) as target:
            check_pair(target, draft)  # a token that it does not have
        begin = Model(tiny.write_model(tmp_path / "begin.gguf", bos=tiny.EOS))
        with begin, pytest.raises(PairError, match="bos is 257, the target's is 256"):
            check_pair(begin, draft)


def _without_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _without_matrix(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: -tiny.N_VOCAB * tiny.WIDTH])


def _with_another_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def _with_metadata(key: str, value: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        cut = read_gguf(read_header(path))
        tail = path.read_bytes()[-CutVocabulary(read_header(path))._rows.nbytes :]
        with path.with_name("new").open("wb") as file:
            write_gguf(file, replace(cut.with_metadata({CUT + key: value}), tail=tail))
        path.with_name("new").replace(path)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_without_last_byte, "is not the one that it was made with"),
        (_without_matrix, "lacks the input matrix"),
        (_with_another_byte, "is not the one that it was made with"),
        (_with_metadata("sha256", values.text("0")), "is not the one that it was made with"),
        (_with_metadata("sha256", values.uint32(7)), "is not the one that it was made with"),
        (_with_metadata("rows", values.uint32(0)), "rows is 0"),
        (_with_metadata("rows", values.text("many")), "rows is 'many'"),
        (_with_metadata("rows", values.uint32(1 << 31)), "lacks the input matrix"),
        (_with_metadata("type", values.uint32(4)), "of type 4, which llama.cpp lacks"),
        (_with_metadata("type", values.uint32(1 << 30)), "which llama.cpp lacks"),
        (_with_metadata("tokens", values.int32s(SOME[:-1])), "does not say what its 29 tokens are"),
        (_with_metadata("tokens", values.text("none")), "does not say what its 29 tokens are"),
        (_with_metadata("tokens", values.int32s([*SOME[:-1], 10_000])), "out of order"),
        (_with_metadata("tokens", values.int32s([-1, *SOME[1:]])), "out of order"),
        (_with_metadata("tokens", values.int32s(SOME[::-1])), "out of order"),
    ],
)
def test_a_damaged_file_is_refused_in_a_line(
    tiny_llama: Path, cut: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(cut)
    with pytest.raises(ModelError, match=message) as refused:
        SpeculativeLM(tiny_llama, cut, n_ctx=N_CTX)
    assert "\n" not in str(refused.value)


# with the others


def test_blocks_bits_and_tokens_are_cut_together(
    tiny_llama: Path, own_cache: Path, hub_cache: Path, tmp_path: Path
) -> None:
    header = read_header(tiny_llama)
    provenance = Provenance(target_digest(header), "tiny", layers=(1,), quant="Q4_0", vocabulary=260)
    tokens = frequent_tokens(header, 260)
    made = make_draft(header, provenance, "small", threads=1, edits=[lambda whole: cut_vocabulary(whole, tokens)])
    found = read_header(made.path)
    assert Provenance.of(found) == provenance
    assert {file.name for file in made.path.parent.iterdir() if file.suffix == ".gguf"} == {made.path.name}
    with SpeculativeLM(tiny_llama, made.path, n_ctx=N_CTX, threads=1) as lm:
        assert lm._loaded.draft.shared is not None
        plain = lm.generate(PROMPT, max_tokens=40, drafter="none")
        assert lm.generate(PROMPT, max_tokens=40, drafter="model").tokens == plain.tokens


@pytest.mark.real
def test_smollm2_of_a_third_of_its_tokens_drafts_its_text(smollm2: Path, tmp_path: Path) -> None:
    draft = write_cut(smollm2, tmp_path / "cut.gguf", frequent_tokens(read_header(smollm2), 16_384))
    with SpeculativeLM(smollm2, draft, n_ctx=1024, exact=True, measure=False) as lm:
        for question in questions(2):
            prompt = lm.chat_prompt([{"role": "user", "content": question}])
            plain = lm.generate(prompt, max_tokens=32, drafter="none")
            drafted = lm.generate(prompt, max_tokens=32, drafter="model")
            assert drafted.tokens == plain.tokens
            assert drafted.stats.acceptance_rate > 0.6


@pytest.mark.usefixtures("hub_cache")
def test_the_command_makes_it_and_it_drafts(tiny_llama: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("aaa bbb")
    made = lcspec(
        "draft", "make", str(tiny_llama), "--vocab", "261", "--text", str(text), "--no-measure", "-o", "small"
    )
    assert "lcspec: small is here" in made.stderr
    assert "small" in lcspec("draft", "list").stdout
    options = ["-m", str(tiny_llama), "-n", "20", "-t", "1", "--exact"]
    plain = lcspec("generate", *options, "--drafter", "none", "abc")
    assert lcspec("generate", *options, "--drafter", "model", "-d", "small", "abc").stdout == plain.stdout


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--vocab", "258"], 1, "of which 259 are always kept; it can't be cut to 258"),
        (["--vocab", "99999"], 1, "has 264 tokens"),
        (["--vocab", "0"], 2, "'--vocab': 0 is not in the range"),
        (["--vocab", "some"], 2, "'--vocab': 'some' is not a valid integer"),
        (["--vocab", "260", "--text", "absent.txt"], 1, "absent.txt"),
        (["--vocab", "260", "--budget", "5"], 2, "--budget means nothing without a search"),
    ],
)
def test_the_command_refuses_in_a_line(tiny_llama: Path, options: list[str], status: int, message: str) -> None:
    refused = lcspec("draft", "make", str(tiny_llama), *options, status=status)
    assert message in refused.stderr.splitlines()[-1]


@pytest.mark.usefixtures("hub_cache")
def test_the_command_makes_nothing_of_a_cut_model(cut: Path) -> None:
    refused = lcspec("draft", "make", str(cut), "--layers", "0", status=1)
    assert refused.stderr.splitlines()[-1].endswith(
        "cut.gguf has a cut vocabulary: it can only draft for another model"
    )


def test_what_is_lost_and_saved_is_measured(tiny_llama: Path, tmp_path: Path) -> None:
    """The model's own text is what it says; with all tokens nothing is lost."""
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=N_CTX, threads=1, measure=False) as lm:
        prompt = lm.target.tokenize(PROMPT)
        text = lm.generate(PROMPT, max_tokens=100).tokens
    recording = Recording("tiny", "some", tuple(prompt), tuple(text))
    (tmp_path / "recordings").write_text(json.dumps(asdict(recording)))
    found = CliRunner().invoke(
        bench.vocabulary.main,
        [str(tmp_path / "recordings"), "-d", str(tiny_llama), "--size", "260", "--size", "264", "--repeats", "2"],
    )
    assert found.exit_code == 0, found.output
    right = re.search(rf"some: {len(text)} tokens, right (.+); lost with 260: \+0.0000, 264: \+0.0000", found.output)
    assert right is not None, found.output
    assert float(right[1]) > 0.9, "but for rounding, as the text is evaluated together here"
    assert len(re.findall(r"(?:260|264) tokens: a step of .*% saved", found.output)) == 2


def lcspec(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.stderr
    return result
