"""A model that is not here: the question on a terminal, and what happens without one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from huggingface_hub import constants
from stand_in import StandIn, sha256

from lcspec.hub import user_catalog_path

COMMAND = [sys.executable, "-m", "lcspec"]
PATIENCE = 60  # seconds until a test gives up, not what anything should take
GENERATE = ("generate", "--raw", "-t", "1", "-c", "200", "-n", "3")


@pytest.fixture
def empty_cache(hub: StandIn, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """A hub that has the default model, in the shape of a tiny one, and another; nothing is on this machine."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_CACHE", constants.HF_HUB_CACHE)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    body = tiny_llama.read_bytes()
    user_catalog_path().parent.mkdir(parents=True)
    for name in ("smollm2-135m", "other"):
        hub.publish(body, f"{name}.gguf")
        with user_catalog_path().open("a") as file:
            file.write(
                f'[[model]]\nname = "{name}"\nlicence = "MIT"\nhub = {{ repository = "someone/Tiny-GGUF" }}\n'
                f'files = [{{ name = "{name}.gguf", size = {len(body)}, sha256 = "{sha256(body)}" }}]\n'
            )
    return hub


def on_terminal(*arguments: str, **environment: str) -> "pexpect.spawn[str]":
    command, *others = [*COMMAND, *arguments]
    variables = os.environ | environment
    return pexpect.spawn(command, others, encoding="utf-8", timeout=PATIENCE, dimensions=(24, 200), env=variables)


def the_rest(terminal: "pexpect.spawn[str]") -> str:
    terminal.expect(pexpect.EOF)
    terminal.close()
    return str(terminal.before)


def test_the_default_model_is_asked_for_with_its_size_and_fetched(empty_cache: StandIn) -> None:
    terminal = on_terminal(*GENERATE, "ab")
    terminal.expect(r"smollm2-135m is not on this machine. Fetch it \(\d+ MB, MIT\)\? \[Y/n\] ")
    assert empty_cache.ranges == []
    terminal.sendline("maybe")
    terminal.expect(r"Fetch it .* \[Y/n\] ")
    terminal.sendline("")
    assert re.search(r"fetching smollm2-135m.*\n.*3 tokens, ", the_rest(terminal), re.DOTALL)
    assert terminal.exitstatus == 0
    assert len(empty_cache.ranges) == 1
    again = on_terminal(*GENERATE, "ab")
    assert "Fetch it" not in the_rest(again)
    assert again.exitstatus == 0


@pytest.mark.parametrize("answer", ["n", "No", "\x04"], ids=["n", "No", "Ctrl-D"])
def test_an_offer_that_is_declined_ends_in_one_line_that_says_what_to_do(empty_cache: StandIn, answer: str) -> None:
    terminal = on_terminal(*GENERATE, "-m", "other", "ab")
    terminal.expect(r"other is not on this machine\. Fetch it .* \[Y/n\] ")
    terminal.send(answer if answer == "\x04" else f"{answer}\r")
    lines = [line for line in the_rest(terminal).splitlines() if line.strip() and line.strip() != answer]
    assert lines == ["Error: other is not on this machine: `lcspec pull other`, or name another with -m"]
    assert terminal.exitstatus == 1
    assert empty_cache.ranges == []


def test_ctrl_c_at_the_question_ends_the_command(empty_cache: StandIn) -> None:
    terminal = on_terminal(*GENERATE, "ab")
    terminal.expect(r"\[Y/n\] ")
    terminal.sendintr()
    assert "Traceback" not in the_rest(terminal)
    assert terminal.exitstatus == 130


def test_chat_asks_before_its_editor_reads(empty_cache: StandIn) -> None:
    terminal = on_terminal("chat", "--no-save", "-t", "1", "-c", "200", TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
    terminal.expect(r"Fetch it .* \[Y/n\] ")
    terminal.send("y\r")
    terminal.expect_exact("y\r\n")  # what is typed is seen
    terminal.expect("fetching smollm2-135m.*Ctrl-D leaves.*>")
    terminal.send("\x04")
    the_rest(terminal)
    assert terminal.exitstatus == 0


def test_yes_answers_and_a_draft_model_is_asked_for_too(empty_cache: StandIn) -> None:
    terminal = on_terminal(*GENERATE, "--yes", "ab")
    assert "Fetch it" not in the_rest(terminal)
    assert terminal.exitstatus == 0
    terminal = on_terminal(*GENERATE, "-d", "other", "ab")
    terminal.expect(r"other is not on this machine\. Fetch it ")
    terminal.sendline("n")
    the_rest(terminal)
    terminal = on_terminal(*GENERATE, "-d", "other", "--drafter", "lookup", "ab")  # which does not use it
    assert "Fetch it" not in the_rest(terminal)


def test_without_a_terminal_it_is_fetched_and_said_in_a_line(empty_cache: StandIn) -> None:
    done = subprocess.run([*COMMAND, *GENERATE, "ab"], capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
    assert done.returncode == 0
    first, *_ = done.stderr.decode().splitlines()
    assert re.fullmatch(r"lcspec: fetching smollm2-135m \(\d+ MB, MIT\)", first)
    assert done.stdout


def test_offline_nothing_is_asked(empty_cache: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    terminal = on_terminal(*GENERATE, "ab")
    (line,) = the_rest(terminal).splitlines()
    assert line == "Error: smollm2-135m is not on this machine, and HF_HUB_OFFLINE forbids to fetch it"
    assert terminal.exitstatus == 1


def test_a_quiet_run_shows_no_progress_of_a_download(empty_cache: StandIn) -> None:
    terminal = on_terminal(*GENERATE, "--yes", "--quiet", "ab")
    shown = the_rest(terminal)
    assert "%" not in shown
    assert "lcspec:" not in shown
    assert len(empty_cache.ranges) == 1
