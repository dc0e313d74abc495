"""Files of text: read, and written back whole or not at all."""

import codecs
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcspec import FileError, PromptError
from lcspec.tasks.text_file import TextFile, codec_named, write_new

TEXT = "Größe: 1 €\r\nzwei\n\n  drei\rvier"
PATIENCE = 120


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\n")
    return path


def refusal(path: Path, encoding: str | None = None) -> str:
    with pytest.raises(FileError) as caught:
        TextFile.read(path, encoding)
    assert len(str(caught.value).splitlines()) == 1
    assert path.name in str(caught.value)
    return str(caught.value)


# reading


@pytest.mark.parametrize(
    ("mark", "codec", "encoding"),
    [
        (b"", "utf-8", None),
        (b"", "utf-8", "utf8"),
        (b"", "utf-8", "utf-8-sig"),
        (codecs.BOM_UTF8, "utf-8", None),
        (codecs.BOM_UTF8, "utf-8", "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le", None),
        (codecs.BOM_UTF16_BE, "utf-16-be", None),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16-le"),
        (codecs.BOM_UTF32_LE, "utf-32-le", None),
        (codecs.BOM_UTF32_BE, "utf-32-be", None),
        (b"", "utf-16-le", "utf-16-le"),
        (b"", "utf-16-le", "utf-16"),
        (b"", "cp1252", "windows-1252"),
    ],
)
def test_encoding_mark_and_line_endings_are_kept(tmp_path: Path, mark: bytes, codec: str, encoding: str | None) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(mark + TEXT.encode(codec))
    read = TextFile.read(path, encoding)
    assert (read.text, read.mark, read.encoding) == (TEXT, mark, codec)
    read.write(TEXT.replace("zwei", "2"))
    assert path.read_bytes() == mark + TEXT.replace("zwei", "2").encode(codec)


@given(st.binary(min_size=1, max_size=40), st.sampled_from([None, "latin-1", "utf-16", "shift-jis", "utf-7"]))
def test_what_can_be_read_is_written_back_byte_for_byte(content: bytes, encoding: str | None) -> None:
    try:
        read = TextFile.of("a.txt", content, encoding)
    except FileError:
        return
    assert read.encoded(read.text) == content


def test_a_byte_order_mark_of_another_encoding_is_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(codecs.BOM_UTF8 + b"a")
    read = TextFile.read(tmp_path / "a", "latin-1")
    assert (read.text, read.mark) == ("ï»¿a", b"")


def test_what_is_no_text_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert "does not exist" in refusal(path)
    path.write_bytes(b"")
    assert "is empty: there is nothing to edit" in refusal(path)
    path.write_bytes(b"\x7fELF\0\0\1")
    assert "is a binary file" in refusal(path)
    path.write_bytes("a".encode("utf-16-le"))
    assert "--encoding" in refusal(path)
    path.write_bytes(b"caf\xe9")
    assert "is not utf-8 text (byte 3): name its --encoding" in refusal(path)
    path.write_bytes(codecs.BOM_UTF8 + b"caf\xe9")
    assert "(byte 6)" in refusal(path)
    path.write_bytes(codecs.BOM_UTF16_LE + b"a")
    assert "is not utf-16-le text" in refusal(path)
    path.write_bytes(b"a\x1b$B")
    assert "would not stay the same" in refusal(path, "iso-2022-jp")
    assert "is a folder" in refusal(tmp_path)
    assert "is a device" in refusal(Path("/dev/null"))


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a pipe" in refusal(tmp_path / "pipe")


def test_links_that_lead_nowhere_or_in_circles_are_told(tmp_path: Path) -> None:
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert "does not exist" in refusal(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert "can't be read" in refusal(tmp_path / "circle")


@pytest.mark.parametrize("name", ["no-such", "hex", "", "a\0b", "undefined"])
def test_an_unknown_encoding_is_told(name: str) -> None:
    with pytest.raises(PromptError, match="is no encoding that Python knows"):
        codec_named(name)


# writing


def test_permissions_stay(file: Path) -> None:
    file.chmod(0o751)
    TextFile.read(file).write("new\n", backup=True)
    assert file.stat().st_mode & 0o7777 == 0o751
    assert file.with_name("a.txt~").stat().st_mode & 0o7777 == 0o751


def test_a_backup_is_the_old_file(file: Path) -> None:
    TextFile.read(file).write("new\n", backup=True)
    TextFile.read(file).write("newer\n", backup=True)
    assert file.read_bytes() == b"newer\n"
    assert file.with_name("a.txt~").read_bytes() == b"new\n"
    assert len(list(file.parent.iterdir())) == 2


def test_a_backup_is_not_written_through_a_link(file: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    file.with_name("a.txt~").symlink_to(victim)
    with pytest.raises(FileError, match="is a symbolic link"):
        TextFile.read(file).write("new\n", backup=True)
    assert (victim.read_bytes(), file.read_bytes()) == (b"precious", b"one\ntwo\n")


def test_what_a_link_leads_to_is_edited(file: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link"
    link.symlink_to(file)
    read = TextFile.read(link)
    read.check_writable()
    read.write("new\n", backup=True)
    assert link.is_symlink()
    assert file.read_bytes() == b"new\n"
    assert file.with_name("a.txt~").read_bytes() == b"one\ntwo\n"


def test_a_file_that_someone_else_changed_is_left_alone(file: Path) -> None:
    read = TextFile.read(file)
    file.write_bytes(b"one\ntwO\n")  # of the same size
    with pytest.raises(FileError, match=r"a\.txt was changed meanwhile"):
        read.write("new\n")
    assert file.read_bytes() == b"one\ntwO\n"
    file.unlink()
    with pytest.raises(FileError, match="went away meanwhile"):
        read.write("new\n")
    assert list(file.parent.iterdir()) == []


def test_a_character_that_the_encoding_lacks_is_told(file: Path) -> None:
    read = TextFile.read(file, "latin-1")
    with pytest.raises(FileError, match=r"a\.txt has '\\u20ac', which iso8859-1 lacks"):
        read.write("1 €\n")
    assert file.read_bytes() == b"one\ntwo\n"


def test_what_is_no_file_is_not_written() -> None:
    with pytest.raises(FileError, match="standard input is no file"):
        TextFile.of("standard input", b"a").write("b")


_READ_ONLY = """
import os, sys
from pathlib import Path
from lcspec import FileError
from lcspec.tasks.text_file import TextFile

path = Path(sys.argv[1])
os.chown(path.parent, 65534, 65534)
os.chown(path, 65534, 65534)
os.setuid(65534)
os.chdir(path.parent)
for file_mode, folder_mode in (0o644, 0o755), (0o444, 0o755), (0o644, 0o555):
    os.chmod(path.name, file_mode)
    os.chmod(".", folder_mode)
    try:
        TextFile.read(Path(path.name)).check_writable()
        print("fine")
    except FileError as error:
        print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_a_read_only_file_or_folder_is_told_before_the_work() -> None:
    with TemporaryDirectory() as folder:  # pytest's are for their owner only
        file = Path(folder, "a.txt")
        file.write_bytes(b"one\n")
        done = subprocess.run([sys.executable, "-c", _READ_ONLY, file], capture_output=True, timeout=PATIENCE)
    assert done.stdout.decode().splitlines() == [
        "fine",
        "a.txt is read-only",
        "the folder of a.txt is read-only",
    ], done.stderr


# whatever happens


_KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from lcspec.tasks.text_file import TextFile

path = Path(sys.argv[1])
old, new = "old line\\n" * 200_000, "new line, longer\\n" * 200_000
path.write_text(old)
random.seed(1)
whole = unfinished = 0
for _ in range(50):
    child = os.fork()
    if child == 0:
        while True:
            read = TextFile.read(path)
            read.write(new if read.text == old else old)
    time.sleep(random.uniform(0.005, 0.06))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    whole += path.read_text() in (old, new)
    for litter in path.parent.glob(f".{path.name}.*"):
        unfinished += 1
        litter.unlink()
print(whole, unfinished)
"""


def test_a_killed_write_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, tmp_path / "a.txt"], capture_output=True, timeout=PATIENCE, check=True
    )
    whole, unfinished = map(int, done.stdout.split())
    assert whole == 50
    assert unfinished > 5  # it was killed while it wrote


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small file system, and not everywhere")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("backup", [False, True])
def test_a_full_disk_loses_nothing(small_disk: Path, backup: bool) -> None:
    path = small_disk / "a.txt"
    path.write_bytes(b"old\n" * 10_000)
    with pytest.raises(FileError, match=r"a\.txt can't be written: No space left on device; it is as it was"):
        TextFile.read(path).write("new\n" * 10_001, backup=backup)
    assert path.read_bytes() == b"old\n" * 10_000
    assert list(small_disk.iterdir()) == [path]


# files of another name


def test_a_new_file_has_the_permissions_that_are_asked_for_or_usual(tmp_path: Path) -> None:
    write_new(tmp_path / "a", b"a", 0o640)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    write_new(tmp_path / "b", b"b")
    (tmp_path / "c").write_bytes(b"c")
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "c").stat().st_mode


def test_a_file_that_exists_keeps_its_permissions(file: Path) -> None:
    file.chmod(0o604)
    write_new(file, b"new", 0o777)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o604)


def test_devices_and_folders_stay_what_they_are(tmp_path: Path) -> None:
    write_new(Path("/dev/null"), b"a")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(FileError, match="is a folder"):
        write_new(tmp_path, b"a")
    with pytest.raises(FileError, match="can't be written: No such file"):
        write_new(tmp_path / "missing" / "a", b"a")
    with pytest.raises(FileError, match="can't be written"):
        write_new(Path("/dev/full"), b"a" * 100)
