"""`lcspec summarize` as a user meets it: files, pipes and terminals."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pexpect
import pytest
import tiny
from click.testing import CliRunner, Result
from test_cli import ENDLESS_PROMPT, LCSPEC, PATIENCE, Redirected

from lcspec import SpeculativeLM
from lcspec.cli import main
from lcspec.tasks.summarize import summarize_text

CTX, WORDS = 512, 20
TEXT = "Cats sleep. Dogs do not."
PAGE = "<!doctype html><title>Pets</title><script>x</script><p>Cats sleep.<p>Dogs do not."
LONG = "\n\n".join(f"Paragraph {i} is about the number {i}." for i in range(90))


@pytest.fixture
def model(tiny_llama: Path) -> list[str]:
    return ["summarize", "-m", str(tiny_llama), "-c", str(CTX), "-t", "1", "--words", str(WORDS)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pets.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "pets.html").write_text(PAGE, encoding="utf-8")
    (tmp_path / "long.md").write_text(LONG, encoding="utf-8")
    return tmp_path


def run(*arguments: str | Path, stdin: bytes | str = b"", status: int = 0) -> Result:
    with warnings.catch_warnings():  # the command replaces how warnings are shown
        result = CliRunner().invoke(main, list(map(str, arguments)), input=stdin)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.stderr
    return result


def loads(result: Result) -> Any:
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def test_stdout_is_the_summary_and_a_line_says_what_it_took(model: list[str], folder: Path, tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1) as engine:
        expected = summarize_text(engine, TEXT, words=WORDS).text
    result = run(*model, folder / "pets.txt")
    assert result.stdout == f"{expected}\n"
    *_, last = result.stderr.splitlines()
    assert re.match(r"lcspec: [\d,]+ tokens", last)
    assert run(*model, "--quiet", folder / "pets.txt").stderr == ""
    assert "target passes" in run(*model, "--stats", folder / "pets.txt").stderr


def test_standard_input_is_a_document_of_any_kind(model: list[str], folder: Path) -> None:
    text, page = (run(*model, folder / name).stdout for name in ("pets.txt", "pets.html"))
    assert text != page
    assert run(*model, stdin=TEXT).stdout == run(*model, "-", stdin=TEXT).stdout == text
    assert run(*model, stdin=PAGE).stdout == page


def test_several_files_become_one_summary(model: list[str], folder: Path, tiny_llama: Path) -> None:
    files = [folder / "pets.txt", folder / "pets.html"]
    summary = loads(run(*model, "--json", *files))
    assert summary["files"] == list(map(str, files))
    assert summary.keys() == {
        "files", "title", "summary", "bullets", "finish_reason", "pieces", "levels", "tokens", "stats", "seed",
    }  # fmt: skip
    assert (summary["title"], summary["bullets"], summary["pieces"], summary["levels"]) == (None, None, 1, 1)
    assert summary["tokens"] == summary["stats"]["tokens"] > 0
    text = f"# {files[0]}\n\n{TEXT}\n\n# {files[1]}\n\n# Pets\n\nCats sleep.\n\nDogs do not."
    with SpeculativeLM(tiny_llama, n_ctx=CTX, threads=1) as engine:
        assert summary["summary"] == summarize_text(engine, text, words=WORDS).text


def test_each_file_has_a_summary_of_its_own_if_wanted(model: list[str], folder: Path) -> None:
    files = [folder / "pets.txt", folder / "pets.html"]
    one, other = loads(run(*model, "--each", "--json", "--bullets", "--title", *files))
    assert [one["files"], other["files"]] == [[str(file)] for file in files]
    assert one["summary"] == "\n".join(f"- {bullet}" for bullet in one["bullets"])
    result = run(*model, "--each", "--bullets", "--title", *files)
    assert result.stdout == (
        f"# {files[0]}: {one['title']}\n\n{one['summary']}\n\n# {files[1]}: {other['title']}\n\n{other['summary']}\n"
    )
    assert "4 texts" in result.stderr.splitlines()[-1]


def test_one_file_of_each_needs_no_name(model: list[str], folder: Path) -> None:
    assert run(*model, "--each", folder / "pets.txt").stdout == run(*model, folder / "pets.txt").stdout


def test_a_bad_file_ends_everything_before_a_model_is_loaded(folder: Path) -> None:
    for name, said in ("none.md", "does not exist"), ("", "is a folder"):
        result = run("summarize", "-m", "no-such-model", folder / "pets.txt", folder / name, status=1)
        (line,) = result.stderr.splitlines()
        assert line.startswith("Error: ")
        assert said in line
        assert result.stdout == ""


def test_with_each_the_others_are_summarized(model: list[str], folder: Path) -> None:
    (folder / "empty.txt").touch()
    result = run(*model, "--each", folder / "empty.txt", folder / "pets.txt", status=1)
    assert result.stderr.startswith(f"Error: {folder / 'empty.txt'} is empty\n")
    assert result.stdout == run(*model, folder / "pets.txt").stdout
    result = run("summarize", "-m", "no-such-model", "--each", folder / "empty.txt", status=1)
    assert len(result.stderr.splitlines()) == 1


def test_an_encoding_can_be_named(model: list[str], folder: Path) -> None:
    (folder / "latin.txt").write_bytes("Größe".encode("latin-1"))
    assert "--encoding" in run(*model, folder / "latin.txt", status=1).stderr
    assert run(*model, "--encoding", "latin-1", folder / "latin.txt").stdout


@pytest.mark.parametrize(
    "arguments", [["--words", "0"], ["-", "-"], ["--rule", "coupled"], ["--encoding", "klingon"]], ids=" ".join
)
def test_wrong_use_has_status_2(model: list[str], arguments: list[str]) -> None:
    assert "Error: " in run(*model, *arguments, stdin=TEXT, status=2).stderr


def test_words_that_do_not_fit_are_one_line(model: list[str]) -> None:
    (line,) = run(*model, "--words", "1000", stdin=TEXT, status=1).stderr.splitlines()
    assert "--ctx" in line


def test_a_drawn_seed_is_told(model: list[str]) -> None:
    result = run(*model, "-T", "1.0", stdin=TEXT)
    seed = re.search(r"; seed (\d+)$", result.stderr.strip())
    assert seed
    assert run(*model, "-T", "1.0", "--seed", seed[1], stdin=TEXT).stdout == result.stdout


def test_without_a_terminal_a_quiet_line_tells_the_number_of_pieces(model: list[str], folder: Path) -> None:
    result = run(*model, folder / "long.md")
    assert re.match(r"lcspec: \d+ pieces are summarized, then their summaries\n", result.stderr)
    assert "\x1b" not in result.stderr
    assert run(*model, "-q", folder / "long.md").stderr == ""


def test_help_has_examples() -> None:
    usage = run("summarize", "--help").stdout
    assert "one summary, unless you ask for" in usage
    assert re.search(r"^ +lcspec summarize ", usage, re.MULTILINE)


# on a terminal


def on_terminal(*arguments: str) -> "pexpect.spawn[str]":
    return pexpect.spawn(LCSPEC, list(arguments), timeout=PATIENCE, encoding="utf-8", dimensions=(24, 120))


def test_no_file_on_a_terminal_is_wrong_use(model: list[str]) -> None:
    terminal = on_terminal(*model)
    terminal.expect("Error: there is no FILE")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 2


def test_a_bar_counts_the_pieces_and_goes_away(model: list[str], folder: Path) -> None:
    expected = run(*model, "--quiet", "--exact", folder / "long.md").stdout
    pieces = loads(run(*model, "--json", folder / "long.md"))["pieces"]
    terminal = on_terminal(*model, "--exact", str(folder / "long.md"))
    terminal.expect(rf"pieces [^\r\n]*[^\d]1/{pieces}[^\d]")
    terminal.expect(r"summaries, level 2 [^\r\n]*[^\d]0/\d")
    terminal.expect("summary ")
    terminal.expect("lcspec: ")
    shown = str(terminal.before)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    ends = expected.strip().splitlines()[-1][-10:]
    assert ends in shown
    quiet = pexpect.run(f"{LCSPEC} {' '.join(model)} -q {folder / 'long.md'}", encoding="utf-8")
    assert "level" not in quiet


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_keeps_what_was_written(tiny_llama: Path, tmp_path: Path, as_json: bool) -> None:
    (tmp_path / "endless.txt").write_text(ENDLESS_PROMPT, encoding="utf-8")
    options = ["-m", str(tiny_llama), "-c", "100000", "-t", "1", "--drafter", "none", "--words", "20000"]
    options += ["--logit-bias", f"{tiny.EOS}=-inf", "--logit-bias", f"{tiny.END_OF_TURN}=-inf"]
    options += ["--json"] if as_json else []
    command = Redirected.start(tmp_path, "--debug", "summarize", *options, str(tmp_path / "endless.txt"))
    command.terminal.expect("sched_reserve: reserve took")
    command.terminal.expect(pexpect.TIMEOUT, timeout=1)
    stderr = command.interrupt()
    written = command.file.read_text(encoding="utf-8").strip()
    assert written
    if as_json:
        summary = json.loads(written)
        assert summary["summary"]
        assert summary["finish_reason"] == "cancelled"
    assert re.search(r"lcspec: [\d,]+ tokens, ", stderr)
    assert "Traceback" not in stderr


def test_ctrl_c_between_pieces_writes_nothing(tiny_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text(LONG * 20, encoding="utf-8")
    options = ["-m", str(tiny_llama), "-c", str(CTX), "-t", "1", "--words", str(WORDS)]
    command = Redirected.start(tmp_path, "summarize", *options, str(tmp_path / "long.txt"))
    command.terminal.expect(r"\D3/\d")
    stderr = command.interrupt()
    assert command.file.read_bytes() == b""
    assert re.search(r"lcspec: [\d,]+ tokens in ", stderr)


# a real model


@pytest.mark.real
def test_a_real_page_is_summarized(smollm2: Path, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(
        "<html><head><title>Ellwick</title></head><body><nav>Home</nav><h1>The library stays open longer</h1>"
        "<p>The library of Ellwick will stay open until ten in the evening from September on. The town council agreed"
        " on Monday to pay for two more librarians.<p>Students had asked for it for three years.</body></html>",
        encoding="utf-8",
    )
    result = run("summarize", "-m", smollm2, "-t", "1", "-c", "1024", "--words", "40", tmp_path / "page.html")
    assert "library" in result.stdout
    assert result.stdout.rstrip().endswith(".")
