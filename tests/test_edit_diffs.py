"""Unified diffs, as other programs apply them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcspec.cli.diffs import can_apply, print_diff
from lcspec.tasks.text_file import TextFile

GIT = ["git", "apply", "--whitespace=nowarn", "-"]
PATCH = ["patch", "-p1", "--quiet", "--no-backup-if-mismatch"]
PROGRAMS = [
    pytest.param(
        program, marks=pytest.mark.skipif(shutil.which(program[0]) is None, reason=f"there is no {program[0]}")
    )
    for program in (GIT, PATCH)
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    return tmp_path


def diff_of(file: TextFile, edited: str, capture: pytest.CaptureFixture[bytes]) -> bytes:
    capture.readouterr()
    print_diff(file, edited)
    return capture.readouterr().out


def apply(program: list[str], diff: bytes) -> None:
    done = subprocess.run(program, input=diff, capture_output=True)
    assert done.returncode == 0, (done.stdout, done.stderr, diff)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "name",
    ["a.txt", "two words.txt", "sub/folder/ä.txt", 'quo"te.txt', "tab\there.txt", "back\\slash", "line\nend", "-"],
)
def test_a_diff_finds_its_file(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes], program: list[str], name: str
) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one\ntwo\n")
    for used in (Path(name), path):
        file = TextFile.read(used)
        apply(program, diff_of(file, file.text.replace("two", "2") + "x\n", capfdbinary))
    assert path.read_text() == "one\n2\nx\nx\n"


def test_a_file_outside_is_named_from_the_root(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (folder / "sub").mkdir()
    (folder / "a.txt").write_text("one\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "sub")
        diff = diff_of(TextFile.read(Path("../a.txt")), "two\n", capfdbinary)
    assert diff.splitlines()[0] == b"--- a" + str(folder / "a.txt").encode()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b"one\r\ntwo\r\nthree\r\n", None),
        (b"one\ntwo\nthree", None),
        (b"one\ntwo", None),
        (b"two", None),
        (b"\xef\xbb\xbftwo\nthree\n", None),
        (b"caf\xe9\ntwo\n", "latin-1"),
        (b"one\rtwo\rthree\n", None),
        ("a\u2028two\x0c\x1c\x85\n".encode(), None),
        ("größer\ntwo 日本\n".encode(), None),
        (b"caf\x83\x65\ntwo\n", "shift-jis"),
    ],
)
def test_a_diff_is_in_the_bytes_of_the_file(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes], program: list[str], content: bytes, encoding: str | None
) -> None:
    path = folder / "a.txt"
    for old, new in ("two", "2"), ("two", "2\n"), ("two", "two\nthree"):
        path.write_bytes(content)
        file = TextFile.read(path, encoding)
        edited = file.text.replace(old, new)
        apply(program, diff_of(file, edited, capfdbinary))
        assert path.read_bytes() == content.replace(old.encode(), new.encode())


LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "- c\n", "+++ d\n", "@@ -1 +1 @@\n", "\\ e\n"]), max_size=12)


@pytest.mark.parametrize("program", PROGRAMS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=LINES, after=LINES, ends=st.sampled_from(["", "x"]), ends_after=st.sampled_from(["", "x"]))
def test_any_change_can_be_applied(
    folder: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    program: list[str],
    before: list[str],
    after: list[str],
    ends: str,
    ends_after: str,
) -> None:
    old, new = "a\n" + "".join(before) + ends, "a\n" + "".join(after) + ends_after
    path = folder / "a.txt"
    path.write_text(old)
    diff = diff_of(TextFile.read(path), new, capfdbinary)
    assert bool(diff) == (old != new)
    if diff:
        apply(program, diff)
    assert path.read_text() == new


def test_utf_16_is_shown_as_utf_8_and_said_not_to_apply(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (folder / "a.txt").write_text("größer\n", encoding="utf-16")
    file = TextFile.read(Path("a.txt"))
    assert diff_of(file, "kleiner\n", capfdbinary).splitlines()[2:] == [b"@@ -1 +1 @@", "-größer".encode(), b"+kleiner"]
    assert not can_apply(file)
    assert can_apply(TextFile.of("a", b"a"))
    assert can_apply(TextFile.of("a", b"a", "cp1252"))
