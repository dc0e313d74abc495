"""`lcspec draft make`, and what becomes of the drafts: whole files, found by name, with the target's own texts."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import tiny
from click.testing import CliRunner, Result

from lcspec import GREEDY, FileError, ModelError, PromptError, SamplingParams, SpeculativeLM
from lcspec.cli import main
from lcspec.draft_making import make_draft
from lcspec.gguf_edit import Provenance, target_digest
from lcspec.hub import derived_drafts, drafts_folder, find_model
from lcspec.llama import Context, Model, memory_need, read_header
from lcspec.planner import curve_of

LAYERS = 6
LCSPEC = str(Path(sys.executable).with_name("lcspec"))
PATIENCE = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("target") / "little.gguf", layers=LAYERS)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without drafts, in this process and in others."""
    cache = tmp_path_factory.mktemp("user")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr("lcspec.measurements.user_cache_path", lambda _: cache / "lcspec")
    return cache / "lcspec"


def lcspec(*arguments: object, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exit_code == status, result.output
    return result


def make(model: Path, *arguments: object, status: int = 0) -> Result:
    return lcspec("draft", "make", model, "-t", 1, *arguments, status=status)


def logits(path: Path) -> np.ndarray:
    with Model(path, repack=False) as loaded, Context(loaded, 64, threads=1) as context:
        return context.prefill(list(b"some text")).copy()


# making


def test_a_search_is_told_with_its_frontier_and_the_reason_of_the_choice(model: Path) -> None:
    result = make(model, "--budget", 20)
    table, plot, reason, *_ = result.stdout.split("\n\n")
    assert re.match(r"BLOCKS +COST +RIGHT +SPEED +DRAFT +WITHOUT\n5 +0\.\d\d +0\.\d\d +0\.\d\d +\d+ +\d", table)
    assert table.count("chosen") == 1
    assert "share that is right" in plot
    assert re.match(r"With \d of 6 blocks a draft token costs 0\.\d\d of a target pass and is right in \d+% ", reason)
    assert "by what passes cost on this machine" in reason
    (draft,) = derived_drafts(target_digest(read_header(model)))
    assert draft.name.startswith(f"little-{len(draft.provenance.layers)}of6-")
    assert draft.provenance.agreement is not None
    assert re.search(rf"A token of {draft.name} costs \d\.\d\d of a target pass; behind right ones", result.stdout)
    assert re.search(r"It (pays|does not pay) on this machine", result.stdout)
    assert f"{draft.name} is here: 0 MB, {draft.path}" in result.stderr
    assert read_header(draft.path).of_architecture("block_count") == len(draft.provenance.layers)


def test_one_seed_gives_one_draft_and_a_second_search_takes_no_time(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(model, "--layers", 4, "--budget", 30, "--seed", 3, "--no-measure").stdout
    monkeypatch.setattr("lcspec.layer_search.scores.Scorer.__call__", lambda *_: pytest.fail("was scored before"))
    again = make(model, "--layers", 4, "--budget", 30, "--seed", 3, "--no-measure").stdout

    def sets(text: str) -> list[str]:
        return [line.split(" " * 2)[-2] for line in text.split("\n\n")[0].splitlines()]

    assert sets(again) == sets(first)
    assert len(derived_drafts()) == 1


def test_given_blocks_are_kept_without_a_search(model: Path) -> None:
    result = make(model, "--layers", "0-1, 3,5-", "--no-measure")
    (draft,) = derived_drafts()
    assert draft.provenance.layers == (0, 1, 3, 5)
    assert result.stdout == ""


def test_layers_and_quantization_combine(model: Path, tmp_path: Path) -> None:
    make(model, "--layers", "0,2,4", "--quant", "q4_0", "-o", "both", "--no-measure")
    make(model, "--layers", "0,2,4", "-o", "layers", "--no-measure")
    both, layers = (read_header(find_model(name)) for name in ("both", "layers"))
    assert Provenance.of(both) == Provenance(
        target_digest(read_header(model)), str(model), layers=(0, 2, 4), quant="Q4_0", options={}
    )
    assert both.size < layers.size < read_header(model).size
    assert both.metadata["general.file_type"] == 2
    assert np.isfinite(logits(both.files[0])).all()
    assert not np.array_equal(logits(both.files[0]), logits(layers.files[0]))


def test_all_blocks_in_the_type_that_they_have_give_the_same_logits(model: Path) -> None:
    make(model, "--quant", "Q8_0", "--no-measure")
    assert np.array_equal(logits(find_model("little-q8_0")), logits(model))


def test_the_same_draft_is_not_made_twice_and_another_never_takes_its_place_unasked(model: Path) -> None:
    make(model, "--layers", "0-3", "-o", "mine", "--no-measure")
    (draft,) = derived_drafts()
    made = draft.path.stat().st_mtime_ns
    make(model, "--layers", "0-3", "-o", "mine", "--no-measure")
    assert draft.path.stat().st_mtime_ns == made
    refused = make(model, "--layers", "0-4", "-o", "mine", "--no-measure", status=1)
    assert "mine.gguf is there already, and something else: --force replaces it" in refused.stderr
    assert draft.path.stat().st_mtime_ns == made
    make(model, "--layers", "0-4", "-o", "mine", "--no-measure", "--force")
    assert derived_drafts()[0].provenance.layers == (0, 1, 2, 3, 4)


def test_a_text_to_search_by_may_be_of_any_kind(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>" + "words that are read " * 40)
    make(model, "--layers", "5", "--budget", 8, "--text", page, "--no-measure")
    own = derived_drafts()[0].provenance.text
    make(model, "--layers", "5", "--budget", 8, "-o", "builtin", "--no-measure", "--force")
    assert own != derived_drafts()[0].provenance.text != ""


# what is refused


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--layers", "7"], 2, "--layers 7: the model has 6 blocks, of which 1 to 6 can be kept"),
        (["--layers", "0"], 2, "--layers 0: the model has 6 blocks"),
        (["--layers", "2-9"], 2, "'2-9' names no blocks of a model that has the blocks 0 to 5"),
        (["--layers", "4-2"], 2, "'4-2' names no blocks"),
        (["--layers", "many"], 2, "'many' names no blocks"),
        (["--layers", ","], 2, "the list is empty"),
        (["--layers", "6"], 2, "all blocks at all bits are the target itself"),
        (["--layers", "0-5"], 2, "all blocks at all bits are the target itself"),
        (["--quant", "Q9"], 2, "is not one of"),
        (["--budget", "soon"], 2, "'soon' is neither a number of sets nor a time"),
        (["--budget", "0"], 2, "neither a number of sets nor a time"),
        (["--budget", "1.5"], 2, "neither a number of sets nor a time"),
        (["--budget", "1"], 1, "the budget is too small to leave out a single block"),
        (["--quant", "Q4_0", "--budget", "9"], 2, "--budget means nothing without a search for blocks"),
        (["--layers", "0-3", "--seed", "9"], 2, "--seed means nothing without a search for blocks"),
        (["--layers", "0-3", "-o", "../x"], 1, "a draft can't be called '../x'"),
        (["--layers", "0-3", "-o", "auto"], 1, "that is the name of something else"),
        (["--layers", "0-3", "-o", "smollm2-135m"], 1, "that is the name of something else"),
        (["--layers", "5", "--text", "missing.txt"], 1, "missing.txt does not exist"),
    ],
)
def test_what_can_not_be_meant_is_told_in_a_line(model: Path, arguments: list[str], status: int, message: str) -> None:
    result = make(model, *arguments, status=status)
    assert message in result.stderr
    assert result.stdout == ""
    assert derived_drafts() == []


def test_a_name_that_can_not_be_is_told_before_anything_is_searched(model: Path) -> None:
    for name in ("auto", "smollm2-135m", "a/b", ""):
        result = make(model, "--layers", 3, "-o", name, status=1)
        assert re.fullmatch(r"Error: a draft can't be called '.*': .+\n", result.stderr)


def test_a_draft_head_is_no_model(model: Path) -> None:
    drafts_folder().mkdir(parents=True)
    texts = Provenance(target_digest(read_header(model)), "little", options={"head": True}).as_texts()
    content = json.dumps({"__metadata__": texts}).encode()
    (drafts_folder() / "little-head.safetensors").write_bytes(len(content).to_bytes(8, "little") + content)
    for command in (["generate", "-m", "little-head", "x"], ["draft", "make", "little-head", "--quant", "q4_0"]):
        assert "is not a GGUF file, but maybe a draft head, which goes with -d" in lcspec(*command, status=1).stderr


def test_a_target_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("no model")
    assert "is not a GGUF file" in make(tmp_path / "text.gguf", status=1).stderr
    assert "is a folder" in make(tmp_path, status=1).stderr
    assert "can't be read" in make(tmp_path / "none.gguf", status=1).stderr


def test_a_model_whose_cache_can_not_be_truncated_gets_no_draft(tmp_path: Path) -> None:
    path = tiny.write_model(tmp_path / "mamba.gguf", "mamba", layers=3)
    result = make(path, "--layers", "0-1", status=1)
    assert "nothing can be drafted for a mamba model, whose cache can't be truncated" in result.stderr


def test_blocks_with_sliding_windows_are_not_searched_but_can_be_named(tmp_path: Path) -> None:
    path = tiny.write_model(tmp_path / "gemma.gguf", "gemma2", layers=4)
    refused = make(path, status=1)
    assert "can't be cut to these blocks: one of every 2 has no sliding window" in refused.stderr
    make(path, "--layers", "0-1", "--no-measure")
    assert derived_drafts()[0].provenance.layers == (0, 1)


# files that are whole or not there


def test_a_full_disk_leaves_nothing_behind(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("Usage", "free")(1000))
    result = make(model, "--layers", "0-3", "--no-measure", status=1)
    assert re.search(r"a draft of 1 MB can't be written: 0 MB are free on the disk of", result.stderr)
    assert list(drafts_folder().iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_meanwhile_leaves_nothing_behind(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.draft_making.write_gguf", lambda file, gguf: Path("/dev/full").write_bytes(b"x" * 9999))
    result = make(model, "--layers", "0-3", "--no-measure", status=1)
    assert "can't be written: No space left on device" in result.stderr
    assert list(drafts_folder().iterdir()) == []


def test_a_quantizer_that_fails_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    header = read_header(model)
    provenance = Provenance(target_digest(header), "little", quant="NONE")
    with pytest.raises(Exception, match=r"whole\.gguf can't be quantized to NONE"):
        make_draft(header, provenance, "broken", threads=1)
    assert list(drafts_folder().iterdir()) == []


def test_a_process_that_is_killed_while_it_writes_leaves_no_draft_and_the_next_cleans_up(
    model: Path, tmp_path: Path
) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time\n"
        "import lcspec.draft_making as making\n"
        "from lcspec.cli import main\n"
        "write = making.write_gguf\n"
        "def slowly(file, gguf):\n"
        "    write(file, gguf)\n"
        "    file.flush()\n"
        "    print('written', flush=True)\n"
        "    time.sleep(60)\n"
        "making.write_gguf = slowly\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, script, "draft", "make", model, "-t", "1", "--layers", "0-3", "-o", "slow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert derived_drafts() == []
    assert list(drafts_folder().rglob("*.gguf")) != []
    make(model, "--layers", "0-2", "-o", "next", "--no-measure")
    assert [path.name for path in drafts_folder().rglob("*")] == ["next.gguf"]


def test_two_processes_that_make_one_draft_both_have_it(model: Path) -> None:
    command = [LCSPEC, "draft", "make", str(model), "-t", "1", "--layers", "0-3", "-o", "one", "--no-measure"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert b"one is here" in errors
    assert [path.name for path in drafts_folder().rglob("*")] == ["one.gguf"]


def test_ctrl_c_ends_a_search_and_the_next_goes_on_with_it(model: Path, cache: Path) -> None:
    command = [LCSPEC, "draft", "make", str(model), "-t", "1", "--budget", "1h", "--no-measure"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + PATIENCE
        while not list((cache / "measured").glob("layer-search-*")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    (kept,) = (cache / "measured").glob("layer-search-*")
    tried = json.loads(kept.read_text())["result"]
    assert (process.returncode, output) == (130, b"") or len(tried) == 2**LAYERS, "or it had tried all there are"
    assert "going on with" in lcspec_process("draft", "make", model, "-t", 1, "--budget", 10, "--no-measure")
    assert not [path for path in drafts_folder().rglob("*") if path.name.startswith(".")]


def lcspec_process(*arguments: object) -> str:
    done = subprocess.run([LCSPEC, *map(str, arguments)], capture_output=True, timeout=PATIENCE, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


# the same text


SAMPLINGS = [
    (GREEDY, None),
    (SamplingParams(temperature=0.9, seed=3), "coupled"),
    (SamplingParams(temperature=1.3, top_k=0, top_p=0.9, repeat_penalty=1.2, seed=4), "coupled"),
]


@pytest.mark.parametrize("layers", ["0-4", "1,3,5"])
@pytest.mark.parametrize("exact", [False, True])
def test_texts_are_those_of_the_target_alone(model: Path, layers: str, exact: bool) -> None:
    make(model, "--layers", layers, "-o", "cut", "--no-measure")
    with SpeculativeLM(model, "cut", "model", n_ctx=200, threads=1, exact=exact) as lm:
        for sampling, rule in SAMPLINGS:
            for prompt in ("abcabc", "Some text, and more"):
                lm.clear()
                plain = lm.generate(prompt, max_tokens=40, sampling=sampling, rule=rule, drafter="none", logprobs=2)
                lm.clear()
                drafted = lm.generate(prompt, max_tokens=40, sampling=sampling, rule=rule, logprobs=2)
                assert drafted.tokens == plain.tokens
                if exact:
                    assert drafted.logprobs == plain.logprobs
                assert drafted.stats.drafted > 0
        lm.generate("abc", max_tokens=20, sampling=SamplingParams(temperature=1.0, seed=1), rule="rejection")


# drafts that are found


def test_a_draft_is_listed_below_its_target_with_path_and_removal(hub_cache: Path, own_cache: Path) -> None:
    models = own_cache / "models"
    models.mkdir(parents=True)
    tiny.write_model(models / "little.gguf", layers=3)
    make(models / "little.gguf", "--layers", "0-1", "-o", "cut", "--no-measure")
    lines = lcspec("models").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:2]] == [str(models / "little.gguf")]
    assert re.match(r"  cut +0 MB", lines[2])
    (entry,) = (one for one in json.loads(lcspec("models", "--json").stdout) if one["name"] == "cut")
    assert (entry["draft_of"], entry["kind"]) == (str(models / "little.gguf"), "layers")
    path = Path(lcspec("models", "path", "cut").stdout.strip())
    assert path == find_model("cut") == drafts_folder() / "cut.gguf"
    (models / "little.gguf").unlink()
    assert f"cut (layers of {models / 'little.gguf'})" in lcspec("models").stdout
    assert "cut is deleted; 0 MB are free again" in lcspec("models", "rm", "cut").stderr
    assert not path.exists()


def test_removing_a_draft_that_is_none_is_an_error(model: Path) -> None:
    make(model, "--layers", "0-1", "-o", "cut", "--no-measure")
    assert "no draft 'other' was made here" in lcspec("draft", "remove", "cut", "other", status=1).stderr
    assert len(derived_drafts()) == 1
    assert "cut is deleted" in lcspec("draft", "remove", "cut").stderr
    assert derived_drafts() == []


def test_the_list_says_what_was_measured_and_what_was_not(model: Path) -> None:
    assert "there is no draft" in lcspec("draft", "list", model).stderr
    make(model, "--layers", "0-4", "-o", "one", "--no-measure")
    make(model, "--layers", "0-3", "-o", "two", "--no-measure")
    rows = lcspec("draft", "list", model, "-t", 1).stdout.splitlines()
    assert rows[0] == str(model)
    assert rows[1].split() == [
        "DRAFT",
        "KIND",
        "SIZE",
        "COST",
        "RIGHT",
        "HERE",
        "4-CORES",
        "8-CORES",
        "16-CORES",
        "GPU",
    ]
    assert re.match(r"one +layers +0 MB +not measured +not measured +not measured$", rows[2])
    assert "--measure measures what was not" in lcspec("draft", "list", model, "-t", 1).stderr
    found = {one["name"]: one for one in json.loads(lcspec("draft", "list", model, "-t", 1, "--json").stdout)}
    assert found["one"]["cost"] is found["one"]["acceptance"] is found["one"]["pays"] is None
    lcspec("draft", "list", model, "-t", 1, "--measure", "--json")
    found = {one["name"]: one for one in json.loads(lcspec("draft", "list", "-t", 1, "--json").stdout)}
    for one in found.values():
        assert one["target"] == str(model)
        assert 0 < one["cost"] < 3
        assert len(one["acceptance"]) == 4
        assert set(one["speed"]) == {"here", "4-cores", "8-cores", "16-cores", "gpu"}
        assert one["pays"] == (one["speed"]["here"] > 1)
    listed = lcspec("draft", "list", model, "-t", 1)
    assert re.search(r"^one .*(pays|does not pay here)$", listed.stdout, re.MULTILINE)
    assert listed.stderr == ""


def test_smaller_models_and_what_was_made_of_them_are_listed_too(hub_cache: Path, own_cache: Path) -> None:
    models = own_cache / "models"
    models.mkdir(parents=True)
    large = tiny.write_model(models / "large.gguf", layers=LAYERS)
    small = tiny.write_model(models / "small.gguf", layers=2, seed=1)
    tiny.write_model(models / "other.gguf", layers=1, changed_token=5)
    make(small, "--layers", "0-", "--quant", "Q4_0", "-o", "smaller", "--no-measure")
    make(large, "--layers", "0-1", "-o", "cut", "--no-measure")
    found = json.loads(lcspec("draft", "list", large, "-t", 1, "--json").stdout)
    kinds = {Path(one["name"]).stem: one["kind"] for one in found}
    assert kinds == {"cut": "layers", "small": "model", "smaller": "quant of small"}
    lcspec("draft", "list", large, "-t", 1, "--measure")
    assert all(one["cost"] for one in json.loads(lcspec("draft", "list", large, "-t", 1, "--json").stdout))


def test_what_can_not_be_measured_does_not_keep_others_from_it(model: Path) -> None:
    make(model, "--layers", "0-4", "-o", "broken", "--no-measure")
    make(model, "--layers", "0-3", "-o", "sound", "--no-measure")
    path = drafts_folder() / "broken.gguf"
    path.write_bytes(path.read_bytes().replace(b"blk.0.attn_q.weight", b"blk.0.attn_x.weight"))
    result = lcspec("draft", "list", model, "-t", 1, "--measure", "--json")
    assert "broken can't be measured: " in result.stderr
    found = {one["name"]: one["cost"] is not None for one in json.loads(result.stdout)}
    assert found == {"broken": False, "sound": True}


def test_pairs_are_told_with_the_drafts_that_were_made_here(hub_cache: Path, own_cache: Path) -> None:
    models = own_cache / "models"
    models.mkdir(parents=True)
    large = tiny.write_model(models / "large.gguf", layers=LAYERS)
    small = tiny.write_model(models / "small.gguf", layers=2, seed=1)
    other = tiny.write_model(models / "other.gguf", layers=3, changed_token=5)
    make(small, "--layers", "0-0", "-o", "of-small", "--no-measure")
    make(other, "--layers", "0-0", "-o", "of-other", "--no-measure")
    make(large, "--layers", "0-1", "-o", "of-large", "--no-measure")
    fits = {one["name"]: one["fits"] for one in json.loads(lcspec("pair", large, "--json").stdout)}
    assert {name: fits[name] for name in fits if name.startswith("of-")} == {"of-small": True, "of-large": True}
    assert "of-small.gguf (0 MB) can draft for large.gguf" in lcspec("pair", large, "of-small").stdout


def test_a_damaged_draft_is_not_listed(model: Path) -> None:
    make(model, "--layers", "0-4", "-o", "one", "--no-measure")
    path = drafts_folder() / "one.gguf"
    path.write_bytes(path.read_bytes()[:5000])
    (drafts_folder() / "head.safetensors").write_bytes(b"\xff" * 20)
    (drafts_folder() / "empty.gguf").touch()
    assert derived_drafts() == []
    assert "there is no draft" in lcspec("draft", "list").stderr


# -d auto


@pytest.fixture
def two_drafts(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two drafts of which one is better, and the better one could pay."""
    make(model, "--layers", "0-4", "-o", "good")
    make(model, "--layers", "0-1", "-o", "bad")
    return model


def pretend(monkeypatch: pytest.MonkeyPatch, costs: dict[str, float]) -> None:
    """Let a draft token cost what is said, and always be right."""
    from lcspec.draft_figures import Figures, figures_of

    def figures(target: object, draft: object, threads: int) -> Figures:
        name = draft.files[0].stem  # type: ignore[attr-defined]
        return figures_of([0.9], curve_of({1: 1.0, 2: 1.1, 4: 1.3, 16: 2.0}), costs.get(name))

    monkeypatch.setattr("lcspec.draft_figures.figures", figures)


def test_auto_is_the_best_draft_that_was_measured(two_drafts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"good": 0.3, "bad": 0.4})
    with SpeculativeLM(two_drafts, "auto", "model", n_ctx=200, threads=1) as lm:
        assert lm.generate("abc", max_tokens=20).stats.drafted > 0
    arguments = ("generate", "-m", two_drafts, "-t", 1, "-c", 200, "-n", 8, "-d", "auto", "abc")
    assert "lcspec: good drafts: 1." in lcspec(*arguments).stderr
    pretend(monkeypatch, {"bad": 0.3})
    assert "lcspec: bad drafts: 1." in lcspec(*arguments).stderr


def test_auto_takes_what_was_made_of_a_smaller_model_too(
    model: Path, hub_cache: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tiny.write_model(tmp_path / "small.gguf", layers=2, seed=1)
    make(small, "--vocab", 262, "-o", "cut", "--no-measure")
    lcspec("draft", "list", model, "-t", 1, "--measure")
    pretend(monkeypatch, {"cut": 0.3})
    with SpeculativeLM(model, "auto", n_ctx=200, threads=1) as lm:
        assert lm._loaded.draft.context is not None
        assert lm._loaded.draft.context.model.path.stem == "cut"
        assert lm._loaded.draft.shared is None
        assert (
            lm.generate("abc", max_tokens=20, drafter="model").tokens
            == lm.generate("abc", max_tokens=20, drafter="none").tokens
        )


def test_auto_runs_without_a_draft_where_none_pays_and_says_so_in_a_line(
    two_drafts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, {"good": 1.5, "bad": 1.6})
    result = lcspec("generate", "-m", two_drafts, "-t", 1, "-c", 200, "-n", 8, "-d", "auto", "abc")
    (line,) = [line for line in result.stderr.splitlines() if "draft pays" in line]
    assert re.match(r"lcspec: no draft pays here: the best, good, would give 0\.\d\d times plain decoding$", line)
    with pytest.raises(PromptError, match="of those that were measured none pays: name one"):
        SpeculativeLM(two_drafts, "auto", "model", n_ctx=200, threads=1)


def test_auto_runs_without_a_draft_where_there_is_no_memory_for_it(
    two_drafts: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend(monkeypatch, {"good": 0.3})
    header = read_header(two_drafts)
    monkeypatch.setattr("lcspec.llama.memory.free_memory", lambda: memory_need(header, 200).total + 1000)
    with pytest.raises(ModelError, match="without a draft model would fit"):
        SpeculativeLM(two_drafts, "good", n_ctx=200, threads=1)
    with caplog.at_level("INFO"), SpeculativeLM(two_drafts, "auto", n_ctx=200, threads=1) as lm:
        assert "model" not in lm._loaded.drafters
    assert "decoding without a draft: " in caplog.text


def test_auto_leaves_damaged_files_alone(
    two_drafts: Path, hub_cache: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_cache / "models").mkdir(parents=True)
    small = tiny.write_model(own_cache / "models" / "small.gguf", layers=1)
    small.write_bytes(small.read_bytes()[:100] + b"\xff" * 50_000)
    lcspec("generate", "-m", two_drafts, "-t", 1, "-c", 200, "-n", 2, "-d", "auto", "abc")
    lcspec("draft", "list", two_drafts)
    lcspec("pair", two_drafts)


def test_auto_without_anything_measured_says_what_to_do(model: Path) -> None:
    result = lcspec("generate", "-m", model, "-t", 1, "-c", 200, "-n", 8, "-d", "auto", "abc")
    assert "lcspec: no draft was measured: `lcspec draft list --measure` does" in result.stderr


def test_tuning_with_a_draft_says_whether_it_pays(model: Path) -> None:
    make(model, "--layers", "0-4", "-o", "one", "--no-measure")
    text = lcspec("tune", model, "-d", "one", "--seconds", 1).stdout
    assert "A token of one costs" in text
    assert re.search(r"It (pays|does not pay) on this machine", text)


def test_tuning_takes_the_best_draft_too(two_drafts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"good": 0.3})
    result = lcspec("tune", two_drafts, "-d", "auto", "--seconds", 1)
    assert "lcspec: good drafts: 1." in result.stderr
    assert "A token of good costs" in result.stdout


def test_a_model_with_another_vocabulary_is_not_measured(model: Path, tmp_path: Path) -> None:
    other = tiny.write_model(tmp_path / "other.gguf", changed_token=5)
    assert (
        "other.gguf can't draft for little.gguf: token 5 is"
        in lcspec("tune", model, "-d", other, "--seconds", 1, status=1).stderr
    )


def test_a_name_of_something_else_is_refused_in_the_library_too(model: Path) -> None:
    header = read_header(model)
    with pytest.raises(FileError, match="a draft can't be called 'a/b'"):
        make_draft(header, Provenance(target_digest(header), "little", layers=(0,)), "a/b", threads=1)
