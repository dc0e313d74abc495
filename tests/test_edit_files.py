"""Real files, edited by the real SmolLM2-135M: what must not change is the same to the byte."""

import argparse
import codecs
import keyword
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from importlib.metadata import files as files_of
from pathlib import Path

import pytest

from lcspec import SpeculativeLM
from lcspec.tasks.edit import edit_text
from lcspec.tasks.line_endings import lines_of
from lcspec.tasks.text_file import TextFile

pytestmark = pytest.mark.real

LCSPEC = str(Path(sys.executable).with_name("lcspec"))
PATIENCE = 120
FIRST, LAST = 3, 6  # the lines that are edited
YAML = """\
services:
  web:
    image: nginx:1.19
    ports:
      - "80:80"
    replicas: 2
  api:
    image: python:3.9
    ports:
      - "8000:8000"
    replicas: 2
  worker:
    image: python:3.9
    replicas: 2
"""
LETTER = "Dear Ann,\n\nyesterday we went too the park and seen many bird.\nIt was realy nice.\n\nYours, Bob\n"


@dataclass(frozen=True)
class RealFile:
    """A text, and how it is written."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    mode: int = 0o644

    @property
    def content(self) -> bytes:
        return self.mark + self.text.encode(self.encoding)

    def text_of(self, content: bytes) -> str:
        assert content.startswith(self.mark)
        return content.removeprefix(self.mark).decode(self.encoding)


def source(module: object) -> str:
    return Path(str(getattr(module, "__file__", ""))).read_text(encoding="utf-8")


def licence() -> str:
    """A real text in English: the licence of a package that is installed."""
    found = next(file for file in files_of("click") or () if "LICENSE" in file.name)
    return Path(str(found.locate())).read_text(encoding="utf-8")


ROOT = Path(__file__).parents[1]
FILES = {
    "textwrap.py": RealFile(source(textwrap), mode=0o755),
    "argparse.py": RealFile(source(argparse), mode=0o600),
    "README.md": RealFile((ROOT / "README.md").read_text(encoding="utf-8")),
    "pyproject.toml": RealFile((ROOT / "pyproject.toml").read_text(encoding="utf-8"), mode=0o640),
    "compose.yaml": RealFile(YAML),
    "licence-crlf.txt": RealFile(licence().replace("\n", "\r\n")),
    "letter-utf16-le.txt": RealFile(LETTER, "utf-16-le", codecs.BOM_UTF16_LE),
    "letter-utf16-be.txt": RealFile(LETTER.replace("\n", "\r\n"), "utf-16-be", codecs.BOM_UTF16_BE),
    "letter-utf8.txt": RealFile(LETTER.rstrip(), mark=codecs.BOM_UTF8),  # without a newline at its end
    "keyword-mixed.py": RealFile(re.sub(r"\n(.*\n.*\n)", r"\r\n\1", source(keyword))),
}


def test_the_files_are_of_all_kinds() -> None:
    assert len(FILES) == 10
    assert FILES["argparse.py"].text.count("\n") > 2000
    assert {"\r\n", "\n"} <= {re.sub(r"[^\r\n]", "", line) for line in lines_of(FILES["keyword-mixed.py"].text)}


@pytest.fixture(scope="module")
def folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files, after the model has edited a few lines of each."""
    folder = tmp_path_factory.mktemp("files")
    for name, file in FILES.items():
        (folder / name).write_bytes(file.content)
        (folder / name).chmod(file.mode)
    command = [LCSPEC, "edit", "-m", str(smollm2), "-c", "1024", "-t", "1", "--in-place", "--backup", "--force"]
    command += ["--lines", f"{FIRST}:{LAST}", "-i", "Correct the spelling and grammar.", *FILES]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert sum((folder / name).read_bytes() != file.content for name, file in FILES.items()) > 3
    return folder


@pytest.mark.parametrize("name", FILES)
def test_what_is_outside_the_lines_is_the_same_to_the_byte(folder: Path, name: str) -> None:
    file = FILES[name]
    content = (folder / name).read_bytes()
    before, after = lines_of(file.text), lines_of(file.text_of(content))
    assert after[: FIRST - 1] == before[: FIRST - 1]
    behind = before[LAST:]
    assert behind == [] or after[-len(behind) :] == behind
    endings = {re.sub(r"[^\r\n]", "", line) for line in before}
    assert {re.sub(r"[^\r\n]", "", line) for line in after} <= endings
    assert after[-1].endswith("\n") == before[-1].endswith("\n")
    assert (folder / name).stat().st_mode & 0o777 == file.mode
    if content != file.content:
        assert (folder / f"{name}~").read_bytes() == file.content
    else:
        assert not (folder / f"{name}~").exists()


def test_a_long_file_goes_through_in_pieces(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "licence.txt"
    path.write_bytes(licence().replace("\n", "\r\n").encode())
    file = TextFile.read(path)
    with SpeculativeLM(smollm2, n_ctx=512, threads=1, measure=False) as engine:
        edited = edit_text(engine, file.text, "Replace the year.", force=True)
    assert len(edited.pieces) > 1
    assert "".join(piece.before for piece in edited.pieces) == file.text
    assert "".join(piece.after for piece in edited.pieces) == edited.text
    for piece in edited.pieces:
        assert piece.after[-2:] == piece.before[-2:]  # their ends belong to the file
    assert edited.stats.texts == len(edited.pieces)
    file.write(edited.text)
    assert path.read_bytes() == edited.text.encode()
    assert b"\n" not in path.read_bytes().replace(b"\r\n", b"")


def test_a_file_that_comes_back_as_it_was_is_not_written(smollm2: Path, tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_bytes(b"\r\n" + YAML.replace("\n", "\r\n").encode() + b"\r\n \t")
    old = path.read_bytes(), path.stat()
    command = [LCSPEC, "edit", "-m", str(smollm2), "-t", "1", "-w", "-i", "Correct the spelling.", str(path)]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE)
    assert b"nothing was changed" in done.stderr
    assert (path.read_bytes(), path.stat().st_ino) == (old[0], old[1].st_ino)
