"""The command line as a user meets it: real processes, pipes and terminals."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pexpect
import pytest
import tiny

from lcspec import Completion, SpeculativeLM

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
CTX = 200  # under 256 cells, where any pass width is exact
PROMPT = "ababababab"  # the tiny model repeats itself behind it, so that lookup finds something
ENDLESS_PROMPT = "abcabcabcabc"  # and behind this for ever
PATIENCE = 60  # seconds until a test gives up, not what anything should take


def lcspec(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([LCSPEC, *map(str, arguments)], input=stdin, capture_output=True, timeout=PATIENCE)


def generate(model: Path, *arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return lcspec("generate", "-m", model, "-c", str(CTX), "-t", "1", *arguments, stdin=stdin)


def generate_json(model: Path, *arguments: str | Path, stdin: bytes = b"") -> dict[str, Any]:
    done = generate(model, "--json", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 1
    assert b"\\ufffd" not in done.stdout  # characters, not escapes
    completion: dict[str, Any] = json.loads(done.stdout)
    return completion


def the_error(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the one line that an error is, having checked that it is no more than that."""
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert done.stdout == b""
    assert line.startswith("Error: ")
    return line


def the_usage_error(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the line that says what is wrong, below how the command is used."""
    first, *_, last = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert done.stdout == b""
    assert first.startswith("Usage: lcspec ")
    assert last.startswith("Error: ")
    return last


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    """The library, decoding plainly: the texts that the command line has to print."""
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=CTX, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain(engine: SpeculativeLM) -> Completion:
    """What the tiny model writes behind PROMPT."""
    return engine.generate(PROMPT, max_tokens=60)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


# generate: the text and the statistics


def test_stdout_is_exactly_the_text(tiny_llama: Path, plain: Completion) -> None:
    done = generate(tiny_llama, "--raw", "-n", "60", "--drafter", "lookup", PROMPT)
    assert done.returncode == 0
    assert done.stdout == plain.text.encode()
    (summary,) = done.stderr.decode().splitlines()
    assert re.fullmatch(
        r"lcspec: 60 tokens, the first after \d\.\d\d s, then [\d.,]+ tokens/s, .* a pass: lookup .*", summary
    )


def test_stats_go_to_stderr(tiny_llama: Path, plain: Completion) -> None:
    done = generate(tiny_llama, "--raw", "-n", "60", "--stats", "--drafter", "lookup", PROMPT)
    assert done.stdout == plain.text.encode()
    stats = done.stderr.decode()
    assert re.search(rf"prompt +{len(PROMPT)} tokens, 0 of them cached", stats)
    assert re.search(r"ended by +length", stats)
    assert re.search(r"lookup +\d+ drafts, \d+ tokens, \d+ accepted", stats)


def test_stats_say_why(tiny_llama: Path, tiny_draft: Path) -> None:
    stats = generate(tiny_llama, "--raw", "-n", "60", "--stats", "-d", tiny_draft, PROMPT).stderr.decode()
    assert re.search(r"^ +plan  lookup ", stats, re.MULTILINE)
    assert re.search(r"draft model .*: a draft token costs \d\.\d\d of a target pass", stats)


@pytest.mark.parametrize(
    ("drafter", "names"), [("none", set()), ("lookup", {"lookup"}), ("model", {"model"}), ("auto", None)]
)
def test_every_drafter_drafts_and_json_has_the_plain_text(
    tiny_llama: Path, tiny_draft: Path, plain: Completion, drafter: str, names: set[str] | None
) -> None:
    done = generate_json(tiny_llama, "--raw", "-n", "60", "-d", tiny_draft, "--drafter", drafter, PROMPT)
    assert done.keys() == {"text", "tokens", "finish_reason", "stats", "seed", "logprobs"}
    assert done["text"] == plain.text
    assert done["tokens"] == list(plain.tokens)
    assert done["finish_reason"] == plain.finish_reason
    assert done["stats"]["prompt_tokens"] == len(PROMPT)
    assert done["stats"]["tokens"] == 60
    if names is None:
        assert sum(done["stats"]["plan"]["passes"].values()) == done["stats"]["target_passes"] - 1
        assert done["stats"]["plan"]["reasons"][1].startswith("draft model ")
    else:
        assert done["stats"]["drafters"].keys() == names
        assert done["stats"]["plan"] is None


def test_draft_tokens_sets_the_length_of_drafts(tiny_llama: Path, tiny_draft: Path) -> None:
    options = ("--raw", "-n", "30", "-d", tiny_draft, "--drafter", "model", "--draft-tokens", "7")
    share = generate_json(tiny_llama, *options, PROMPT)["stats"]["drafters"]["model"]
    assert 4 * share["drafts"] < share["drafted"] <= 7 * share["drafts"]  # 4 is the default


def test_a_text_ends_at_the_first_stop_string(tiny_llama: Path, plain: Completion) -> None:
    early, late = plain.text[20:22], plain.text[25:28]
    end = min(plain.text.index(early), plain.text.index(late))
    done = generate_json(tiny_llama, "--raw", "-n", "60", "--stop", late, "--stop", early, PROMPT)
    assert done["text"] == plain.text[:end]
    assert done["finish_reason"] == "stop"


def test_an_empty_stop_string_is_an_error(tiny_llama: Path) -> None:
    assert "--stop needs a text" in the_usage_error(generate(tiny_llama, "--stop", "", PROMPT))


def test_the_context_ends_the_text(tiny_llama: Path, plain: Completion) -> None:
    room = 15
    done = lcspec("generate", "--raw", "--json", "-m", tiny_llama, "-t", "1", "-c", str(len(PROMPT) + room), PROMPT)
    completion = json.loads(done.stdout)
    assert completion["tokens"] == list(plain.tokens[:room])
    assert completion["finish_reason"] == "length"


def test_no_tokens_wanted_gives_no_text(tiny_llama: Path) -> None:
    done = generate(tiny_llama, "-n", "0", "--stats", PROMPT)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"-1" not in done.stderr
    completion = generate_json(tiny_llama, "-n", "0", PROMPT)
    assert (completion["text"], completion["tokens"], completion["finish_reason"]) == ("", [], "length")


def test_escape_sequences_of_the_model_reach_a_pipe(tiny_llama: Path, plain: Completion, tmp_path: Path) -> None:
    colour = "\x1b[0;1m"
    token = next(token for token in plain.tokens if token not in PROMPT.encode())
    model = tiny.write_model(tmp_path / "colourful.gguf", changed_token=token)
    model.write_bytes(model.read_bytes().replace(b"changed", "\u011b[0;1m".encode()))  # as the vocabulary writes it
    text = generate_json(model, "--raw", "-n", "60", PROMPT)["text"]
    assert colour in text
    assert generate(model, "--raw", "-n", "60", PROMPT).stdout == text.encode()


# generate: where the prompt comes from


def test_a_prompt_goes_through_the_chat_template(tiny_llama: Path, engine: SpeculativeLM) -> None:
    expected = engine.chat([user(PROMPT)], max_tokens=20).text
    assert generate(tiny_llama, "-n", "20", PROMPT).stdout == expected.encode()
    assert expected != engine.generate(PROMPT, max_tokens=20).text


def test_standard_input_is_the_prompt_byte_for_byte(tiny_llama: Path, engine: SpeculativeLM) -> None:
    prompt = " Zwölf\r\nTörtchen\t\n\n"
    expected = engine.generate(prompt, max_tokens=20).text
    assert generate(tiny_llama, "--raw", "-n", "20", stdin=prompt.encode()).stdout == expected.encode()
    assert generate(tiny_llama, "--raw", "-n", "20", "-", stdin=prompt.encode()).stdout == expected.encode()


def test_a_dash_stands_for_standard_input_among_other_parts(tiny_llama: Path, engine: SpeculativeLM) -> None:
    expected = engine.generate("before\n\npiped\n\nafter", max_tokens=20).text
    done = generate(tiny_llama, "--raw", "-n", "20", "before", "-", "after", stdin=b"piped")
    assert done.stdout == expected.encode()


def test_standard_input_that_is_not_utf8_is_an_error(tiny_llama: Path) -> None:
    error = the_error(generate(tiny_llama, stdin=b"caf\xe9"))
    assert "not UTF-8" in error
    assert "byte 3" in error


def test_no_prompt_on_a_terminal_is_a_usage_error(tiny_llama: Path) -> None:
    terminal = pexpect.spawn(LCSPEC, ["generate", "-m", str(tiny_llama)], timeout=PATIENCE, encoding="utf-8")
    terminal.expect("Error: there is no PROMPT")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2


# generate: what can be wrong


def test_an_unknown_model_is_an_error_that_names_one_like_it(tmp_path: Path) -> None:
    error = the_error(lcspec("generate", "-m", "smollm-135m", "hello"))
    assert "'smollm-135m' is neither a file nor in the catalog; did you mean smollm2-135m" in error


def test_a_file_that_is_no_model_is_an_error(tiny_llama: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    assert f"{missing} can't be read" in the_error(generate(missing, "hello"))
    letter = tmp_path / "lettre à Zoé.txt"
    letter.write_text("Dear Zoé")
    assert f"{letter} is not a GGUF file" in the_error(generate(letter, "hello"))
    truncated = tmp_path / "truncated.gguf"
    truncated.write_bytes(tiny_llama.read_bytes()[:-1000])
    assert f"{truncated} is incomplete" in the_error(generate(truncated, "hello"))


HOSTILE = "\x1b]0;title\a\x1b[31m\x9b2Jx"


@pytest.mark.parametrize(
    "arguments",
    [
        ("summarize", f"{HOSTILE}.pdf"),
        ("edit", "-i", "x", f"{HOSTILE}.txt"),
        ("generate", "-m", f"{HOSTILE}.gguf", "hello"),
        ("inspect", f"{HOSTILE}.gguf"),
        ("chat", "--resume", HOSTILE),
        ("models", HOSTILE),
        ("generate", f"--{HOSTILE}"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_error_carries_nothing_that_controls_a_terminal(arguments: tuple[str, ...]) -> None:
    done = lcspec(*arguments)
    error = done.stderr.decode().splitlines()[-1]
    assert done.returncode in (1, 2)
    assert error.startswith("Error: ")
    assert r"\x1b" in error
    assert all(line.isprintable() for line in done.stderr.decode().splitlines())


def on_terminal(*arguments: str | Path) -> str:
    """Return what `lcspec` prints to a terminal, with that as its input too."""
    terminal = pexpect.spawn(LCSPEC, list(map(str, arguments)), timeout=PATIENCE, encoding="utf-8")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    return str(terminal.before)


def test_a_model_does_not_control_the_terminal(tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "pets.txt").write_text("Cats sleep.")
    options = ("-q", "-m", tiny_llama, "-c", "400", "-t", "1", "--logit-bias", f"{0x1B}=1000")
    generate = ("generate", *options, "--raw", "-n", "3", "ab")
    summarize = ("summarize", *options, "--words", "20", tmp_path / "pets.txt")
    assert lcspec(*generate).stdout == b"\x1b\x1b\x1b"
    assert on_terminal(*generate).strip() == "␛␛␛"
    assert b"\x1b\x1b\x1b" in lcspec(*summarize).stdout
    shown = on_terminal(*summarize)
    assert "␛␛␛" in shown
    assert "\x1b\x1b" not in shown


def test_a_draft_with_another_vocabulary_is_an_error_that_names_the_difference(
    tiny_llama: Path, tmp_path: Path
) -> None:
    draft = tiny.write_model(tmp_path / "other.gguf", changed_token=65)
    error = the_error(generate(tiny_llama, "-d", draft, "hello"))
    assert "other.gguf can't draft for llama.gguf" in error
    assert "token 65" in error


def test_the_drafter_model_without_a_draft_is_an_error(tiny_llama: Path) -> None:
    done = generate(tiny_llama, "--drafter", "model", "hello")
    assert done.returncode == 2
    assert "name it with -d" in done.stderr.decode()


def test_a_prompt_that_does_not_fit_is_an_error_that_names_the_option(tiny_llama: Path) -> None:
    error = the_error(generate(tiny_llama, "--raw", "x" * CTX))
    assert f"{CTX} tokens" in error
    assert "--ctx" in error


def test_a_context_of_one_token_is_an_error_that_makes_sense(tiny_llama: Path) -> None:
    done = lcspec("generate", "--raw", "-m", tiny_llama, "-c", "1", "x")
    assert done.returncode == 2
    assert "1 is not in the range" in done.stderr.decode()


@pytest.mark.parametrize("option", ["--ctx", "--threads"])
def test_a_number_that_llama_cpp_cannot_hold_is_an_error(tiny_llama: Path, option: str) -> None:
    done = lcspec("generate", "-m", tiny_llama, option, str(2**32 + 100), "-n", "1", "x")  # 100 in 32 bits
    assert done.returncode in (1, 2)
    assert done.stderr.decode().splitlines()[-1].startswith("Error: ")


def test_without_a_chat_template_raw_is_suggested_and_works(tmp_path: Path) -> None:
    model = tiny.write_model(tmp_path / "base.gguf", template=None)
    error = the_error(generate(model, "hello"))
    assert "base.gguf has no chat template" in error
    assert "--raw" in error
    assert generate(model, "--raw", "-n", "5", "hello").stdout != b""
    assert "base.gguf has no chat template" in the_error(lcspec("chat", "-m", model, "-t", "1", stdin=b"hello\n"))


def test_a_recurrent_model_writes_its_text_and_warns(tiny_recurrent: Path) -> None:
    with (
        pytest.warns(match="can't be truncated"),
        SpeculativeLM(tiny_recurrent, n_ctx=CTX, threads=1) as engine,
    ):
        expected = engine.generate(PROMPT, max_tokens=20).text
    done = generate(tiny_recurrent, "--raw", "-n", "20", PROMPT)
    assert (done.returncode, done.stdout) == (0, expected.encode())
    warning, _summary = done.stderr.decode().splitlines()
    assert warning.startswith("lcspec: warning: ")
    assert "can't be truncated" in warning


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokens", "5"],
        ["-n", "-1"],
        ["--draft-tokens", "128"],
        ["--drafter", "magic"],
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_a_usage_error_that_names_it(arguments: list[str]) -> None:
    assert arguments[0] in the_usage_error(lcspec("generate", *arguments, "hello"))


def test_debug_shows_the_log_and_the_traceback(tiny_llama: Path, tmp_path: Path) -> None:
    done = lcspec("--debug", "generate", "-m", tmp_path / "missing.gguf", "hello")
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"Traceback" in done.stderr
    done = lcspec("--debug", "generate", "-m", tiny_llama, "-n", "1", "hello")
    assert b"lcspec.llama.cpp: " in done.stderr


def test_help_and_version() -> None:
    assert version("lcspec").encode() in lcspec("--version").stdout
    assert b"generate" in lcspec("-h").stdout
    usage = lcspec("generate", "-h").stdout.decode()
    assert "--draft-tokens" in usage
    assert re.search(r"^ +lcspec generate ", usage, re.MULTILINE)  # an example has a line of its own
    assert "\\b" not in usage


# generate: interrupted


@dataclass(frozen=True)
class Redirected:
    """`lcspec` in a terminal with its standard output in a file."""

    terminal: "pexpect.spawn[str]"
    file: Path

    @classmethod
    def start(cls, folder: Path, *arguments: str | Path) -> "Redirected":
        file = folder / "stdout"
        command = ["-c", 'file=$1; shift; exec "$@" > "$file"', "sh", str(file), LCSPEC, *map(str, arguments)]
        return cls(pexpect.spawn("/bin/sh", command, timeout=PATIENCE, encoding="utf-8"), file)

    def wait_for_text(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.file.exists() or self.file.stat().st_size < 100:
            assert time.monotonic() < deadline, "no text came"
            time.sleep(0.02)

    def interrupt(self) -> str:
        """Press Ctrl-C and return what came on standard error until the end."""
        self.terminal.sendintr()
        self.terminal.expect(pexpect.EOF)
        self.terminal.close()
        assert self.terminal.exitstatus == 130
        return str(self.terminal.before)


# a context that takes far longer to fill than a test takes to press Ctrl-C
ENDLESS = ("-c", "100000", "-t", "1", "--drafter", "none", "--raw")


@pytest.fixture(scope="module")
def endless(tiny_llama: Path) -> Completion:
    """What the tiny model writes behind ENDLESS_PROMPT, where it goes round in circles."""
    with pytest.warns(match="trained for"), SpeculativeLM(tiny_llama, drafter="none", n_ctx=2100, threads=1) as engine:
        completion = engine.generate(ENDLESS_PROMPT, max_tokens=2000)
    assert len(completion.tokens) == 2000
    return completion


def test_ctrl_c_keeps_the_text(tiny_llama: Path, endless: Completion, tmp_path: Path) -> None:
    command = Redirected.start(tmp_path, "generate", "-m", tiny_llama, *ENDLESS, ENDLESS_PROMPT)
    command.wait_for_text()
    stderr = command.interrupt()
    text = command.file.read_bytes().decode()
    assert text[: len(endless.text)] == endless.text[: len(text)]
    assert re.search(r"lcspec: [\d,]+ tokens, ", stderr)
    assert "Traceback" not in stderr


def test_ctrl_c_with_json_keeps_the_text(tiny_llama: Path, endless: Completion, tmp_path: Path) -> None:
    command = Redirected.start(tmp_path, "--debug", "generate", "--json", "-m", tiny_llama, *ENDLESS, ENDLESS_PROMPT)
    command.terminal.expect("sched_reserve: reserve took")  # the last of loading
    time.sleep(1)
    command.interrupt()
    completion = json.loads(command.file.read_text(encoding="utf-8"))
    text = completion["text"]
    assert completion["finish_reason"] == "cancelled"
    assert len(text) > 0
    assert text[: len(endless.text)] == endless.text[: len(text)]
    assert completion["stats"]["tokens"] > 0


@pytest.mark.real
def test_ctrl_c_while_the_model_loads_ends_the_command(smollm2: Path, tmp_path: Path) -> None:
    command = Redirected.start(tmp_path, "--debug", "generate", "-m", smollm2, "-t", "1", "-n", "100", "hello")
    command.terminal.expect("llama_model_loader: ")
    stderr = command.interrupt()
    assert "Exception ignored" not in stderr


@pytest.mark.real
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_pipe_closed_early_ends_quietly(smollm2: Path, options: list[str]) -> None:
    command = [LCSPEC, "generate", "-t", "1", "-n", "40", *options, "Tell me about the sea."]  # the default model
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        head = subprocess.run(["head", "-c", "0" if options else "20"], stdin=process.stdout, capture_output=True)
        process.stdout.close()
        assert process.stderr.read() == b""  # no error, and no statistics of a text that nobody wanted
    assert len(head.stdout) == (0 if options else 20)


def test_the_package_runs_as_a_module(tiny_llama: Path, plain: Completion) -> None:
    options = ["--raw", "-m", tiny_llama, "-c", str(CTX), "-n", "60"]
    command = [sys.executable, "-m", "lcspec", "generate", *options, PROMPT]
    done = subprocess.run(command, capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout == plain.text.encode()


def test_closed_standard_streams_are_no_error(tiny_llama: Path) -> None:
    for closed in (">&-", "<&-"):
        line = f"{shlex.join([LCSPEC, 'generate', '-m', str(tiny_llama), '-n', '3', 'hello'])} {closed}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, check=False)
        assert done.returncode == 0
        assert b"Traceback" not in done.stderr


def test_a_file_name_need_not_be_utf8(tiny_llama: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"n\xff.gguf")
    odd.write_bytes(tiny_llama.read_bytes())
    done = lcspec("generate", "--raw", "-m", odd, "-n", "3", "x")
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("prompt", ["", "  ", "-"])
def test_an_empty_prompt_is_not_answered(tiny_llama: Path, prompt: str) -> None:
    assert "the prompt is empty" in the_error(generate(tiny_llama, prompt))
