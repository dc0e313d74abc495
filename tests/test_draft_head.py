"""A draft head as it runs: what it foresees, whom it fits, and that texts stay the target's."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from chi_square import p_value
from click.testing import CliRunner
from heads import PROMPTS, Trained, train_head
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from lcspec import GREEDY, LcspecError, ModelError, PromptError, SamplingParams, SpeculativeLM
from lcspec.cli import main
from lcspec.draft_head import Head, HeadReader, TargetRows, read_head, write_head
from lcspec.draft_head.followers import Followers
from lcspec.draft_training.acceptance import acceptance
from lcspec.draft_training.copying import copying_weights
from lcspec.draft_training.texts import Text
from lcspec.drafters import HeadDrafter
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.llama import memory_need, read_header
from lcspec.rules import RejectionRule, RuleName
from lcspec.sampling import Distribution
from lcspec.verify import rejection

ALARM, BLATANT = 1e-6, 1e-9
SIZE = 6
TEXTS = 6_000
UNCUT = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

SAMPLINGS: list[tuple[SamplingParams, RuleName | None]] = [
    (GREEDY, None),
    (SamplingParams(temperature=0.7, seed=3), "coupled"),
    (SamplingParams(temperature=1.0, seed=4, repeat_penalty=1.2), "coupled"),
    (SamplingParams(temperature=0.0, repeat_penalty=1.1), None),
]


@pytest.fixture(scope="module")
def trained(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_head(tiny_llama, tmp_path_factory.mktemp("head"))


@pytest.fixture(scope="module")
def engines(tiny_llama: Path, trained: Trained) -> Iterator[list[SpeculativeLM]]:
    made = [SpeculativeLM(tiny_llama, trained.path, threads=1, exact=exact) for exact in (False, True)]
    yield made
    for engine in made:
        engine.close()


# what it foresees


def test_numpy_foresees_what_pytorch_does(trained: Trained, tiny_llama: Path) -> None:
    text = max(trained.data.training, key=lambda text: len(text.hidden))
    tokens = text.tokens[text.n_prompt :].tolist()
    batch = trained.data.batch([text])
    reader = HeadReader(trained.head, TargetRows(read_header(tiny_llama)))
    with torch.no_grad():
        memory = trained.network.remember(batch.states, batch.embedded[:, :-1])
        expected, states = [], batch.states
        for depth in (1, 2, 3):
            n = len(text.hidden) - depth
            states = trained.network(states[:, :n], batch.embedded[:, depth : depth + n], memory, depth)
            expected.append(states[0].numpy())
    at = 0
    for width in (1, 2, 1, 3, 1, 1, 4):  # as many at once as come with a pass
        reader.follow(text.hidden[at : at + width].astype(np.float32), tokens[at : at + width])
        at += width
        state = reader.start()
        for depth in (1, 2, 3):
            state = reader.step(state, tokens[at + depth - 1])
            np.testing.assert_allclose(state, expected[depth - 1][at - 1], atol=1e-4, rtol=1e-4)
            ids, logits = reader.logits(state)
            rows = trained.data.output.numpy()[np.argsort(trained.data.ids)[ids]]
            np.testing.assert_allclose(logits, rows @ state, atol=1e-4, rtol=1e-4)


def test_a_file_has_what_was_written(trained: Trained, tiny_llama: Path) -> None:
    header = read_header(tiny_llama)
    found, provenance = read_head(trained.path, tiny.WIDTH, header.n_vocab)
    assert provenance.kind == "head"
    np.testing.assert_array_equal(found.ids, trained.head.ids)
    for name in ("input", "keys", "output", "preview"):
        np.testing.assert_allclose(getattr(found, name), getattr(trained.head, name), rtol=2e-3, atol=1e-4)


def test_a_long_text_is_followed_to_its_end(trained: Trained, tiny_llama: Path) -> None:
    reader = HeadReader(trained.head, TargetRows(read_header(tiny_llama)))
    for _ in range(3000):
        reader.follow(np.zeros((1, tiny.WIDTH), dtype=np.float32), [7])
    assert np.isfinite(reader.step(reader.start(), 7)).all()


# texts


@pytest.mark.parametrize("drafter", ["head", "auto"])
@pytest.mark.parametrize(("sampling", "rule"), SAMPLINGS)
def test_texts_are_those_of_plain_decoding(
    engines: list[SpeculativeLM], sampling: SamplingParams, rule: RuleName | None, drafter: str
) -> None:
    for lm in engines:
        for prompt in PROMPTS[:4]:
            lm.clear()
            plain = lm.generate(prompt, max_tokens=50, sampling=sampling, rule=rule, drafter="none", logprobs=1)
            lm.clear()
            found = lm.generate(prompt, max_tokens=50, sampling=sampling, rule=rule, drafter=drafter, logprobs=1)
            assert found.tokens == plain.tokens
            if lm.exact:
                assert found.stats.exact is True
                assert found.logprobs == plain.logprobs


def test_what_it_drafts_is_accepted(engines: list[SpeculativeLM]) -> None:
    accepted = 0
    for prompt in PROMPTS:
        shares = engines[0].generate(prompt, max_tokens=60, drafter="head").stats.drafters
        accepted += shares["head"].accepted if "head" in shares else 0
    assert accepted > 20


def test_texts_by_rejection_end_as_they_should(engines: list[SpeculativeLM]) -> None:
    sampling = SamplingParams(temperature=0.8, seed=5)
    texts = [
        engines[0].generate(PROMPTS[0], max_tokens=40, sampling=sampling, rule="rejection", drafter="head").tokens
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_a_head_whose_tokens_are_all_forbidden_drafts_nothing(tiny_llama: Path, trained: Trained) -> None:
    header = read_header(tiny_llama)
    few = replace(trained.head, ids=trained.head.ids[:3], preview=trained.head.preview[:3])
    reader = HeadReader(few, TargetRows(header))
    drafter = HeadDrafter(reader, lambda: np.ones((1, tiny.WIDTH), np.float32), header.n_vocab, lambda _: False, 4)
    rule = RejectionRule(replace(UNCUT, logit_bias=dict.fromkeys(few.ids.tolist(), -np.inf)), 0)
    drafter.begin([1, 2], rule.propose)
    drafter.commit([3])
    assert drafter.propose(4).tokens == ()


def test_auto_says_what_it_makes_of_a_head(engines: list[SpeculativeLM]) -> None:
    plan = engines[0].generate(PROMPTS[0], max_tokens=40).stats.plan
    assert plan is not None
    assert any("draft head" in reason for reason in plan.reasons)
    assert plan.draft_token_cost is not None


def test_what_a_head_says_that_it_costs_is_believed_at_first(
    tiny_llama: Path, trained: Trained, tmp_path: Path
) -> None:
    target = target_digest(read_header(tiny_llama))
    for options, is_believed in (({"cost": 0.57}, True), ({}, False), ({"cost": "much"}, False)):
        provenance = Provenance(target, "tiny", vocabulary=len(trained.head.ids), options={"head": True, **options})
        path = write_head(tmp_path / "a.safetensors", trained.head, provenance)
        with SpeculativeLM(tiny_llama, path, threads=1, measure=False) as lm:
            plan = lm.generate(PROMPTS[0], max_tokens=3).stats.plan
            assert plan is not None
            assert "head" not in plan.passes
            assert (plan.draft_token_cost == 0.57) == is_believed


# what it copies


def test_followers_are_counted_behind_one_token_and_two() -> None:
    followers = Followers()
    followers.append([1, 2, 3, 1, 2])
    followers.append([3, 9, 2, 4])
    tokens, counts = followers.after(1, 2)
    assert dict(zip(tokens, counts.tolist(), strict=True)) == {3: [2, 2], 4: [1, 0]}
    tokens, counts = followers.after(-1, 9)
    assert (tokens, counts.tolist()) == ([2], [[1, 0]])
    assert followers.after(2, 8) == ([], pytest.approx(np.empty((0, 2))))
    followers.clear()
    followers.append([4, 3])
    assert followers.after(1, 2)[0] == [], "nothing is left of another sequence"


@given(st.lists(st.integers(0, 3), max_size=300))
def test_those_that_are_told_are_the_most_frequent(tokens: list[int]) -> None:
    followers = Followers()
    followers.append([token for pair in [(0, other) for other in range(10, 100)] for token in pair])
    followers.append([token for other in tokens for token in (0, 10 + other)])
    told, counts = followers.after(-1, 0)
    assert len(told) == 64
    assert {10 + token for token in tokens} <= set(told)
    assert counts[:, 0].sum() >= 64


def test_what_came_before_is_drafted_as_much_as_texts_say(tiny_llama: Path, trained: Trained) -> None:
    random = np.random.default_rng(3)
    line = random.integers(5, 60, 12).tolist()
    texts = []
    for number in range(4):
        tokens = np.array([1, *(line * 4), *random.integers(5, 60, 9), *line], dtype=np.int32)
        nothing = random.normal(0, 1, (len(tokens) - 2, tiny.WIDTH)).astype(np.float16)
        texts.append(Text(number, number, 1, True, tokens, nothing))
    rows = TargetRows(read_header(tiny_llama))
    weights = copying_weights(HeadReader(trained.head, rows), texts)
    assert weights[0] < 0.5
    assert weights[1:].max() > 1
    copying = HeadReader(replace(trained.head, copying=weights), rows)
    assert acceptance(copying, texts)[0][0] > 0.6
    assert acceptance(HeadReader(trained.head, rows), texts)[0][0] < 0.3
    assert copying_weights(HeadReader(trained.head, rows), texts[:0]).tolist() == [1, 0, 0]


# rejection


class Rows:
    """A target's matrices that are made up."""

    n_vocab = SIZE

    def __init__(self, n_embd: int) -> None:
        random = np.random.default_rng(8)
        self.matrix = random.normal(0, 1, (SIZE, n_embd)).astype(np.float32)

    def embedding(self, token: int) -> np.ndarray:
        return self.matrix[token]

    output_row = embedding

    def output(self, tokens: Sequence[int]) -> np.ndarray:
        return self.matrix[tokens]


def random_head(n_embd: int = 8, hidden: int = 8, parts: int = 2, size: int = 2) -> Head:
    random = np.random.default_rng(9)
    a = parts * size
    shapes = {
        "input": (2 * hidden + a + n_embd, 2 * n_embd),
        "input_bias": (2 * hidden,),
        "keys": (a, 2 * n_embd),
        "values": (a, n_embd),
        "fading": (parts,),
        "nothing": (parts,),
        "recall": (hidden, a),
        "output": (n_embd, hidden),
        "output_bias": (n_embd,),
        "preview": (SIZE - 1, 4),
        "projection": (4, n_embd),
        "copying": (3,),
    }
    weights = {name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
    return Head(ids=np.arange(SIZE - 1, dtype=np.int32), **weights)  # all tokens but one


CHAIN = np.random.default_rng(4).dirichlet(np.full(SIZE, 2.0), size=SIZE)
TARGET = [Distribution(np.arange(SIZE), np.log(row)) for row in CHAIN]


def rejection_texts(honest: bool = True, n: int = TEXTS) -> np.ndarray:
    """Return the second and the third token of texts that a head drafts and the rejection rule verifies."""
    rows = Rows(8)
    states = np.random.default_rng(7).normal(0, 1, (SIZE, 8)).astype(np.float32)
    passed: list[int] = []
    reader = HeadReader(random_head(), rows)  # type: ignore[arg-type]
    drafter = HeadDrafter(reader, lambda: states[passed], SIZE, lambda _: False, 3)
    found = []
    for seed in range(n):
        rule = RejectionRule(UNCUT, seed)
        passed[:] = [0]
        text = [0, 1]
        drafter.begin(text[:1], rule.propose)
        drafter.commit(text[1:])
        while len(text) < 4:
            draft = drafter.propose(3)
            proposals = [one for one in draft.distributions if one is not None]
            assert len(proposals) == len(draft.tokens)
            if not honest:
                proposals = [Distribution(one.tokens[::-1], one.log_probs) for one in proposals]
            passed[:] = [text[-1], *draft.tokens]
            targets = (TARGET[token] for token in passed)
            verdict = rejection(targets, draft.tokens, proposals, seed, len(text))
            emitted = [*draft.tokens[: verdict.accepted], verdict.token]
            drafter.commit(emitted)
            text += emitted
        found.append(text[2:4])
    return np.array(found)


def worst(found: np.ndarray) -> float:
    first = CHAIN[1]
    alone = p_value(np.bincount(found[:, 0], minlength=SIZE), len(found) * first)
    pairs = np.bincount(found[:, 0] * SIZE + found[:, 1], minlength=SIZE**2)
    return min(alone, p_value(pairs, len(found) * first[:, None] * CHAIN))


def test_rejection_writes_the_targets_text_where_a_head_drafts() -> None:
    """With other seeds it would fail by chance twice in a million."""
    assert worst(rejection_texts()) > ALARM


def test_a_head_that_drew_from_something_else_is_seen() -> None:
    assert worst(rejection_texts(honest=False)) < BLATANT


# what does not fit


def test_a_head_of_another_model_is_refused(trained: Trained, tmp_path: Path) -> None:
    other = tiny.write_model(tmp_path / "other.gguf", seed=7)
    with pytest.raises(ModelError, match="a draft head of another model"):
        SpeculativeLM(other, trained.path)


def test_a_head_of_other_dimensions_is_refused(trained: Trained, smollm2: Path) -> None:
    with pytest.raises(ModelError, match="a draft head of another model"):
        SpeculativeLM(smollm2, trained.path)


def test_damaged_heads_are_refused_in_one_line(trained: Trained, tiny_llama: Path, tmp_path: Path) -> None:
    whole = trained.path.read_bytes()
    path = tmp_path / "damaged.safetensors"
    for content in (b"", whole[:7], whole[: len(whole) // 2], b"\xff" * 64, whole[8:], b"GGUF" + whole[4:]):
        path.write_bytes(content)
        with pytest.raises(LcspecError) as caught:
            SpeculativeLM(tiny_llama, path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_heads_whose_tensors_are_wrong_are_refused(trained: Trained, tiny_llama: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    with safe_open(trained.path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(trained.path)
    path = tmp_path / "wrong.safetensors"
    wrong = {
        "has no keys": {name: values for name, values in tensors.items() if name != "keys"},
        "the shape of keys": tensors | {"keys": tensors["keys"][:, 1:].copy()},
        "no numbers": tensors | {"recall": np.full_like(tensors["recall"], np.nan)},
        "of another model": tensors | {"ids": tensors["ids"] + tiny.N_VOCAB},
    }
    for message, changed in wrong.items():
        save_file(changed, path, metadata=metadata)
        with pytest.raises(ModelError, match=message):
            SpeculativeLM(tiny_llama, path)
    for message, facts in {"is no draft head": {}, "version": metadata | {"lcspec.head.format": "9"}}.items():
        save_file(tensors, path, metadata=facts)
        with pytest.raises(ModelError, match=message):
            SpeculativeLM(tiny_llama, path)


def test_a_missing_head_and_a_folder_are_refused(tiny_llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder.safetensors"
    folder.mkdir()
    for path in (folder, tmp_path / "missing.safetensors"):
        with pytest.raises(ModelError, match="can't be read"):
            SpeculativeLM(tiny_llama, path)


def test_a_head_counts_in_the_memory_that_is_needed(
    tiny_llama: Path, trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = HeadReader(trained.head, TargetRows(read_header(tiny_llama)))
    assert trained.head.memory > reader.size
    free = memory_need(read_header(tiny_llama), 256).total + trained.head.memory // 2
    monkeypatch.setattr("lcspec.llama.memory.free_memory", lambda: free)
    SpeculativeLM(tiny_llama, n_ctx=256, threads=1).close()
    with pytest.raises(ModelError, match="of memory are needed"):
        SpeculativeLM(tiny_llama, trained.path, n_ctx=256, threads=1)


def test_the_drafter_head_needs_a_head(tiny_llama: Path, tiny_draft: Path) -> None:
    with pytest.raises(PromptError, match="needs a draft head"):
        SpeculativeLM(tiny_llama, drafter="head")
    with SpeculativeLM(tiny_llama, tiny_draft) as lm, pytest.raises(PromptError, match="needs a draft head"):
        lm.generate([1, 2], drafter="head")


def test_the_command_line_drafts_with_a_head(tiny_llama: Path, trained: Trained) -> None:
    options = ["generate", "-m", str(tiny_llama), "-d", str(trained.path), "--drafter", "head", "-t", "1", "-n", "30"]
    result = CliRunner().invoke(main, [*options, "--raw", "--stats", "hello"])
    assert result.exit_code == 0
    assert "head" in result.stderr
