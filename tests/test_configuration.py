"""Where the value of an option is from: command line, environment, configuration file, what is built in."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from lcspec.cli import main
from lcspec.toml_file import parse_toml, with_value

PATIENCE = 60  # seconds until a test gives up, not what anything should take

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the configuration file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "config" / "lcspec" / "config.toml"

    def write(text: str | bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def lcspec(*arguments: str | Path, status: int = 0, **environment: str) -> Result:
    result = CliRunner().invoke(main, list(map(str, arguments)), env=environment)
    assert result.exit_code == status, result.output
    return result


def the_error(result: Result) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


def in_force(**environment: str) -> dict[tuple[str | None, str], tuple[Any, str]]:
    """Return value and source of each option as `lcspec config` shows them."""
    rows = json.loads(lcspec("config", "--json", **environment).stdout)
    return {(row["command"], row["option"]): (row["value"], row["source"]) for row in rows}


FILE = "seed = 3\ntemperature = 1.0\n"
TABLE = "[generate]\nseed = 4\n"


@pytest.mark.parametrize(
    ("options", "environment", "file", "seed"),
    [
        ((), {}, "", None),
        ((), {}, FILE, 3),
        ((), {}, FILE + TABLE, 4),
        ((), {"LCSPEC_SEED": "5"}, FILE + TABLE, 5),
        (("--seed", "6"), {"LCSPEC_SEED": "5"}, FILE + TABLE, 6),
        (("--seed", "6"), {}, "", 6),
        ((), {"LCSPEC_SEED": "5"}, "", 5),
        ((), {"LCSPEC_SEED": ""}, FILE, 3),
        ((), {}, FILE + "[chat]\nseed = 7\n", 3),
    ],
    ids=lambda value: str(value).replace("\n", " "),
)
def test_an_option_comes_before_the_environment_a_table_the_top_of_the_file_and_what_is_built_in(
    tiny_llama: Path,
    write: Write,
    options: tuple[str, ...],
    environment: dict[str, str],
    file: str,
    seed: int | None,
) -> None:
    write(file)
    command = [sys.executable, "-m", "lcspec", "generate", "-m", str(tiny_llama), "-t", "1", "-c", "200", "-n", "2"]
    command += ["--raw", "--json", "--temp", "1", *options, "ab"]
    done = subprocess.run(
        command, capture_output=True, env=os.environ | environment, stdin=subprocess.DEVNULL, timeout=PATIENCE
    )
    drawn = json.loads(done.stdout)["seed"]
    assert drawn > 1000 if seed is None else drawn == seed


def test_the_configured_model_is_the_default(tiny_llama: Path, write: Write) -> None:
    write(f'model = "{tiny_llama}"\nthreads = 1\nctx = 200\nquiet = true\n[generate]\nmax-tokens = 2\nraw = true\n')
    result = lcspec("generate", "ab")
    assert result.stdout
    assert result.stderr == ""
    assert "lcspec: " in lcspec("generate", "--no-quiet", "ab").stderr
    assert "absent.gguf can't be read" in lcspec("generate", "-m", "absent.gguf", "ab", status=1).stderr
    assert "absent.gguf can't be read" in lcspec("generate", "ab", status=1, LCSPEC_MODEL="absent.gguf").stderr


def test_values_in_force_are_shown_with_where_they_are_from(write: Write) -> None:
    path = write('model = "one"\nlogit-bias = ["5=1", "6=-inf"]\nexact = true\n[chat]\nsystem = "Be brief."\n')
    found = in_force(LCSPEC_DRAFT="two", LCSPEC_STORE="1")
    assert found[None, "model"] == ("one", str(path))
    assert found[None, "draft"] == ("two", "LCSPEC_DRAFT")
    assert found[None, "drafter"] == ("auto", "built in")
    assert found[None, "threads"] == (None, "built in")
    assert found[None, "store"] == (True, "LCSPEC_STORE")
    assert found[None, "exact"] == (True, str(path))
    assert found[None, "logit-bias"] == (["5=1", "6=-inf"], str(path))
    assert found["chat", "system"] == ("Be brief.", str(path))
    lines = lcspec("config").stdout.splitlines()
    assert lines[0].split() == ["option", "value", "from"]
    assert any(line.split() == ["model", "one", str(path)] for line in lines)
    assert any(line.split() == ["[chat]", "system", "Be", "brief.", str(path)] for line in lines)


def test_the_environment_comes_before_a_table(write: Write) -> None:
    write("temperature = 0.1\n[chat]\ntemperature = 0.2\n")
    assert in_force(LCSPEC_TEMPERATURE="0.3")["chat", "temperature"] == (0.3, "LCSPEC_TEMPERATURE")


def test_without_a_file_all_is_built_in(write: Write, tmp_path: Path) -> None:
    assert {source for _, source in in_force().values()} == {"built in"}
    assert lcspec("config", "path").stdout.strip() == str(tmp_path / "config" / "lcspec" / "config.toml")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('model = "a\n', "line 1, column"),
        ("exact = true\n\n= 3\n", "line 3, column 1"),
        ("exact = true\nexact = false\n", "line 2, column"),
        (b"exact = true\nmodel = 'caf\xe9'\n", "config.toml is no text in UTF-8 (line 2)"),
        ("thread = 4\n", "config.toml: there is no option 'thread'; did you mean 'threads'?"),
        ("max-tokens = 4\n", "config.toml: there is no option 'max-tokens'; `lcspec config` lists those that"),
        ("[chatt]\n", "config.toml: there is no command 'chatt'; did you mean 'chat'?"),
        ("[generate]\nmax-token = 4\n", "[generate]: generate has no option 'max-token'; did you mean 'max-tokens'?"),
        ("threads = 'four'\n", "config.toml: threads: 'four' is not a valid integer"),
        ("threads = 4.5\n", "config.toml: threads: '4.5' is not a valid integer"),
        ("threads = true\n", "config.toml: threads: 'True' is not a valid integer"),
        ("threads = 0\n", "config.toml: threads: 0 is not in the range"),
        ("threads = [1, 2]\n", "config.toml: threads: '[1, 2]' is not a valid integer"),
        ("exact = 3\n", "config.toml: exact: '3' is not a valid boolean"),
        ("drafter = 'magic'\n", "config.toml: drafter: 'magic' is not one of"),
        ("[generate]\nmodle-or-so = 1\n", "generate has no option 'modle-or-so'; `lcspec generate --help` lists"),
        ("[zzz]\n", "config.toml: there is no command 'zzz'; `lcspec --help` lists those there are"),
        (f"model = {'[' * 5000}", "config.toml: its values are nested too deeply"),
        ("#" * 1_000_001, "config.toml has more than 1,000,000 bytes"),
        ("[generate]\nstop = {a = 1}\n", "config.toml: [generate]: 'stop' is a table, not a value"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_of_one_line(write: Write, content: str | bytes, reason: str) -> None:
    path = write(content)
    for command in (("generate", "hello"), ("config",)):
        error = the_error(lcspec(*command, status=1))
        assert str(path) in error
        assert reason in error
    assert lcspec("generate", "--help").exit_code == 0
    assert lcspec("config", "path").exit_code == 0
    assert lcspec("completion", "bash").exit_code == 0
    assert lcspec().exit_code == 0


def test_what_cannot_be_read_is_an_error_of_one_line(write: Write) -> None:
    path = write("")
    path.unlink()
    path.mkdir()
    assert the_error(lcspec("generate", "hello", status=1)) == f"Error: {path} can't be read: Is a directory"
    path.rmdir()
    path.symlink_to(path)
    assert "can't be read: Too many levels of symbolic links" in the_error(lcspec("generate", "hello", status=1))
    path.unlink()
    path.symlink_to("/dev/zero")
    for command in ("generate", "hello"), ("config", "set", "threads", "1"):
        assert the_error(lcspec(*command, status=1)) == f"Error: {path} is a device or a pipe, not a file"
    if os.getuid():
        path.unlink()
        write("").chmod(0)
        assert "can't be read: Permission denied" in the_error(lcspec("generate", "hello", status=1))


def test_a_wrong_value_in_the_environment_is_an_error_that_names_the_variable() -> None:
    error = the_error(lcspec("generate", "hello", status=1, LCSPEC_THREADS="many"))
    assert error == "Error: LCSPEC_THREADS: 'many' is not a valid integer range."
    assert "LCSPEC_EXACT: 'maybe' is not a valid boolean" in lcspec("config", status=1, LCSPEC_EXACT="maybe").stderr


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("temperature", "nan", "temperature is nan; it must be 0 to 1e+06"),
        ("repeat-penalty", "0.0", "repeat_penalty is 0.0; it must be"),
        ("logit-bias", "5", "--logit-bias takes TOKEN=BIAS, a token's id and a number, not '5'"),
        ("logit-bias", "5=nan", "the logit_bias of token 5 is nan; it must be"),
        ("logit-bias", "-1=1", "a token of logit_bias is -1; it must be"),
    ],
)
def test_a_value_that_no_sampler_takes_is_an_error_that_says_where_it_stands(
    write: Write, name: str, value: str, reason: str
) -> None:
    variable = f"LCSPEC_{name.upper().replace('-', '_')}"
    assert the_error(lcspec("generate", "hello", status=1, **{variable: value})).startswith(
        f"Error: {variable}: {reason}"
    )
    assert f"Error: {reason}" in lcspec("generate", f"--{name}={value}", "hello", status=2).stderr
    path = write(f"{name} = {value if name != 'logit-bias' else repr(value)}\n")
    assert the_error(lcspec("generate", "hello", status=1)).startswith(f"Error: {path}: {name}: {reason}")


def test_options_for_drawing_may_wait_in_the_file_for_a_temperature(tiny_llama: Path, write: Write) -> None:
    write("top-p = 0.5\nrule = 'rejection'\nseed = 3\n")
    generate = ("generate", "-m", tiny_llama, "-t", "1", "-c", "200", "--raw", "-n", "2", "--json", "ab")
    assert json.loads(lcspec(*generate).stdout)["seed"] is None
    assert json.loads(lcspec(*generate, "-T", "1").stdout)["seed"] == 3
    assert "--top-p means nothing at temperature 0" in lcspec(*generate, "--top-p", "0.5", status=2).stderr


def test_a_draft_model_belongs_to_the_model_beside_it(tiny_llama: Path, tiny_draft: Path, write: Write) -> None:
    def drafts(*options: str | Path, **environment: str) -> bool:
        arguments = ("-t", "1", "-c", "200", "--raw", "-n", "20", "--json", *options, "ab")
        plan = json.loads(lcspec("generate", *arguments, **environment).stdout)["stats"]["plan"]
        return plan["draft_token_cost"] is not None

    write(f'model = "{tiny_llama}"\ndraft = "{tiny_draft}"\n')
    assert drafts()
    assert drafts("-m", tiny_llama)
    assert not drafts("-m", tiny_draft)
    assert not drafts(LCSPEC_MODEL=str(tiny_draft))
    assert drafts("-m", tiny_draft, "-d", tiny_llama)
    assert drafts("-m", tiny_draft, LCSPEC_MODEL="absent", LCSPEC_DRAFT=str(tiny_llama)) is False
    write(f'draft = "{tiny_draft}"\n[generate]\nmodel = "{tiny_llama}"\n')
    assert not drafts()
    write(f'[generate]\nmodel = "{tiny_llama}"\ndraft = "{tiny_draft}"\n')
    assert drafts()
    write(f'draft = "{tiny_draft}"\n')
    assert not drafts("-m", tiny_llama)


def test_what_is_switched_on_can_be_switched_off(write: Write) -> None:
    write("exact = true\nstats = true\n")
    assert in_force(LCSPEC_EXACT="0")[None, "exact"] == (False, "LCSPEC_EXACT")
    for option in ("--no-exact", "--no-store", "--no-learn", "--no-stats", "--no-quiet"):
        assert "smollm-" in lcspec("generate", option, "-m", "smollm-135m", "hello", status=1).stderr


def test_a_value_is_set_and_the_rest_of_the_file_stays(write: Write) -> None:
    path = write("")
    path.unlink()
    path.parent.rmdir()
    lcspec("config", "set", "model", "qwen2.5-coder-1.5b")
    lcspec("config", "set", "chat.max-tokens", "7")
    assert path.read_text() == 'model = "qwen2.5-coder-1.5b"\n\n[chat]\nmax-tokens = 7\n'
    path = write("# mine\nthreads = 1  # few\n\n[chat]  # talk\ntop_p = 0.5\n\n[generate]\nraw = true\n")
    lcspec("config", "set", "threads", "2")
    lcspec("config", "set", "exact", "true")
    lcspec("config", "set", "chat.top-p", "0.7")
    lcspec("config", "set", "chat.system", 'Be "brief".\\')
    assert path.read_text() == (
        "# mine\nthreads = 2\nexact = true\n\n"
        '[chat]  # talk\ntop-p = 0.7\nsystem = "Be \\"brief\\".\\\\"\n\n[generate]\nraw = true\n'
    )
    found = in_force()
    assert found["chat", "system"][0] == 'Be "brief".\\'
    assert found["chat", "top-p"][0] == 0.7


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("thread", "2", "there is no option 'thread'; did you mean 'threads'?"),
        ("threads", "many", "threads: 'many' is not a valid integer"),
        ("chatt.seed", "2", "there is no command 'chatt'; did you mean 'chat'?"),
        ("chat.sed", "2", "chat has no option 'sed'"),
        ("a b", "2", "'a b' is no name"),
        ("chat.top p", "2", "'top p' is no name"),
        ("logit-bias", "5=1", "can't be changed so: the value has several lines; `lcspec config edit` opens it"),
        ("", "2", "'' is no name"),
    ],
)
def test_a_value_that_cannot_be_set_changes_nothing(write: Write, key: str, value: str, reason: str) -> None:
    before = "logit-bias = [\n  '5=1',\n]\n"
    path = write(before)
    assert reason in the_error(lcspec("config", "set", key, value, status=1))
    assert path.read_text() == before


def test_a_broken_file_is_not_changed(write: Write) -> None:
    path = write("= 3\n")
    assert "line 1" in the_error(lcspec("config", "set", "threads", "2", status=1))
    assert path.read_text() == "= 3\n"


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_set(value: str) -> None:
    changed = with_value("a = 1\n", "chat", "system", value)
    system = parse_toml(Path("any"), changed.encode())["chat"]["system"]
    assert system == (value if isinstance(system, str) else json.loads(value))


def test_the_file_is_edited_and_checked(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("")
    path.unlink()
    editor = tmp_path / "editor"
    editor.write_text(f'#!{sys.executable}\nimport sys\nopen(sys.argv[-1], "a").write("threads = 2\\n")\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    assert "is in order" in lcspec("config", "edit").stderr
    assert in_force()[None, "threads"] == (2, str(path))
    assert path.read_text().startswith("# Defaults for options of lcspec")
    assert "config.toml: " in the_error(lcspec("config", "edit", status=1))  # now threads stands there twice
    monkeypatch.setenv("VISUAL", str(tmp_path / "no-editor"))
    assert "no-editor" in the_error(lcspec("config", "edit", status=1))
