"""The prompts of frequent tasks: what reaches the model, and what is wrong with templates."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from lcspec import FileError, PromptError, SpeculativeLM
from lcspec.cli import main
from lcspec.tasks.templates import Template, find_template, template_names

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
PATIENCE = 60  # seconds until a test gives up, not what anything should take
CTX = 500
OPTIONS = ("-t", "1", "-c", str(CTX), "-n", "12", "--drafter", "none", "-q")

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a template of the user's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / "config" / "lcspec" / "templates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[SpeculativeLM]:
    with SpeculativeLM(tiny_llama, drafter="none", n_ctx=CTX, threads=1) as engine:
        yield engine


def generate(model: Path, *arguments: str, stdin: str = "", status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["generate", "-m", str(model), *OPTIONS, *arguments], input=stdin)
    assert result.exit_code == status, result.output
    return result


def answer(engine: SpeculativeLM, prompt: str, system: str | None = None) -> str:
    messages = [{"role": "system", "content": system}] if system else []
    return engine.chat([*messages, {"role": "user", "content": prompt}], max_tokens=12).text


def the_error(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert result.stdout == ""
    return line


# those that come with lcspec


def test_the_text_is_put_into_the_place_of_the_template(tiny_llama: Path, engine: SpeculativeLM) -> None:
    prompt = find_template("fix-grammar").prompt
    assert prompt.endswith("\n\n$input")
    expected = answer(engine, prompt.replace("$input", "He go."))
    assert expected != answer(engine, prompt.replace("$input", "He went."))
    assert generate(tiny_llama, "--template", "fix-grammar", "He go.").stdout == expected
    assert generate(tiny_llama, "--template", "fix-grammar", stdin="He go.").stdout == expected
    assert generate(tiny_llama, "--template", "fix-grammar", "-", stdin="He go.").stdout == expected


def test_a_parameter_is_put_into_its_place(tiny_llama: Path, engine: SpeculativeLM) -> None:
    prompt = find_template("translate").prompt.replace("$input", "$5").replace("$language", "Swiss German")
    text = generate(tiny_llama, "--template", "translate", "--param", "language=Swiss German", "$5").stdout
    assert text == answer(engine, prompt)


def test_a_parameter_may_have_a_default() -> None:
    explain = find_template("explain")
    assert explain.parameters == ("audience",)
    assert "new to it" in explain.fill("x", {})[1]
    assert "a child" in explain.fill("x", {"audience": "a child"})[1]


def test_every_shipped_template_says_what_it_is_for_and_takes_a_text() -> None:
    assert template_names()[:4] == ["fix-grammar", "translate", "explain", "commit-message"]
    for name in template_names()[:4]:
        template = find_template(name)
        assert template.about
        assert template.has_input


def test_another_system_message_takes_the_place_of_the_templates(
    tiny_llama: Path, engine: SpeculativeLM, write: Write
) -> None:
    write("pirate.toml", 'system = "Speak as $who."\nprompt = "Say: $input"\ndefaults = { who = "a pirate" }\n')
    ask = ("--template", "pirate", "hello")
    assert generate(tiny_llama, *ask).stdout == answer(engine, "Say: hello", "Speak as a pirate.")
    assert generate(tiny_llama, *ask, "-p", "who=a cat").stdout == answer(engine, "Say: hello", "Speak as a cat.")
    assert generate(tiny_llama, *ask, "--system", "Be calm.").stdout == answer(engine, "Say: hello", "Be calm.")
    raw = engine.generate("Speak as a pirate.\n\nSay: hello", max_tokens=12).text
    assert generate(tiny_llama, *ask, "--raw").stdout == raw


def test_a_system_message_without_a_template(tiny_llama: Path, engine: SpeculativeLM) -> None:
    assert generate(tiny_llama, "-s", "Be calm.", "hello").stdout == answer(engine, "hello", "Be calm.")
    result = generate(tiny_llama, "--raw", "-s", "Be calm.", "hello", status=2)
    assert "--raw has no place for a --system message" in result.stderr


# a diff


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "new.txt").write_text("hello\n")
    return folder


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=True, text=True)
    return done.stdout


def on_terminal(folder: Path, *arguments: str | Path) -> tuple[str, int | None]:
    """Run lcspec on a terminal, with its standard output in a file; return that, or what it said, and the status."""
    file = folder.parent / "stdout"
    command = ["-c", 'file=$1; shift; exec "$@" > "$file"', "sh", str(file), LCSPEC, *map(str, arguments)]
    terminal = pexpect.spawn("/bin/sh", command, timeout=PATIENCE, encoding="utf-8", cwd=str(folder))
    terminal.expect(pexpect.EOF)
    terminal.close()
    return file.read_text() or str(terminal.before).strip(), terminal.exitstatus


def test_a_commit_message_is_about_what_is_staged(tiny_llama: Path, engine: SpeculativeLM, repository: Path) -> None:
    command = ("generate", "-m", tiny_llama, *OPTIONS, "--template", "commit-message")
    said, status = on_terminal(repository, *command)
    assert said == "Error: nothing is staged: `git add` what the commit should have, or pipe a diff in"
    assert status == 1
    git(repository, "add", "new.txt")
    diff = git(repository, "diff", "--staged")
    expected = answer(engine, find_template("commit-message").prompt.replace("$input", diff))
    assert "+hello" in diff
    assert on_terminal(repository, *command) == (expected, 0)
    assert generate(tiny_llama, "--template", "commit-message", stdin=diff).stdout == expected


def test_outside_of_a_repository_a_diff_has_to_be_piped_in(tiny_llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    said, status = on_terminal(folder, "generate", "-m", tiny_llama, "--template", "commit-message")
    assert said == "Error: this folder is in no git repository: pipe a diff in, as of `git diff`"
    assert status == 1


def test_what_git_does_not_like_is_told(tiny_llama: Path, repository: Path) -> None:
    (repository / ".git" / "config").write_text("[nonsense\n")
    said, status = on_terminal(repository, "generate", "-m", tiny_llama, "--template", "commit-message")
    assert re.fullmatch(r"Error: git gives no diff \(.*config.*\): pipe one in", said)
    assert status == 1


def test_without_git_a_diff_has_to_be_piped_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lcspec.tasks.templates import staged_diff

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PromptError, match="git can't be run to ask for a diff"):
        staged_diff()


@pytest.mark.parametrize("diff", ["", " \n\n"])
def test_an_empty_diff_is_an_error(
    tiny_llama: Path, diff: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = generate(tiny_llama, "--template", "commit-message", stdin=diff, status=1)
    assert "in no git repository" in the_error(result), "as what is staged is taken then"


# what can be wrong


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--template", "fix-gramar", "x"), "there is no template 'fix-gramar'; did you mean fix-grammar?"),
        (("--template", "zzz", "x"), "there is no template 'zzz'; `lcspec templates` lists those there are"),
        (("--template", "../config", "x"), "there is no template '../config'"),
        (("--template", "", "x"), "there is no template ''"),
        (("--template", "translate", "x"), "the template translate needs a language: --param language=..."),
        (("--template", "translate", "-p", "to=x", "x"), "has no parameter 'to': it has language"),
        (("--template", "fix-grammar", "-p", "to=x", "x"), "has no parameter 'to': it has none"),
        (("--template", "fix-grammar", "-p", "input=x", "x"), "has no parameter 'input'"),
        (("--template", "fix-grammar", ""), "needs a text"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_a_model_is_looked_for(
    arguments: tuple[str, ...], reason: str
) -> None:
    assert reason in the_error(generate(Path("absent.gguf"), *arguments, status=1))


def test_parameters_need_a_template_and_a_value() -> None:
    assert "--param needs a --template" in generate(Path("x.gguf"), "-p", "a=b", "x", status=2).stderr
    result = generate(Path("x.gguf"), "--template", "translate", "-p", "German", "x", status=2)
    assert "--param takes NAME=VALUE, not 'German'" in result.stderr


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("own.toml", 'prompt = "a\n', "(at line 1, column"),
        ("own.toml", 'promt = "a"\n', "there is no key 'promt'; there are about, prompt, system, defaults, git_diff"),
        ("own.toml", 'about = "a"\n', "it has no prompt"),
        ("own.toml", "prompt = 3\n", "prompt is 3, not a text"),
        ("own.toml", 'prompt = "a"\ndefaults = "b"\n', "defaults is 'b', not a table"),
        ("own.txt", " \n", "it has no prompt"),
        ("own.txt", "it costs $5: $input", "a dollar in the prompt begins no name; a dollar as such is written $$"),
        ("own.txt", b"caf\xe9", "is no text in UTF-8"),
        ("own.toml", b"prompt = 'caf\xe9'", "is no text in UTF-8 (line 1)"),
    ],
)
def test_a_template_of_ones_own_that_is_wrong_is_said_in_one_line(
    write: Write, name: str, content: str | bytes, reason: str
) -> None:
    path = write(name, content)
    error = the_error(generate(Path("absent.gguf"), "--template", "own", "x", status=1))
    assert str(path) in error
    assert reason in error
    rows = CliRunner().invoke(main, ["templates"]).stdout.splitlines()
    assert any(row.startswith("own ") and "can't be used: " in row for row in rows)


# those of one's own


def test_a_text_file_is_a_prompt_and_a_text_goes_behind_it(
    tiny_llama: Path, engine: SpeculativeLM, write: Write
) -> None:
    write("cheer.txt", "Cheer up for $$5\n")
    assert generate(tiny_llama, "--template", "cheer", "Zoé").stdout == answer(engine, "Cheer up for $5\n\nZoé")
    assert generate(tiny_llama, "--template", "cheer").stdout == answer(engine, "Cheer up for $5")


def test_ones_own_comes_before_a_shipped_one(write: Write) -> None:
    write("explain.txt", "What is $input?")
    assert find_template("explain").prompt == "What is $input?"
    assert template_names().count("explain") == 1


def test_templates_are_listed_and_shown(write: Write) -> None:
    path = write("pirate.toml", 'about = "like a pirate"\nsystem = "Arr."\nprompt = """\nSay: $input"""\n')
    write("notes.md", "no template")
    rows = CliRunner().invoke(main, ["templates"]).stdout.splitlines()
    assert rows[0].split() == ["name", "parameters", "what", "it", "does"]
    assert any(row.split()[:2] == ["translate", "language"] for row in rows)
    assert any(row.startswith("pirate ") and row.endswith("like a pirate") for row in rows)
    assert not any(row.startswith("notes") for row in rows)
    assert rows[-1] == f"Your own are looked for in {path.parent}"
    assert CliRunner().invoke(main, ["templates", "pirate"]).stdout == "system: Arr.\n\nSay: $input\n"
    shown = json.loads(CliRunner().invoke(main, ["templates", "pirate", "--json"]).stdout)
    assert (shown["prompt"], shown["file"], shown["parameters"]) == ("Say: $input", str(path), [])
    listed = json.loads(CliRunner().invoke(main, ["templates", "--json"]).stdout)
    assert [one["name"] for one in listed] == template_names()
    assert "did you mean translate?" in CliRunner().invoke(main, ["templates", "translat"]).stderr


def test_what_is_no_file_is_no_template_and_a_broken_one_stops_no_list(write: Write) -> None:
    good = write("good.txt", "Say it")
    write("broken.toml", "= 3")
    for name, target in ("loop.txt", "loop.txt"), ("gone.toml", "nowhere"), ("zero.txt", "/dev/zero"):
        (good.parent / name).symlink_to(target)
    (good.parent / "folder.toml").mkdir()
    assert template_names()[4:] == ["broken", "good"]
    listed = CliRunner().invoke(main, ["templates"])
    assert listed.exit_code == 0
    assert "good" in listed.stdout
    as_json = CliRunner().invoke(main, ["templates", "--json"])
    assert [one["name"] for one in json.loads(as_json.stdout)][4:] == ["good"]
    assert "broken can't be used: " in as_json.stderr
    with pytest.raises(FileError, match="is a device or a pipe"):
        find_template("zero")


@given(text=st.text(min_size=1).filter(str.strip), value=st.text())
def test_texts_and_values_are_put_in_as_they_are(text: str, value: str) -> None:
    template = Template("any", "before $input between ${what} behind $$", system="$what")
    assert template.fill(text, {"what": value}) == (value, f"before {text} between {value} behind $")


@pytest.mark.real
def test_a_real_model_corrects_a_sentence(smollm2: Path) -> None:
    command = [LCSPEC, "generate", "-m", str(smollm2), "-t", "1", "-n", "40", "--template", "fix-grammar"]
    done = subprocess.run([*command, "She go to school yesterday."], capture_output=True, timeout=PATIENCE, text=True)
    assert done.returncode == 0
    assert "school" in done.stdout
    assert os.linesep not in done.stderr.strip()
