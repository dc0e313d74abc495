"""The plugin for `llm`, as its users meet it: the command, and its Python API."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import pytest
import tiny

from lcspec import ClosedError, LcspecWarning, SpeculativeLM, llm_plugin
from lcspec.hub import catalog

LLM = str(Path(sys.executable).with_name("llm"))
COLORS = "Name three colors."
PATIENCE = 60  # seconds until a test gives up, not what anything should take


@pytest.fixture(autouse=True)
def user_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path / "llm"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "llm"


@pytest.fixture(autouse=True)
def engines() -> Iterator[None]:
    """Nothing loaded before and after."""
    yield
    llm_plugin._let_go()


def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LLM, *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE, text=True, env=os.environ
    )


def answer(*arguments: str | Path, stdin: str = "") -> str:
    done = run(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def the_error(done: subprocess.CompletedProcess[str]) -> str:
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("Error: ")
    return line


def logs(n: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer("logs", "--json", "-n", str(n)))
    return found


# the command


def test_models_are_listed_without_being_loaded() -> None:
    listed = answer("models", "list", "-q", "lcspec").splitlines()
    assert "lcspec: lcspec" in listed
    for name in catalog():
        assert f"lcspec: lcspec/{name} (aliases: {name})" in listed
    assert answer("models", "list", "--options", "-m", "lcspec/smollm2-135m").count("    temperature: float\n") == 1


@pytest.mark.real
def test_a_prompt_is_answered_as_by_the_library(smollm2: Path) -> None:
    arguments = ["-m", "lcspec/smollm2-135m", "-o", "max_tokens", "40", "-o", "threads", "1"]
    told = answer(*arguments, "--system", "You answer briefly.", COLORS)
    with SpeculativeLM(smollm2, threads=1) as engine:
        messages = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": COLORS}]
        expected = engine.chat(messages, max_tokens=40)
    assert told == expected.text + "\n"
    (logged,) = logs(1)
    assert logged["response"] == expected.text
    assert (logged["input_tokens"], logged["output_tokens"]) == (expected.stats.prompt_tokens, len(expected.tokens))
    assert logged["options_json"] == {"max_tokens": 40, "threads": 1}
    assert logged["response_json"]["finish_reason"] == "eog"
    assert answer(*arguments, "--no-stream", "-s", "You answer briefly.", COLORS) == told


@pytest.mark.real
def test_a_conversation_goes_on_in_another_process(smollm2: Path) -> None:
    first = answer("-m", "smollm2-135m", COLORS).rstrip("\n")
    second = answer("--continue", "And three animals.").rstrip("\n")
    with SpeculativeLM(smollm2) as engine:
        messages = [{"role": "user", "content": COLORS}, {"role": "assistant", "content": first}]
        expected = engine.chat([*messages, {"role": "user", "content": "And three animals."}])
    assert logs(1)[0]["input_tokens"] == expected.stats.prompt_tokens
    assert second == expected.text


@pytest.mark.real
def test_a_chat_goes_on_with_what_is_cached(smollm2: Path) -> None:
    told = answer("chat", "-m", "lcspec/smollm2-135m", stdin=f"{COLORS}\nAnd three animals.\nquit\n")
    first, second = logs(2)
    assert first["response"] in told
    assert second["response"] in told
    assert json.loads(first["token_details"])["cached"] == 0
    cached = json.loads(second["token_details"])["cached"]
    assert cached >= first["input_tokens"] + first["output_tokens"]


def test_any_file_can_be_named(tiny_llama: Path) -> None:
    arguments = ["-m", "lcspec", "-o", "model", tiny_llama, "-o", "max_tokens", "20", "-o", "n_ctx", "200"]
    drawn = [answer(*arguments, "-o", "temperature", "1", "-o", "seed", seed, "hello") for seed in ("7", "7", "8")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert logs(1)[0]["response_json"]["seed"] == 8


# what goes wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "lcspec", "-o", "model", "./none.gguf"], r"none.gguf can't be read: No such file"),
        (
            ["-m", "lcspec", "-o", "model", "smolm2-135m"],
            "neither a file nor in the catalog; did you mean smollm2-135m",
        ),
        (["-m", "lcspec/qwen3-14b"], "qwen3-14b is not on this machine: fetch it with `lcspec pull qwen3-14b`"),
        (["-m", "lcspec", "-o", "model", "tiny", "-o", "draft", "qwen3-14b"], "qwen3-14b is not on this machine"),
        (["-m", "lcspec", "-o", "temperature", "-1"], "temperature is -1.0; it must be 0 to 1e+06"),
        (["-m", "lcspec", "-o", "drafter", "model"], "the drafter 'model' needs a draft model"),
    ],
)
def test_an_error_is_one_line(tiny_llama: Path, arguments: list[str], message: str) -> None:
    done = run(*(str(tiny_llama) if one == "tiny" else one for one in arguments), "hello")
    assert message in the_error(done)
    assert done.stdout == ""


def test_an_error_in_a_chat_is_one_line() -> None:
    done = run("chat", "-m", "lcspec", "-o", "model", "./none.gguf", stdin="hello\n")
    assert "none.gguf can't be read" in the_error(done)


def test_a_damaged_catalog_does_not_keep_llm_from_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "lcspec").mkdir(parents=True)
    (tmp_path / "config" / "lcspec" / "catalog.toml").write_text("model = 3\n")
    done = run("models", "list")
    assert done.returncode == 0
    assert "lcspec: lcspec\n" in done.stdout
    assert "lcspec's models are not available" in done.stderr


def test_an_old_llm_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(llm, "Message")
    with pytest.warns(LcspecWarning, match=r"need llm 0\.32"):
        llm_plugin.register_models(pytest.fail)


# the Python API


@pytest.fixture
def model() -> llm.Model:
    return llm.get_model("lcspec")


def test_pieces_come_as_they_are_written(model: llm.Model, tiny_llama: Path) -> None:
    response = model.prompt("hello", model=str(tiny_llama), max_tokens=30, n_ctx=200)
    pieces = list(response)
    assert len(pieces) > 1
    assert all(pieces)
    with SpeculativeLM(tiny_llama, n_ctx=200) as engine:
        expected = engine.chat([{"role": "user", "content": "hello"}], max_tokens=30)
    assert "".join(pieces) == response.text() == expected.text
    assert response.usage().output == 30


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[SpeculativeLM]:
    """The engines that are loaded."""
    engines: list[SpeculativeLM] = []

    def load(*arguments: Any, **options: Any) -> SpeculativeLM:
        engines.append(SpeculativeLM(*arguments, **options))
        return engines[-1]

    monkeypatch.setattr(llm_plugin, "SpeculativeLM", load)
    return engines


def is_closed(engine: SpeculativeLM) -> bool:
    try:
        engine.clear()
    except ClosedError:
        return True
    return False


def ask(model: Path, **options: Any) -> llm.Response:
    """Ask another object each time."""
    return llm.get_model("lcspec").prompt("hello", model=str(model), max_tokens=20, n_ctx=200, **options)


def test_an_engine_is_loaded_once_for_the_same_options(tiny_llama: Path, loaded: list[SpeculativeLM]) -> None:
    for options in {}, {}, {"temperature": 1.0}, {"drafter": "none"}:
        ask(tiny_llama, **options).text()
    assert len(loaded) == 2


def test_only_the_engine_that_was_used_last_stays_loaded(tiny_llama: Path, loaded: list[SpeculativeLM]) -> None:
    for drafter in "auto", "lookup", "none", "lookup":
        ask(tiny_llama, drafter=drafter).text()
    assert [is_closed(engine) for engine in loaded] == [True, True, True, False]


def test_an_engine_that_writes_is_closed_at_its_end(tiny_llama: Path, loaded: list[SpeculativeLM]) -> None:
    whole = ask(tiny_llama).text()
    response = ask(tiny_llama)
    pieces = iter(response)
    first = next(pieces)
    ask(tiny_llama, drafter="none").text()
    assert [is_closed(engine) for engine in loaded[1:]] == [False]
    assert first + "".join(pieces) == whole
    assert [is_closed(engine) for engine in loaded] == [True, False]


def test_a_stop_string_ends_the_text(model: llm.Model, tiny_llama: Path) -> None:
    arguments: dict[str, Any] = {"model": str(tiny_llama), "max_tokens": 30, "n_ctx": 200}
    whole = model.prompt("hello", **arguments).text()
    stop = whole[10:12]
    response = model.prompt("hello", stop=stop, **arguments)
    assert response.text() == whole[: whole.index(stop)]
    assert response.response_json is not None
    assert response.response_json["finish_reason"] == "stop"


def test_errors_are_those_of_llm(model: llm.Model, tmp_path: Path) -> None:
    path = tiny.write_model(tmp_path / "no-template.gguf", template=None)
    with pytest.raises(llm.ModelError, match="has no chat template"):
        model.prompt("hello", model=str(path), n_ctx=200).text()
    with pytest.raises(llm.ModelError, match="tokens and the context holds 200"):
        model.prompt("hello " * 300, model=str(tiny.write_model(tmp_path / "tiny.gguf")), n_ctx=200).text()
