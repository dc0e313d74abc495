"""`lcspec edit` as a user meets it: real processes, pipes and terminals, and a tiny model that writes nonsense."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
import tiny

from lcspec import SpeculativeLM
from lcspec.tasks.edit import edit_text

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
CTX = 512
TEXT = "abcabcabcabc\ndefdefdef\n"
FEW = ("-n", "20")  # tokens, with which the model's nonsense is cut off
PATIENCE = 60


def command(model: Path, *arguments: str | Path) -> list[str]:
    options = ("-m", model, "-c", CTX, "-t", 1, "--drafter", "none", "-i", "Do it.")
    return [LCSPEC, "edit", *map(str, (*options, *arguments))]


def edit(
    model: Path, *arguments: str | Path, stdin: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(model, *arguments), input=stdin, capture_output=True, timeout=PATIENCE, cwd=folder)


def errors(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 1, done.stderr
    return [line for line in done.stderr.decode().splitlines() if line.startswith("Error: ")]


def the_usage_error(done: subprocess.CompletedProcess[bytes]) -> str:
    first, *_, last = done.stderr.decode().splitlines()
    assert (done.returncode, done.stdout) == (2, b"")
    assert first.startswith("Usage: lcspec edit")
    return last


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=CTX, threads=1) as engine:
        yield engine


@pytest.fixture(scope="module")
def nonsense(engine: SpeculativeLM) -> str:
    """What the tiny model makes of TEXT."""
    edited = edit_text(engine, TEXT, "Do it.", max_tokens=20, force=True).text
    assert edited != TEXT
    return edited


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    return path


# where the text goes


def test_a_diff_is_printed_and_can_be_applied(tiny_llama: Path, file: Path, nonsense: str) -> None:
    done = edit(tiny_llama, "--force", *FEW, "a.txt", folder=file.parent)
    assert done.returncode == 0
    assert done.stdout.startswith(b"--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1 @@\n-abc")
    assert file.read_text() == TEXT
    subprocess.run(["patch", "-p1", "--quiet"], input=done.stdout, cwd=file.parent, check=True)
    assert file.read_text() == nonsense


def test_in_place_writes_the_file_and_keeps_its_mode(tiny_llama: Path, file: Path, nonsense: str) -> None:
    file.chmod(0o640)
    done = edit(tiny_llama, "--force", *FEW, "--in-place", file)
    assert (done.returncode, done.stdout) == (0, b"")
    assert file.read_text() == nonsense
    assert file.stat().st_mode & 0o777 == 0o640
    assert list(file.parent.iterdir()) == [file]


def test_a_backup_is_kept(tiny_llama: Path, file: Path, nonsense: str) -> None:
    edit(tiny_llama, "--force", *FEW, "-w", "--backup", file)
    assert file.read_text() == nonsense
    assert file.with_name("a.txt~").read_text() == TEXT


def test_standard_input_is_edited_to_standard_output(tiny_llama: Path, nonsense: str) -> None:
    for arguments in ("-",), (), ("--output", "-"):
        assert edit(tiny_llama, "--force", *FEW, *arguments, stdin=TEXT.encode()).stdout.decode() == nonsense
    marked = edit(tiny_llama, "--force", *FEW, stdin=TEXT.encode("utf-16"))
    assert marked.stdout.decode("utf-16") == nonsense


def test_output_is_another_file(tiny_llama: Path, file: Path, nonsense: str) -> None:
    file.chmod(0o640)
    new = file.with_name("b.txt")
    done = edit(tiny_llama, "--force", *FEW, "-o", new, file)
    assert (done.returncode, done.stdout) == (0, b"")
    assert (new.read_text(), file.read_text()) == (nonsense, TEXT)
    assert new.stat().st_mode & 0o777 == 0o640
    assert edit(tiny_llama, "--force", *FEW, "-o", "-", file).stdout.decode() == nonsense


def test_only_some_lines(tiny_llama: Path, file: Path) -> None:
    lines = [f"line {n} \r\n" for n in range(2000)]
    file.write_bytes("".join(lines).encode("utf-16"))
    done = edit(tiny_llama, "--force", *FEW, "-w", "--lines", "1000:1001", file)
    assert done.returncode == 0
    edited = file.read_bytes()
    assert edited[:2] == "\ufeff".encode("utf-16-le")
    text = edited.decode("utf-16")
    assert text.startswith("".join(lines[:999]))
    assert text.endswith(" \r\n" + "".join(lines[1001:]))
    assert text != "".join(lines)


def test_what_is_told_and_what_is_not(tiny_llama: Path, file: Path, nonsense: str) -> None:
    done = edit(tiny_llama, "--force", *FEW, "-w", file)
    warning, edited, summary = done.stderr.decode().splitlines()
    assert warning.startswith(f"lcspec: warning: {file}: the answer was cut off")
    assert edited == f"lcspec: {file}: edited"
    assert re.match(r"lcspec: 20 tokens, the first after \d", summary)
    file.write_text(TEXT)
    assert edit(tiny_llama, "--force", *FEW, "-w", "--quiet", file).stderr == b""
    file.write_text(TEXT)
    assert b"ended" not in (stats := edit(tiny_llama, "--force", *FEW, "--stats", file).stderr)
    assert re.search(rb"target passes  19, 1.00 tokens each", stats)


def test_a_seed_gives_the_same_text_again(tiny_llama: Path, file: Path) -> None:
    drawn = edit(tiny_llama, "--force", *FEW, "-T", "2", file)
    seed = drawn.stderr.decode().strip().rpartition("; seed ")[2]
    assert edit(tiny_llama, "--force", *FEW, "-T", "2", "--seed", seed, file).stdout == drawn.stdout
    assert edit(tiny_llama, "--force", *FEW, "-T", "2", "--seed", "1", file).stdout != drawn.stdout


# what can be wrong


def test_an_answer_that_was_cut_off_is_refused(tiny_llama: Path, file: Path) -> None:
    for options in ("-w",), (), ("-o", file.with_name("b.txt")):
        done = edit(tiny_llama, *FEW, *options, file)
        (error,) = errors(done)
        assert error.startswith(f"Error: {file}: the answer for lines 1 to 2 was cut off before its end")
        assert done.stdout == b""
        assert file.read_text() == TEXT
        assert list(file.parent.iterdir()) == [file]


def test_other_files_go_on(tiny_llama: Path, file: Path, nonsense: str) -> None:
    folder = file.parent
    (folder / "empty").write_bytes(b"")
    (folder / "binary").write_bytes(b"\0\1")
    (folder / "latin").write_bytes(b"caf\xe9")
    (folder / "blank").write_bytes(b" \n")
    (folder / "b\x1b.txt").write_text(TEXT)
    names = ["empty", "binary", "latin", "missing", "blank", ".", "a.txt", "b\x1b.txt"]
    done = edit(tiny_llama, "--force", *FEW, "-w", *names, folder=folder)
    assert [line.removeprefix("Error: ").split()[0] for line in errors(done)] == [
        "empty",
        "binary",
        "latin",
        "missing",
        "blank:",
        ".",
    ]
    assert (folder / "a.txt").read_text() == (folder / "b\x1b.txt").read_text() == nonsense
    assert b"\x1b.txt" not in done.stderr  # nothing in a name controls the terminal
    assert b"40 tokens in 2 texts" in done.stderr


def test_no_model_is_loaded_for_files_that_cannot_be_read(tmp_path: Path) -> None:
    done = edit(tmp_path / "missing.gguf", tmp_path / "missing.txt")
    assert errors(done) == [f"Error: {tmp_path}/missing.txt does not exist"]


def test_no_model_is_loaded_for_what_cannot_be_written(tmp_path: Path, file: Path) -> None:
    for output, problem in (tmp_path, "is a folder"), (tmp_path / "no" / "b", "there is no such folder"):
        (error,) = errors(edit(tmp_path / "missing.gguf", "-o", output, file))
        assert error.startswith(f"Error: {output} ")
        assert problem in error


def test_a_model_that_is_missing_is_told_once(tmp_path: Path, file: Path) -> None:
    done = edit(tmp_path / "missing.gguf", file, file)
    (error,) = errors(done)
    assert "missing.gguf can't be read" in error


def test_a_model_without_a_chat_template_is_told_once(tmp_path: Path, file: Path) -> None:
    model = tiny.write_model(tmp_path / "base.gguf", template=None)
    (error,) = errors(edit(model, file, file))
    assert "has no chat template" in error


def test_lines_that_are_not_there_are_told(tiny_llama: Path, file: Path) -> None:
    assert "no line 3 to edit: the text has 2" in errors(edit(tiny_llama, "--lines", "3:", file))[0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-", "a"), "can't be edited together with files"),
        (("-w",), "--in-place needs files"),
        (("--backup", "a"), "--backup means nothing without --in-place"),
        (("-w", "-o", "b", "a"), "can't be had together"),
        (("-o", "b", "a", "c"), "one FILE only"),
        (("-i", " ", "a"), "--instruction is empty"),
        (("--lines", "0:1", "a"), "'0:1' has no lines"),
        (("--lines", "3:2", "a"), "'3:2' has no lines"),
        (("--lines", "x", "a"), "'x' is no range of lines"),
        (("--lines", "1:2:3", "a"), "'1:2:3' is no range of lines"),
        (("--encoding", "no-such", "a"), "'no-such' is no encoding"),
        (("-n", "0", "a"), "0 is not in the range"),
    ],
)
def test_a_wrong_option_is_a_usage_error(tiny_llama: Path, arguments: tuple[str, ...], problem: str) -> None:
    assert problem in the_usage_error(edit(tiny_llama, *arguments))


def test_an_instruction_is_needed(tiny_llama: Path) -> None:
    done = subprocess.run([LCSPEC, "edit", "a"], capture_output=True, timeout=PATIENCE)
    assert "Missing option '-i' / '--instruction'" in the_usage_error(done)


def test_a_pipe_closed_early_ends_quietly(tiny_llama: Path, file: Path) -> None:
    started = subprocess.Popen(
        command(tiny_llama, "--force", *FEW, file), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.close()
    assert started.stderr is not None
    told = started.stderr.read()
    assert started.wait(PATIENCE) == 141
    assert b"Traceback" not in told


def test_a_full_output_is_told(tiny_llama: Path, file: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(tiny_llama, "--force", *FEW, file), stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE
        )
    assert done.returncode == 1
    assert b"No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr
    (error,) = errors(edit(tiny_llama, "--force", *FEW, "-o", "/dev/full", file))
    assert error == "Error: /dev/full can't be written: No space left on device"


# terminals, Ctrl-C and worse


def test_a_terminal_has_colours_and_a_bar(tiny_llama: Path, file: Path) -> None:
    for colours in True, False:
        environment = dict(os.environ, TERM="xterm", **({} if colours else {"NO_COLOR": "1"}))
        arguments = command(tiny_llama, "--force", *FEW, "[a].txt")[1:]
        (file.parent / "[a].txt").write_text(TEXT)
        terminal = pexpect.spawn(
            LCSPEC, arguments, timeout=PATIENCE, encoding="utf-8", cwd=file.parent, env=environment
        )
        terminal.expect(r"\[a\]\.txt .*100%")
        terminal.expect(pexpect.EOF)
        assert ("\x1b[31m-abcabcabcabc\x1b[0m\r\n" in terminal.before) == colours
        assert ("\r\n-abcabcabcabc\r\n" in terminal.before) != colours
        assert "\x19" not in terminal.before  # of the nonsense, nothing controls the terminal
        terminal.close()
        assert terminal.exitstatus == 0


def test_quiet_has_no_bar(tiny_llama: Path, file: Path) -> None:
    arguments = command(tiny_llama, "--force", *FEW, "--quiet", "-w", str(file))[1:]
    terminal = pexpect.spawn(LCSPEC, arguments, timeout=PATIENCE, encoding="utf-8")
    terminal.expect(pexpect.EOF)
    assert terminal.before == ""


def test_no_file_on_a_terminal_is_a_usage_error(tiny_llama: Path) -> None:
    terminal = pexpect.spawn(LCSPEC, command(tiny_llama)[1:], timeout=PATIENCE, encoding="utf-8")
    terminal.expect("Error: there is no FILE")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2


def test_ctrl_c_leaves_the_file(tiny_llama: Path, file: Path) -> None:
    long = TEXT * 2000
    file.write_text(long)
    terminal = pexpect.spawn(
        LCSPEC, command(tiny_llama, "--force", "-w", str(file))[1:], timeout=PATIENCE, encoding="utf-8"
    )
    terminal.expect(r"\d%")
    terminal.sendintr()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 130
    assert "Traceback" not in terminal.before
    assert file.read_text() == long
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_changes_meanwhile_is_left_alone(tiny_llama: Path, file: Path) -> None:
    file.write_text(TEXT * 20)
    terminal = pexpect.spawn(
        LCSPEC, command(tiny_llama, "--force", "-w", str(file))[1:], timeout=PATIENCE, encoding="utf-8"
    )
    terminal.expect(r"\d%")
    file.write_text("of someone else")
    terminal.expect(r"was\s+changed\s+meanwhile,\s+so\s+it\s+is\s+left\s+as\s+it\s+is\s+now")  # wrapped somewhere
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 1
    assert file.read_text() == "of someone else"


def test_a_killed_command_leaves_the_old_or_the_new_file(tiny_llama: Path, file: Path) -> None:
    rest = b"x" * 79 + b"\n"
    old = TEXT.encode() + rest * 300_000
    random.seed(2)
    unfinished = 0
    for _ in range(3):
        file.write_bytes(old)
        started = subprocess.Popen(
            command(tiny_llama, "--force", *FEW, "-w", "-q", "--lines", "1:2", file), stderr=subprocess.PIPE
        )
        while started.poll() is None and len(list(file.parent.iterdir())) == 1:
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.03))
        started.send_signal(signal.SIGKILL)
        started.wait(PATIENCE)
        new = file.read_bytes()
        assert new == old or (new.endswith(b"\n" + rest * 300_000) and not new.startswith(b"abc"))
        for other in file.parent.iterdir():
            if other != file:
                other.unlink()
                unfinished += 1
    assert unfinished > 0  # it was killed while it wrote
