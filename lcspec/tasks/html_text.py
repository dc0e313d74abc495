"""What a reader sees of an HTML page, as plain text with Markdown's marks for headings and lists."""

import codecs
import re
import warnings
from collections.abc import Iterator

from bs4 import BeautifulSoup, CData, Tag
from bs4.dammit import EncodingDetector, UnicodeDammit
from bs4.element import NavigableString, PageElement

_UNSEEN = re.compile(
    "audio|button|canvas|datalist|embed|head|iframe|input|map|nav|noscript|object|script|select|style|svg|template"
    "|textarea|title|video"
)
_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|center|details|dialog|div|dl|fieldset|figcaption|figure|footer|form|h[1-6]"
    "|header|hr|html|main|ol|p|pre|section|summary|table|ul"
)
_LINES = re.compile("br|caption|dd|dt|legend|li|tr")
_HEADING = re.compile("h([1-6])")
_CELL = " | "  # between the cells of a row
_DEEPEST = 8  # lists in lists that are told apart; each level takes two more columns
_HIDING = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_INVISIBLE = str.maketrans("", "", "\u00ad\u200b\u2060\ufeff")  # where a word may be broken, and the like


def html_text(content: bytes, encoding: str | None = None) -> str:
    """Return the visible text of a page; paragraphs are apart, headings begin with #, items of lists with -.

    Args:
        content: the page; its encoding is, in this order, that of a byte order mark, `encoding`, what the page
            declares, UTF-8, or Windows-1252.
        encoding: a codec of Python's.

    Raises:
        bs4.exceptions.ParserRejectedMarkup: it can't be parsed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it looks like XML, or like a file name
        marked = content.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        told = None if marked else encoding or _declared_encoding(content)
        decoded = UnicodeDammit(content, [told] if told else [], is_html=True).unicode_markup or ""
        page = BeautifulSoup(decoded.encode("utf-8", "replace"), "lxml", from_encoding="utf-8")
    text = _VisibleText()
    if page.title is not None and page.find("h1") is None:
        text.begin("# ")
        text.add(page.title.get_text())
        text.end(2)
    for node, leaving in _walk(page):
        if isinstance(node, Tag):
            (text.leave if leaving else text.enter)(node)
        elif type(node) in (NavigableString, CData):
            text.add(str(node))
    return text.finish()


def _declared_encoding(content: bytes) -> str | None:
    """Return the encoding that a page declares, read as browsers read it."""
    declared = EncodingDetector.find_declared_encoding(content, is_html=True)
    try:
        codec = codecs.lookup(declared).name if declared else None
    except (LookupError, ValueError):  # a name with a null character is no value
        return None
    if codec is not None and codec.startswith(("utf-16", "utf-32")):
        return "utf-8"  # or the declaration could not have been read
    return {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "shift_jis": "cp932"}.get(codec or "", codec)


def _walk(page: Tag) -> Iterator[tuple[PageElement, bool]]:
    """Yield what is visible in the order of the page, tags once more where they end."""
    stack: list[tuple[PageElement, bool]] = [(page, False)]
    while stack:
        node, leaving = stack.pop()
        if isinstance(node, Tag) and not leaving:
            if _is_unseen(node):
                continue
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.contents))
        yield node, leaving


def _is_unseen(tag: Tag) -> bool:
    return (
        _UNSEEN.fullmatch(tag.name) is not None
        or tag.get("hidden", "until-found") != "until-found"
        or tag.get("role") == "navigation"
        or _HIDING.search(str(tag.get("style", ""))) is not None
    )


class _VisibleText:
    """Collects text, with the white space of a page as browsers show it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._newlines = 0  # before the next text
        self._prefix = ""  # and between those and the text
        self._blank = False  # whether a space comes before the next text
        self._lists = self._preformatted = 0

    def enter(self, tag: Tag) -> None:
        """Begin what a tag encloses."""
        self._separate(tag)
        if found := _HEADING.fullmatch(tag.name):
            self.begin("#" * int(found[1]) + " ")
        elif tag.name == "li":
            self.begin("  " * (min(self._lists, _DEEPEST) - 1) + "- ")
        elif tag.name in ("td", "th") and self._parts and not self._newlines:
            self.begin(_CELL)
        self._lists += tag.name in ("ul", "ol")
        self._preformatted += tag.name == "pre"

    def leave(self, tag: Tag) -> None:
        """End what a tag enclosed."""
        self._lists -= tag.name in ("ul", "ol")
        self._preformatted -= tag.name == "pre"
        self._separate(tag)
        if tag.name in ("li", "tr") or _HEADING.fullmatch(tag.name):
            self.begin("")  # there was nothing in it

    def _separate(self, tag: Tag) -> None:
        if _BLOCKS.fullmatch(tag.name):
            self.end(1 if self._lists else 2)
        elif _LINES.fullmatch(tag.name):
            self.end(1)

    def begin(self, prefix: str) -> None:
        """Write `prefix` before the next text, where there is one."""
        self._prefix = prefix

    def end(self, newlines: int) -> None:
        """Have at least so many newlines before the next text."""
        self._newlines = max(self._newlines, newlines)

    def add(self, text: str) -> None:
        """Add a text as the page has it."""
        text = text.translate(_INVISIBLE)
        visible = text if self._preformatted else " ".join(text.split())
        if not visible.strip():
            if self._preformatted:
                self._parts.append(visible)
            self._blank = self._blank or bool(text)
            return
        if not self._parts:
            before = self._prefix
        elif self._newlines:
            before = "\n" * self._newlines + self._prefix.removeprefix(_CELL)
        elif self._prefix:
            before = self._prefix
        else:
            before = " " if not self._preformatted and (self._blank or text[0].isspace()) else ""
        self._parts += before, visible
        self._newlines, self._prefix, self._blank = 0, "", text[-1].isspace() and not self._preformatted

    def finish(self) -> str:
        """Return all of it."""
        lines = (line.rstrip() for line in "".join(self._parts).splitlines())
        return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
