"""Markdown laid out for a terminal, block by block."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from rich import box
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

Line: TypeAlias = list[Segment]


def _keep_math(state: StateInline, silent: bool) -> bool:
    """Keep what LaTeX has around formulas, which Markdown would take for escapes."""
    marks = state.src[state.pos : state.pos + 2]
    if marks not in ("\\(", "\\)", "\\[", "\\]"):
        return False
    if not silent:
        state.pending += marks
    state.pos += 2
    return True


_PARSER = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["table", "strikethrough"])
    .disable(["image", "reference"])  # they would hide text
)
_PARSER.inline.ruler.before("escape", "math", _keep_math)
_INLINE = {
    "strong": Style(bold=True),
    "em": Style(italic=True),
    "s": Style(strike=True),
    "code_inline": Style(color="cyan"),
}
_DIM = Style(dim=True)
_HEADINGS = {"h1": Style(bold=True, underline=True)}
_LEAST = 8  # columns that a block gets, however deep it lies
_LEAST_CELL = 6


@dataclass(frozen=True)
class Block:
    """A paragraph, list, table or the like.

    Attributes:
        node: as it was parsed.
        start: the number of its first line.
        is_spaced: whether an empty line is before it.
    """

    node: SyntaxTreeNode
    start: int
    is_spaced: bool


class Markdown:
    """A text that was parsed.

    Args:
        text: the Markdown.
        is_growing: more is to come: what is emphasized is taken to end later.
    """

    def __init__(self, text: str, *, is_growing: bool = False) -> None:
        self.lines = text.split("\n")
        tokens = _PARSER.parse(text)
        if is_growing:
            _complete(tokens)
        self.blocks = [self._block(node) for node in SyntaxTreeNode(tokens).children]
        """The blocks that do not lie in others."""

    def children(self, node: SyntaxTreeNode) -> list[Block]:
        """Return the blocks in a block."""
        return [self._block(child) for child in node.children]

    def n_finished(self) -> int:
        """Return how many blocks will not change, whatever text comes behind."""
        complete = len(self.lines) - 1
        starts = (block.start + (block.node.type == "table") for block in self.blocks)
        return max(0, sum(start < complete for start in starts) - 1)

    def _block(self, node: SyntaxTreeNode) -> Block:
        start = node.map[0] if node.map else 0
        return Block(node, start, start > 0 and not self.lines[start - 1].strip(" \t>"))


def _complete(tokens: Sequence[Token]) -> None:
    """End what is emphasized in the last text, if it is the last thing there is."""
    last = next((token for token in reversed(tokens) if token.nesting != -1), None)
    if last is not None and last.type == "inline":
        content = last.content
        for marker in "`", "**":
            if content.count(marker) % 2:
                content = content.removesuffix(marker) if content.endswith(marker) else content + marker
        last.children = _PARSER.parseInline(content)[0].children


class Layout:
    """Lays blocks out in lines.

    Args:
        console: where they are shown.
        code_theme: how code is coloured: a theme of rich or Pygments.
    """

    def __init__(self, console: Console, code_theme: str) -> None:
        self._console = console
        self._code_theme = code_theme
        self.longest = 0
        """How wide lines of code may be; longer ones are wrapped as other lines are."""

    def lines(self, markdown: Markdown, block: Block, width: int) -> list[Line]:
        """Return the lines of a block, each at most `width` columns wide, but those of code as wide as they are."""
        node = block.node
        width = max(width, _LEAST)
        if node.type in ("paragraph", "heading"):
            text = self._inline(node.children[0])
            if node.type == "heading":
                text.stylize(_HEADINGS.get(node.tag, _INLINE["strong"]))
            return self._wrapped(text, width)
        if node.type in ("fence", "code_block"):
            return self._code(markdown, node, width)
        if node.type in ("bullet_list", "ordered_list"):
            return self._list(markdown, node, width)
        if node.type == "blockquote":
            inner = self._flow(markdown, markdown.children(node), width - 2)
            return [[Segment("▌ ", _DIM), *line] for line in inner]
        if node.type == "table" and (found := self._table(node, width)) is not None:
            return self._wrapped(found, width)
        if node.type == "hr":
            return [[Segment("─" * width, _DIM)]]
        first, end = node.map or (0, 0)
        return self._wrapped(Text("\n".join(markdown.lines[first:end])), width)

    def _flow(self, markdown: Markdown, blocks: Sequence[Block], width: int) -> list[Line]:
        """Return the lines of blocks below each other, with empty lines where the text has them."""
        lines: list[Line] = []
        for block in blocks:
            if block.is_spaced and lines:
                lines.append([])
            lines += self.lines(markdown, block, width)
        return lines

    def _list(self, markdown: Markdown, node: SyntaxTreeNode, width: int) -> list[Line]:
        lines: list[Line] = []
        number = int(node.attrs.get("start", 1))
        for i, item in enumerate(markdown.children(node)):
            mark = "• " if node.type == "bullet_list" else f"{number + i}{item.node.markup} "
            if item.is_spaced and lines:
                lines.append([])
            inner = self._flow(markdown, markdown.children(item.node), width - len(mark)) or [[]]
            lines.append([Segment(mark), *inner[0]])
            lines += [[Segment(" " * len(mark)), *line] if line else [] for line in inner[1:]]
        return lines

    def _code(self, markdown: Markdown, node: SyntaxTreeNode, width: int) -> list[Line]:
        """Return highlighted code between the fences that the text has, so that it can be copied as it is."""
        language = (node.info.split() or ["text"])[0]
        syntax = Syntax("", language, theme=self._code_theme, word_wrap=True)
        try:
            code = syntax.highlight(node.content)
        except Exception:  # there are lexers for hundreds of languages
            code = Text(node.content)
        lines = self._lines_of_code(_without_line_end(code), width) if node.content else []
        if node.type == "code_block":
            return [[Segment("    "), *line] for line in lines]
        lines = self._wrapped(Text(node.markup + node.info, _DIM, overflow="fold"), width) + lines
        first, end = node.map or (0, 0)
        if end - 1 > first and markdown.lines[end - 1].strip(" \t>") == node.markup:
            lines.append([Segment(node.markup, _DIM)])
        return lines

    def _lines_of_code(self, code: Text, width: int) -> list[Line]:
        """Return lines that are whole, so that they can be copied, unless they are too long for that."""
        lines: list[Line] = []
        for line in code.split("\n", allow_blank=True):
            line.expand_tabs()
            lines += self._wrapped(line, max(width, line.cell_len) if line.cell_len <= self.longest else width)
        return lines

    def _table(self, node: SyntaxTreeNode, width: int) -> Table | None:
        """Return a table; None where it is too wide."""
        rows = [row for part in node.children for row in part.children]
        head = rows[0].children
        if len(head) * _LEAST_CELL > width:
            return None
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, border_style=_DIM)
        for cell in head:
            style = str(cell.attrs.get("style", ""))
            justify = next((side for side in ("right", "center") if side in style), "left")
            table.add_column(self._cell(cell), justify=justify, overflow="fold")  # type: ignore[arg-type]
        for row in rows[1:]:
            table.add_row(*map(self._cell, row.children))
        return table

    def _cell(self, cell: SyntaxTreeNode) -> Text:
        return self._inline(cell.children[0]) if cell.children else Text()

    def _inline(self, node: SyntaxTreeNode) -> Text:
        text = Text(overflow="fold")
        for part, style in _parts(node, Style.null()):
            text.append(part, style)
        return text

    def _wrapped(self, renderable: RenderableType, width: int) -> list[Line]:
        options = self._console.options.update(width=width, height=None)
        return [_stripped(line) for line in self._console.render_lines(renderable, options, pad=False)]


def _parts(node: SyntaxTreeNode, style: Style) -> Iterator[tuple[str, Style]]:
    """Yield the texts in a text, each with its style."""
    style += _INLINE.get(node.type, Style.null())
    if node.type in ("softbreak", "hardbreak"):
        yield "\n", style
    elif node.children:
        for child in node.children:
            yield from _parts(child, style)
        if node.type == "link" and (target := str(node.attrs.get("href", ""))) != _plain(node):
            yield f" ({target})", style + _DIM
    elif node.type not in ("inline", "root"):
        yield node.content, style


def _plain(node: SyntaxTreeNode) -> str:
    return "".join(text for child in node.children for text, _ in _parts(child, Style.null()))


def _without_line_end(text: Text) -> Text:
    text.overflow = "fold"
    text.right_crop(len(text.plain) - len(text.plain.rstrip("\n")))
    return text


def _stripped(line: Line) -> Line:
    """Take the blanks off the end of a line."""
    while line:
        last = line.pop()
        if text := last.text.rstrip(" "):
            return [*line, Segment(text, last.style)]
    return line
