"""Documents: the text of a file, whatever its kind."""

import codecs
import io
import logging
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bs4.exceptions import ParserRejectedMarkup

from lcspec.errors import FileError
from lcspec.tasks.html_text import html_text
from lcspec.tasks.text_file import TextFile, codec_named

if TYPE_CHECKING:
    from pypdf import PdfReader

Kind = Literal["text", "html", "pdf"]

_HTML_NAMES = (".htm", ".html", ".xhtml")
_TEXT_NAMES = (".markdown", ".md", ".rst", ".txt")
_HTML_BEGINS = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_HEAD = 2048  # bytes that tell what a file is
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}

logging.getLogger("pypdf").addHandler(logging.NullHandler())  # or it writes to standard error


@dataclass(frozen=True)
class Document:
    """What a reader sees in a file.

    Attributes:
        name: as the user wrote it.
        kind: how it was read; Markdown is text.
        text: never empty; of an HTML page without what is not shown, with Markdown's marks for headings and lists.
    """

    name: str
    kind: Kind
    text: str

    @classmethod
    def read(cls, path: Path, encoding: str | None = None) -> "Document":
        """Read a file; arguments and errors are those of `of`, which says what the file may be.

        Raises:
            FileError: also when the file is missing, a folder, a device, or can't be read.
        """
        try:
            kind = path.stat().st_mode
            if stat.S_ISDIR(kind):
                raise FileError(f"{path} is a folder: name the files in it")
            if not stat.S_ISREG(kind) and not stat.S_ISFIFO(kind):
                raise FileError(f"{path} is a device, not a file")
            content = path.read_bytes()
        except FileNotFoundError:
            raise FileError(f"{path} does not exist") from None
        except (OSError, ValueError) as error:
            raise FileError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error
        return cls.of(str(path), content, encoding)

    @classmethod
    def of(cls, name: str, content: bytes, encoding: str | None = None) -> "Document":
        """Return the document that a file's content is: a PDF, an HTML page, or text such as Markdown.

        Args:
            name: of the file; its ending tells the kind where the content does not.
            content: the bytes of the file.
            encoding: a codec of Python's, for text and HTML; None for what the file says itself, else UTF-8.

        Raises:
            FileError: it is empty, damaged, encrypted, binary, has another encoding, has no text in it, or is a PDF
                and pypdf is not installed.
            PromptError: Python has no such codec.
        """
        if encoding is not None:
            encoding = codec_named(encoding)
        if not content:
            raise FileError(f"{name} is empty")
        kind = _kind(name, content)
        if kind == "pdf":
            text = _pdf_text(name, content)
        elif kind == "html":
            text = _page_text(name, content, encoding)
        else:
            text = TextFile.of(name, content, encoding).text
        if not text.strip():
            raise FileError(f"{name} has no text in it" + (": its pages may be pictures" if kind == "pdf" else ""))
        return cls(name, kind, text)


def _kind(name: str, content: bytes) -> Kind:
    suffix = Path(name).suffix.lower()
    if b"%PDF-" in content[:1024] and (suffix == ".pdf" or content.lstrip().startswith(b"%PDF-")):
        return "pdf"
    if suffix == ".pdf":
        raise FileError(f"{name} is not a PDF file, whatever its name says")
    if suffix in _HTML_NAMES:
        return "html"
    mark, codec = next(((mark, codec) for mark, codec in _MARKS.items() if content.startswith(mark)), (b"", "latin-1"))
    head = content[len(mark) : _HEAD].decode(codec, "replace")
    return "html" if suffix not in _TEXT_NAMES and _HTML_BEGINS.match(head) else "text"


def _page_text(name: str, content: bytes, encoding: str | None) -> str:
    try:
        return html_text(content, encoding)
    except ParserRejectedMarkup as error:
        raise FileError(f"{name} can't be understood as HTML: {error}") from error


def _pdf_text(name: str, content: bytes) -> str:
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError
    except ImportError:
        raise FileError(f"{name} is a PDF, which needs pypdf to be read: pip install 'lcspec[pdf]'") from None
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise FileError(f"{name} is encrypted: save it without a password first")
        return "\n\n".join(_page_texts(reader))
    except FileError:
        raise
    except DependencyError as error:
        raise FileError(f"{name} is encrypted, and to read it pypdf needs more: {error}") from error
    except Exception as error:  # pypdf raises nearly anything where a file is damaged
        raise FileError(f"{name} is a damaged PDF: {error or type(error).__name__}") from error


def _page_texts(reader: "PdfReader") -> Iterator[str]:
    for page in reader.pages:
        text: Any = page.extract_text()
        yield text.encode("utf-8", "replace").decode().replace("\0", "").strip()
