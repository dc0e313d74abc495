"""Files of text: bytes in, text and what it takes to write it back as it was; bytes out."""

import codecs
import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from lcspec.errors import FileError, PromptError
from lcspec.files import write_atomically

_MARKS = (  # of the longest first: UTF-32's begins like UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OWN_MARK = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # codecs that write a mark themselves


@dataclass(frozen=True)
class TextFile:
    """A file's text as it was read.

    Attributes:
        name: what it is called in messages.
        path: where it is; None for a text that came otherwise.
        mode: its permissions; None without a path.
        content: the bytes of the file.
        text: with the line endings of the file, without a byte order mark.
        encoding: the codec of the text.
        mark: the byte order mark that the file begins with; usually empty.
    """

    name: str
    content: bytes
    text: str
    encoding: str
    mark: bytes
    path: Path | None = None
    mode: int | None = None

    @classmethod
    def read(cls, path: Path, encoding: str | None = None) -> "TextFile":
        """Read a file.

        Args:
            path: a file, or a symbolic link to one.
            encoding: a codec of Python's; None for UTF-8, or what a byte order mark says.

        Raises:
            FileError: it can't be read, is no file of text, is empty, or has another encoding.
            PromptError: Python has no such codec.
        """
        try:
            kind = path.stat().st_mode
            if stat.S_ISDIR(kind):
                raise FileError(f"{path} is a folder: name the files in it")
            if not stat.S_ISREG(kind):
                raise FileError(f"{path} is a device or a pipe, not a file: pipe it into standard input (-)")
            content = path.read_bytes()
        except FileNotFoundError:
            raise FileError(f"{path} does not exist") from None
        except (OSError, ValueError) as error:
            raise FileError(f"{path} can't be read: {_reason(error)}") from error
        return replace(cls.of(str(path), content, encoding), path=path, mode=stat.S_IMODE(kind))

    @classmethod
    def of(cls, name: str, content: bytes, encoding: str | None = None) -> "TextFile":
        """Return a file that was read elsewhere; arguments and errors are those of `read`."""
        if not content:
            raise FileError(f"{name} is empty: there is nothing to edit")
        codec, mark = _codec_of(content, encoding)
        if b"\0" in content and not codec.startswith(("utf-16", "utf-32")):
            raise FileError(f"{name} is a binary file, not text (for UTF-16 without a mark name its --encoding)")
        try:
            text = content[len(mark) :].decode(codec)
        except UnicodeDecodeError as error:
            hint = "name its --encoding" if encoding is None else "it has another encoding"
            raise FileError(f"{name} is not {codec} text (byte {len(mark) + error.start:,}): {hint}") from error
        except (ValueError, UnicodeError, AssertionError) as error:
            raise FileError(f"{name} is not {codec} text: {_reason(error)}") from error
        file = cls(name, content, text, codec, mark)
        if file.encoded(text) != content:
            raise FileError(f"{name} would not stay the same when written as {codec} again, so it can't be edited")
        return file

    def encoded(self, text: str) -> bytes:
        """Return the bytes of this file with another text.

        Raises:
            FileError: the text has characters that the file's encoding lacks.
        """
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            character = error.object[error.start]
            raise FileError(f"the edited text of {self.name} has {character!a}, which {self.encoding} lacks") from error

    def check_writable(self) -> None:
        """Make sure, before any work, that `write` may write.

        Raises:
            FileError: the file or its folder is read-only.
        """
        path = self._resolved()
        for needed, what in (path, self.name), (path.parent, f"the folder of {self.name}"):
            if not os.access(needed, os.W_OK):
                raise FileError(f"{what} is read-only")

    def write(self, text: str, *, backup: bool = False) -> None:
        """Write another text into the file, whole or not at all, unless someone else changed it meanwhile.

        Args:
            text: the new text.
            backup: keep the old file as well, with ~ behind its name.

        Raises:
            FileError: it can't be written, is not as it was read, or lacks a character; the old file is there.
        """
        new = self.encoded(text)
        path = self._resolved()
        try:
            if backup:
                beside = path.with_name(f"{path.name}~")
                if beside.is_symlink():
                    raise FileError(f"{beside} is a symbolic link, so no backup is written there")
                write_atomically(beside, self.content, mode=self.mode)
            if path.read_bytes() != self.content:
                raise FileError(f"{self.name} was changed meanwhile, so it is left as it is now")
            write_atomically(path, new)
        except FileNotFoundError:
            raise FileError(f"{self.name} went away meanwhile, so nothing is written") from None
        except OSError as error:
            raise FileError(f"{self.name} can't be written: {_reason(error)}; it is as it was") from error

    def _resolved(self) -> Path:
        if self.path is None:
            raise FileError(f"{self.name} is no file that could be written")
        return self.path.resolve()


def write_new(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file of the user's, whole or not at all; into a device or a pipe just write.

    Args:
        path: the file; one that exists keeps its permissions.
        content: its bytes.
        mode: the permissions of a new file; None for the usual ones.

    Raises:
        FileError: it can't be written.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(content)
        elif path.is_dir():
            raise FileError(f"{path} is a folder: name a file in it")
        else:
            write_atomically(path, content, mode=None if path.exists() else mode or _usual_mode())
    except OSError as error:
        raise FileError(f"{path} can't be written: {_reason(error)}") from error


def _usual_mode() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _codec_of(content: bytes, encoding: str | None) -> tuple[str, bytes]:
    """Return the codec and the byte order mark of a file."""
    named = codec_named(encoding) if encoding is not None else None
    for mark, codec in _MARKS:
        if content.startswith(mark) and (named is None or codec.startswith(named.removesuffix("-sig"))):
            return codec, mark
    if named is None:
        return "utf-8", b""
    return _OWN_MARK.get(named, named), b""


def codec_named(encoding: str) -> str:
    """Return Python's name of a text encoding.

    Raises:
        PromptError: there is none of this name.
    """
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # some codecs are not for text
    except (LookupError, ValueError):
        raise PromptError(f"{encoding!r} is no encoding that Python knows, such as utf-8, latin-1 or cp1252") from None
    return name


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
