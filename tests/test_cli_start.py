"""What a user sees first, what all commands have in common, and how they end."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import click
import pexpect
import psutil
import pytest
from click.testing import CliRunner

from lcspec import SamplingParams
from lcspec.cli.commands import COMMANDS, GROUPS
from lcspec.cli.options import sampling_options

COMMAND = [sys.executable, "-m", "lcspec"]
PATIENCE = 60  # seconds until a test gives up, not what anything should take
GENERATE = ("generate", "--raw", "-t", "1", "-c", "200", "-n", "3")


def lcspec(*arguments: str | Path, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
        **({"stdout": subprocess.PIPE} | options),  # type: ignore[call-overload]
    )


# without arguments, and help


def test_without_arguments_a_screen_shows_what_lcspec_can_do() -> None:
    terminal = pexpect.spawn(COMMAND[0], COMMAND[1:], encoding="utf-8", timeout=PATIENCE, dimensions=(24, 80))
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    lines = click.unstyle(str(terminal.before)).splitlines()
    assert len(lines) < 24, "the prompt of the shell comes behind it"
    assert max(map(len, lines)) <= 80
    for name, listed in COMMANDS.items():
        assert any(line.startswith(f"  {name} ") and listed.example in line for line in lines)
    assert [line.rstrip(":") for line in lines if line.endswith(":")] == list(GROUPS)


def test_without_a_terminal_the_screen_has_no_colours() -> None:
    done = lcspec()
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout


def test_the_help_has_all_commands_and_the_exit_statuses() -> None:
    shown = " ".join(lcspec("--help").stdout.split())
    for name, listed in COMMANDS.items():
        assert f"{name} {listed.about}" in shown
    for status in ("0 when all went well", "1 after an error", "2 after wrong usage", "130 after Ctrl-C", "141 when"):
        assert status in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_explains_its_options(name: str) -> None:
    command = COMMANDS[name].load()
    for one in (command, *(command.commands.values() if isinstance(command, click.Group) else ())):
        shown = CliRunner().invoke(one, ["--help"]).stdout
        assert "\b" not in shown
        assert re.search(rf"^    .*lcspec {name}", shown.partition("Example")[2], re.MULTILINE)
        for option in one.params:
            assert isinstance(option, click.Argument) or getattr(option, "help", None), option.name


def test_the_help_states_the_sampler_defaults() -> None:
    @click.command()
    @sampling_options
    def command(**_: object) -> None: ...

    explained = {one.name: str(one.help) for one in command.params if isinstance(one, click.Option)}
    for name in ("top_k", "top_p", "min_p", "penalty_last_n"):
        assert f"[{getattr(SamplingParams(), name)}]" in explained[name]


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["generate", "--help"], ["generate", "--nonsense"], ["nonsense"]]
)
def test_help_and_usage_errors_import_neither_llama_cpp_nor_numpy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom lcspec.cli import main\ntry:\n    main(prog_name='lcspec')\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('llama_cpp', 'numpy', 'huggingface_hub', 'lcspec.engine') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_library_has_its_names_without_being_asked() -> None:
    script = "import lcspec; print(set(lcspec.__all__) <= set(dir(lcspec)), lcspec.SpeculativeLM.__module__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "lcspec.engine"]
    done = subprocess.run([sys.executable, "-c", "from lcspec import Nonsense"], capture_output=True, text=True)
    assert "cannot import name 'Nonsense'" in done.stderr


def test_an_unknown_command_is_a_usage_error() -> None:
    done = lcspec("generat", "hello")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "generat" in done.stderr.splitlines()[-1]


# options that all have


def test_temp_is_temperature(tiny_llama: Path) -> None:
    hot = ("--seed", "5", "-m", tiny_llama, "ab")
    texts = {lcspec(*GENERATE, option, "1.5", *hot).stdout for option in ("-T", "--temp", "--temperature")}
    assert len(texts) == 1
    assert lcspec(*GENERATE, "--temp", "0", "-m", tiny_llama, "ab").stdout not in texts


@pytest.mark.parametrize(
    "arguments", [["inspect", "{model}", "-t", "1"], ["pair", "{model}"], ["generate", "-m", "{model}", "-n", "1", "x"]]
)
def test_a_quiet_command_prints_only_its_result(tiny_llama: Path, arguments: list[str]) -> None:
    done = lcspec(*(one.format(model=tiny_llama) for one in arguments), "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


# how commands end


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["models", "--all"], ["config"], ["generate"], ["generate", "--json"]]
)
def test_a_full_disk_behind_standard_output_is_an_error_of_one_line(tiny_llama: Path, arguments: list[str]) -> None:
    if arguments[:1] == ["generate"]:
        arguments = [*GENERATE, *arguments[1:], "-m", str(tiny_llama), "ab"]
    with Path("/dev/full").open("w") as full:
        done = lcspec(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["Error: standard output can't be written: No space left on device"]


@pytest.mark.parametrize("arguments", [["models", "--all"], ["config"], ["generate"]])
def test_a_reader_that_left_ends_a_command_quietly_and_with_a_status(tiny_llama: Path, arguments: list[str]) -> None:
    if arguments == ["generate"]:
        arguments = [*GENERATE, "-m", str(tiny_llama), "ab"]
    reading, writing = os.pipe()
    os.close(reading)
    done = lcspec(*arguments, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_missing_standard_error_is_no_error(tiny_llama: Path) -> None:
    script = 'exec "$@" 2>&-'
    command = ["sh", "-c", script, "sh", *COMMAND, *GENERATE, "-m", str(tiny_llama), "ab"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=PATIENCE)
    assert done.returncode == 0
    assert done.stdout


def wait_until_it_waits(process: psutil.Process) -> None:
    deadline = time.monotonic() + PATIENCE
    waited = 0
    while waited < 15:
        assert time.monotonic() < deadline
        waited = waited + 1 if process.status() == psutil.STATUS_SLEEPING else 0
        time.sleep(0.05)


def test_ctrl_c_while_standard_input_is_read_ends_the_command(tiny_llama: Path) -> None:
    terminal = pexpect.spawn(COMMAND[0], [*COMMAND[1:], "generate", "-m", str(tiny_llama), "-"], encoding="utf-8")
    wait_until_it_waits(psutil.Process(terminal.pid))
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert "Traceback" not in str(terminal.before)


def test_a_command_that_is_misspelled_or_a_question_is_answered_with_a_hint() -> None:
    assert "No such command 'genrate'. Did you mean 'generate'?" in lcspec("genrate", "hi").stderr
    assert "lcspec generate 'Name three colors.'" in lcspec("Name three colors.").stderr
