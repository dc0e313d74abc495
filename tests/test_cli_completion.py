"""Completion, in a real bash, and what it must not import."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from click.testing import CliRunner
from huggingface_hub import constants
from stand_in import COMMIT, StandIn

from lcspec.cli import main
from lcspec.cli.commands import COMMANDS
from lcspec.cli.completion import model_names

LCSPEC = Path(sys.executable).with_name("lcspec")
PATIENCE = 60  # seconds until a test gives up, not what anything should take


@pytest.fixture
def cached(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a model in the hub's cache that no catalog knows."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", constants.HF_HUB_CACHE)
    monkeypatch.setenv("PATH", f"{LCSPEC.parent}{os.pathsep}{os.environ['PATH']}")
    hub.publish(b"GGUF", "tiny.Q8_0.gguf")
    name = "hf:someone/Tiny-GGUF/tiny.Q8_0.gguf"
    assert CliRunner().invoke(main, ["pull", name]).exit_code == 0
    return name


def replies(line: str) -> list[str]:
    """Return what bash would offer for a line, split into words as bash does."""
    script = """
        source <(lcspec completion bash)
        COMP_LINE=$1 COMP_POINT=${#1}
        read -ra COMP_WORDS <<< "${1//:/ : }"
        [[ $1 == *" " ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _lcspec_completion lcspec
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "-c", script, "bash", line], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_options_models_and_templates_are_completed(cached: str) -> None:
    assert replies("lcspec ") == list(COMMANDS)
    assert replies("lcspec gen") == ["generate"]
    assert replies("lcspec generate --dra") == ["--draft", "--drafter", "--draft-tokens"]
    assert "smollm2-135m" in replies("lcspec generate -m smol")
    assert replies("lcspec generate --draft=qwen2.5-coder-0") == ["qwen2.5-coder-0.5b"]
    assert replies("lcspec generate --drafter l") == ["lookup"]
    assert replies("lcspec generate --template fix") == ["fix-grammar"]
    assert replies("lcspec pull qwen2.5-coder-1") == ["qwen2.5-coder-1.5b"]
    assert replies("lcspec completion z") == ["zsh"]


def test_a_name_with_a_colon_goes_on_behind_it(cached: str) -> None:
    assert cached in replies("lcspec generate -m ")
    assert replies("lcspec generate -m hf:some") == [cached.removeprefix("hf:")]
    assert replies("lcspec generate --model=hf:some") == [cached.removeprefix("hf:")]


def test_a_tab_in_a_terminal(cached: str) -> None:
    terminal = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], encoding="utf-8", timeout=PATIENCE)
    terminal.sendline("PS1='ready'; source <(lcspec completion bash); echo com''plete")
    terminal.expect("complete\r\n.*ready")
    terminal.send("lcspec inspect smollm2-13\t")
    terminal.expect("lcspec inspect smollm2-135m ")
    terminal.sendintr()
    terminal.expect("ready")
    terminal.send("lcspec generate -m hf:so\t")
    terminal.expect_exact(f"-m {cached} ")
    terminal.close(force=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_LCSPEC_COMPLETE" in result.stdout
    assert f"{shell}_complete" in result.stdout
    assert result.stderr == ""


def test_an_unknown_shell_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["completion", "csh"])
    assert result.exit_code == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in result.stderr


def test_names_are_those_that_the_hub_knows(cached: str, hub_cache: Path) -> None:
    listed = json.loads(CliRunner().invoke(main, ["models", "--all", "--json"]).stdout)
    assert set(model_names()) == {model["name"] for model in listed}
    refs = hub_cache / "models--someone--Tiny-GGUF" / "refs" / "main"
    refs.write_text("0" * 40)  # the branch went on
    assert f"{cached}@{COMMIT}" in model_names()


def test_a_broken_catalog_of_ones_own_does_not_keep_the_others_away(hub_cache: Path, tmp_path: Path) -> None:
    own = tmp_path / "config" / "lcspec" / "catalog.toml"
    own.parent.mkdir(parents=True)
    own.write_text("model = [3, {}")
    assert "smollm2-135m" in model_names()
    own.write_text("model = [3, {}]")
    assert "smollm2-135m" in model_names()


@pytest.mark.parametrize(
    "line", ["lcspec ", "lcspec generate -m smo", "lcspec generate --template ", "lcspec generate --"]
)
def test_completing_imports_neither_llama_cpp_nor_numpy(line: str) -> None:
    script = (
        "import sys\nfrom lcspec.cli import main\ntry:\n    main(prog_name='lcspec')\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('llama_cpp', 'numpy', 'lcspec.engine') if name in sys.modules])"
    )
    environment = os.environ | {"_LCSPEC_COMPLETE": "bash_complete", "COMP_LINE": line}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    *offered, imported = done.stdout.splitlines()
    assert offered
    assert imported == "[]"
