"""Training a draft head: texts, their files, and going on where it was stopped."""

import importlib.util
import itertools
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from drafts import write_cut
from heads import PROMPTS, new_training, quickly, texts_of

from lcspec import SpeculativeLM
from lcspec.cli import main
from lcspec.draft_head import TargetRows
from lcspec.draft_making import name_of_target
from lcspec.draft_training.dataset import Dataset, frequent_tokens
from lcspec.draft_training.export import preview_of
from lcspec.draft_training.prompts import read_prompts
from lcspec.draft_training.questions import frame_of, questions
from lcspec.draft_training.texts import Text, TextFiles
from lcspec.draft_training.training import Training
from lcspec.draft_training.writer import collect, write_texts
from lcspec.errors import FileError
from lcspec.hub import check_draft_name
from lcspec.llama import Model, SharedContext, read_header
from lcspec.prompts import Prompts

EPOCHS = 4


@pytest.fixture(scope="module")
def texts(tiny_llama: Path) -> list[Text]:
    return texts_of(tiny_llama, n=12)


@pytest.fixture
def data(texts: list[Text], tiny_llama: Path) -> Dataset:
    rows = TargetRows(read_header(tiny_llama))
    return Dataset(texts, rows, rows.n_vocab)


def same(a: Text, b: Text) -> bool:
    facts = [(text.number, text.prompt, text.n_prompt, text.is_greedy) for text in (a, b)]
    return facts[0] == facts[1] and np.array_equal(a.tokens, b.tokens) and np.array_equal(a.hidden, b.hidden)


# texts


def test_a_text_has_a_hidden_state_for_each_token_but_the_last(texts: list[Text]) -> None:
    for text in texts:
        assert len(text.hidden) == len(text.tokens) - text.n_prompt - 1
        assert text.tokens[: text.n_prompt].tolist() == PROMPTS[text.prompt]
    assert {text.is_greedy for text in texts} == {True, False}


def test_texts_that_are_written_at_once_are_those_that_are_written_alone(texts: list[Text], tiny_llama: Path) -> None:
    greedy = [text for text in texts if text.is_greedy]
    assert len(greedy) > 1
    with SpeculativeLM(tiny_llama, threads=1, drafter="none") as lm:
        for text in greedy:
            prompt, written = text.tokens[: text.n_prompt].tolist(), text.tokens[text.n_prompt :].tolist()
            found = lm.generate(prompt, max_tokens=len(written)).tokens
            assert list(found) == [token for token in written if not lm.target.is_eog(token)]


def test_files_give_the_texts_back(texts: list[Text], tmp_path: Path) -> None:
    files = TextFiles(tmp_path)
    for text in texts:
        files.add(text)
    files.flush()
    again = list(TextFiles(tmp_path).read())
    assert len(again) == len(texts)
    assert all(map(same, texts, again))


def test_a_damaged_file_is_left_out_and_removed(texts: list[Text], tmp_path: Path) -> None:
    for part in (texts[:3], texts[3:6]):
        files = TextFiles(tmp_path)
        for text in part:
            files.add(text)
        files.flush()
    first, second = TextFiles(tmp_path).paths()
    first.write_bytes(first.read_bytes()[:-200])
    assert TextFiles(tmp_path).numbers() == {text.number for text in texts[3:6]}
    assert TextFiles(tmp_path).paths() == [second]


def test_writing_goes_on_where_it_was_stopped(tiny_llama: Path, tmp_path: Path) -> None:
    def some(folder: Path, n_tokens: int, stop: Callable[[int], None] = lambda _: None) -> int:
        files = TextFiles(folder)
        with SharedContext(model, 4 * 300, 4, threads=1, apart=True, hidden=True) as context:
            return collect(files, write_texts(context, PROMPTS, 0, files.numbers()), n_tokens, 1e9, stop)

    def stop(n: int) -> None:
        if n > 500:
            raise KeyboardInterrupt

    with Model(tiny_llama) as model:
        with pytest.raises(KeyboardInterrupt):
            some(tmp_path / "a", 1500, stop)
        kept = list(TextFiles(tmp_path / "a").read())
        assert sum(len(text.hidden) for text in kept) > 500
        assert some(tmp_path / "a", 1500) >= 1500
        some(tmp_path / "b", 1500)
    found = {text.number: text for text in TextFiles(tmp_path / "a").read()}
    assert len(found) == len(list(TextFiles(tmp_path / "a").read()))  # none twice
    uninterrupted = {text.number: text for text in TextFiles(tmp_path / "b").read()}
    common = found.keys() & uninterrupted.keys()
    assert len(common) > len(found) / 2
    assert all(np.array_equal(found[number].tokens, uninterrupted[number].tokens) for number in common)


def test_files_stay_within_their_size(texts: list[Text], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.draft_training.texts._ENOUGH", 1)
    collect(TextFiles(tmp_path), itertools.cycle(texts), 10**9, 60_000)
    assert 60_000 <= TextFiles(tmp_path).size() < 150_000


# training


def test_training_and_validation_have_no_prompt_in_common(data: Dataset) -> None:
    assert data.validation
    assert not {text.prompt for text in data.validation} & {text.prompt for text in data.training}


def test_tokens_are_ranked_by_how_often_they_were_written(texts: list[Text]) -> None:
    written = np.concatenate([text.tokens[text.n_prompt :] for text in texts])
    ids = frequent_tokens(texts, 264, 10)
    counts = np.bincount(written, minlength=264)
    assert counts[ids].min() >= np.delete(counts, ids).max()


def test_a_training_that_was_killed_ends_as_if_it_had_not(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickly(monkeypatch, EPOCHS)
    whole = new_training(data, minutes=1000)
    whole.run(lambda _: None, tmp_path / "whole.pt")

    def kill(training: Training) -> None:
        if len(training.scores) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_training(data, minutes=1000).run(kill, tmp_path / "killed.pt")
    again = new_training(data, minutes=1000, seed=0)
    assert again.restore(tmp_path / "killed.pt")
    again.run(lambda _: None, tmp_path / "killed.pt")
    assert [score.epoch for score in again.scores] == [1, 2, 3, 4]
    assert again.scores == whole.scores
    for name, weights in whole.network.state_dict().items():
        assert torch.equal(weights, again.network.state_dict()[name]), name


def test_a_training_that_goes_on_with_more_texts_judges_itself_anew(
    data: Dataset, texts: list[Text], tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickly(monkeypatch, 1)
    rows = TargetRows(read_header(tiny_llama))
    first = new_training(Dataset(texts[:6], rows, rows.n_vocab), minutes=1000)
    first.run(lambda _: None, tmp_path / "checkpoint.pt")
    again = new_training(data, minutes=1000)
    assert again.restore(tmp_path / "checkpoint.pt")
    assert again.scores == []
    assert torch.equal(again.network.keys.weight, first.network.keys.weight)


def test_a_damaged_checkpoint_is_not_gone_on_with(data: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    training = new_training(data, minutes=1)
    assert not training.restore(path)
    training.save(path)
    path.write_bytes(path.read_bytes()[:-500])
    assert not training.restore(path)


def test_a_preview_finds_the_largest_logits() -> None:
    random = np.random.default_rng(3)
    mixing = random.normal(0, 1, (200, 200)) * np.linspace(1, 0, 200) ** 2
    states = (random.normal(0, 1, (500, 200)) @ mixing.T).astype(np.float32)
    rows = random.normal(0, 1, (2000, 200)).astype(np.float32)
    preview, projection = preview_of(rows, states.T @ states / len(states))
    logits, about = states @ rows.T, states @ projection.T @ preview.T
    best = np.argpartition(about, -128, axis=1)[:, -128:]
    assert (best == logits.argmax(axis=1)[:, None]).any(axis=1).mean() > 0.97


# prompts


def test_prompts_are_read_from_json_lines_and_texts(tmp_path: Path) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('{"turns": ["What is tea?", "And coffee?"]}\n"A plain prompt"\n\n{"prompt": "Tell a joke."}\n')
    assert read_prompts(lines) == ["What is tea?", "A plain prompt", "Tell a joke."]
    text = tmp_path / "prompts.txt"
    text.write_text("What is\ntea?\n\n\nTell me a joke.\n")
    assert read_prompts(text) == ["What is tea?", "Tell me a joke."]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"{not json}\n", "line 1"),
        ("a.jsonl", b'{"prompt": "Tell a joke."}\n{"other": 1}\n', "line 2"),
        ("a.txt", b"", "no prompt"),
        ("a.txt", b"\xff\xfe\x00", "UTF-8"),
    ],
)
def test_files_without_prompts_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(FileError, match=message):
        read_prompts(path)


def test_missing_files_of_prompts_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(FileError, match="can't be read"):
            read_prompts(path)


# what a target asks itself


def test_a_target_asks_itself_in_its_chat_template(tiny_llama: Path) -> None:
    with Model(tiny_llama) as model:
        frame = frame_of(model)
        with closing(Prompts(model, 512)) as prompts:
            chat = prompts.chat([{"role": "user", "content": "hello"}])
        n_behind = len(frame.behind)
        assert frame.before == chat[: len(frame.before)]
        assert frame.behind == chat[len(chat) - n_behind :]
        assert model.detokenize(chat[len(frame.before) : len(chat) - n_behind]).decode().strip() == "hello"
        found = dict(itertools.islice(questions(model, 0, {1, 3}, 400, 1), 30))
        assert not {1, 3} & found.keys()
        assert len({tuple(tokens) for tokens in found.values()}) == len(found)
        for tokens in found.values():
            assert tokens[: len(frame.before)] == frame.before
            assert tokens[len(tokens) - n_behind :] == frame.behind
            assert not any(model.is_eog(token) for token in tokens[len(frame.before) : len(tokens) - n_behind])
        again = dict(itertools.islice(questions(model, 0, set(), 400, 1), 30))
        assert all(again[number] == found[number] for number in range(16) if number in found)
        other = dict(itertools.islice(questions(model, 1, set(), 400, 1), 30))
        assert [other[number] for number in found if number in other] != list(found.values())


def test_without_a_chat_template_texts_are_begun(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(tiny_llama) as model:
        monkeypatch.setattr(type(model), "chat_template", None)
        frame = frame_of(model)
        assert (frame.behind, len(frame.before)) == ([], 1)
        for _, tokens in itertools.islice(questions(model, 0, set(), 400, 1), 20):
            assert 1 < len(tokens) < 60


@pytest.mark.real
def test_a_real_model_asks_sensible_questions(smollm2: Path) -> None:
    with Model(smollm2) as model:
        found = [tokens for _, tokens in itertools.islice(questions(model, 0, set(), 400, 2), 16)]
        frame = frame_of(model)
        texts = [model.detokenize(tokens[len(frame.before) : -len(frame.behind)]).decode() for tokens in found]
    assert all(text.isprintable() or "\n" in text for text in texts)
    assert sum(text.strip()[-1:] in tuple("?.!:\"'") for text in texts) >= 8, texts


# the command


def test_the_command_trains_a_head_that_drafts(
    tiny_llama: Path, hub_cache: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quickly(monkeypatch, EPOCHS)
    options = ["draft", "train", str(tiny_llama), "--tokens", "1000", "-t", "1", "-o", "small"]
    trained = CliRunner().invoke(main, options)
    assert trained.exit_code == 0, trained.output
    path = own_cache / "drafts" / "small.safetensors"
    assert trained.stdout.strip() == str(path)
    assert "rounds" in trained.stderr
    assert not list((own_cache / "training").glob("*/texts*"))
    generate = ["generate", "-m", str(tiny_llama), "-d", "small", "--drafter", "head", "--raw", "-n", "20", "hello"]
    found = CliRunner().invoke(main, generate)
    assert found.exit_code == 0, found.output
    plain = CliRunner().invoke(main, [*generate[:3], "--drafter", "none", *generate[7:]])
    assert found.stdout == plain.stdout


def test_the_command_tells_at_once_what_can_not_be_trained(
    tiny_llama: Path, tiny_recurrent: Path, hub_cache: Path, own_cache: Path, tmp_path: Path
) -> None:
    (own_cache / "drafts").mkdir(parents=True)
    (own_cache / "drafts" / "llama-head.safetensors").touch()
    cut = write_cut(tiny_llama, tmp_path / "cut.gguf", range(260))
    for arguments, message in (
        ([tiny_llama], "llama-head.safetensors is there already, and something else: --force replaces it"),
        ([tiny_llama, "-o", "auto"], "a draft can't be called 'auto'"),
        ([tiny_llama, "-o", ""], "a draft can't be called ''"),
        ([tiny_recurrent], "nothing can be drafted for a mamba model"),
        ([cut], "has a cut vocabulary: it can only draft for another model"),
    ):
        result = CliRunner().invoke(main, ["draft", "train", *map(str, arguments)])
        assert result.exit_code == 1
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (own_cache / "training").exists()


def test_prompts_that_are_all_too_long_are_refused(tiny_llama: Path, hub_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("a hen and a fox " * 60)
    arguments = ["draft", "train", str(tiny_llama), "--prompts", str(tmp_path / "long.txt"), "-t", "1", "-q"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stderr) == (1, "Error: no prompt is short enough\n")


def test_a_quiet_training_says_nothing(tiny_llama: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch, EPOCHS)
    result = CliRunner().invoke(main, ["draft", "train", str(tiny_llama), "--tokens", "1000", "-t", "1", "-q"])
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b"),
        ("/models/a.b.gguf", "a.b"),
        ("hf:owner/repository:Q4_K_M", "repository-Q4-K-M"),
        ("hf:owner/repository/file.Q4_1.gguf", "file.Q4-1"),
        ("/models/...", "model"),
    ],
)
def test_drafts_are_called_by_their_target(target: str, name: str) -> None:
    assert name_of_target(target) == name
    check_draft_name(f"{name}-head")


def test_without_pytorch_the_command_says_what_to_install(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))
    result = CliRunner().invoke(main, ["draft", "train", str(tiny_llama)])
    assert result.exit_code == 1
    assert "pip install 'lcspec[train]'" in result.output
    assert len(result.output.strip().splitlines()) == 1
