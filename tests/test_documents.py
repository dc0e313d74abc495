"""The text of files: encodings, HTML pages and PDFs with the parts that go wrong."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from pypdf import PdfReader, PdfWriter

from lcspec.errors import FileError, PromptError
from lcspec.tasks.documents import Document
from lcspec.tasks.html_text import html_text


def error_of(name: str, content: bytes, encoding: str | None = None) -> str:
    with pytest.raises(FileError) as error:
        Document.of(name, content, encoding)
    (line,) = str(error.value).splitlines()
    assert line.startswith(name) or encoding is not None
    return line


def is_text_or_one_line(name: str, content: bytes) -> bool:
    try:
        return Document.of(name, content).text.strip() != ""
    except FileError as error:
        return len(str(error).splitlines()) == 1


# text


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_text_is_read_whatever_its_byte_order_mark(codec: str) -> None:
    text = "# Größe\r\n\n日本 *text*\n"
    assert Document.of("notes.md", text.encode(codec)) == Document("notes.md", "text", text)


def test_other_encodings_are_named() -> None:
    content = "Größe".encode("latin-1")
    assert Document.of("notes.txt", content, "latin-1").text == "Größe"
    assert "--encoding" in error_of("notes.txt", content)
    assert "another encoding" in error_of("notes.txt", content, "ascii")
    for name in "notes.txt", "page.html":
        with pytest.raises(PromptError, match="no encoding that Python knows"):
            Document.of(name, b"x", "klingon")


def test_what_is_no_text_is_said_in_one_line() -> None:
    assert "is empty" in error_of("a.txt", b"")
    assert "no text in it" in error_of("a.txt", b" \n\t")
    assert "binary" in error_of("a.bin", b"GGUF\0\1\2\3")
    assert "binary" in error_of("a.bin", b"\x89PNG\r\n\x1a\n\0\0\xff")


def test_what_is_no_file_is_said_in_one_line(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none.txt", "does not exist"),
        (Path("/dev/zero"), "device"),
    ):
        with pytest.raises(FileError, match=said):
            Document.read(path)
    with pytest.raises(FileError, match="can't be read"):
        Document.read(Path("a\0b"))


# HTML

PAGE = """<!DOCTYPE html>
<html><head><title>Harbours &amp; tides</title>
<meta http-equiv="content-type" content="text/html; charset=CHARSET">
<style>p { color: red }</style><script>document.write("<p>script</p>")</script></head>
<body onload="x()"><nav><ul><li>menu</li></ul></nav><div role="navigation">more menu</div>
<h2>The <em>caf&eacute;</em> – Zoë</h2>
<p>One <b>bold</b>, <i>it</i>alic &lt;tag&gt;.
   The same&nbsp;line.<br>A new one.<p>Not closed <span hidden>hidden</span>
<p style="color:red; DISPLAY : none">gone</p><p style="visibility:hidden">gone, too</p>
<ul><li>first<ol><li>inner</li><li><p>in a paragraph</p></li></ol></li><li></li><li>second</ul>
<table><tr><th>Port</th><th>Depth</th></tr><tr><td>Kiel</td><td>
<table><tr><td>low</td><td>high</td></tr></table></td></tr></table>
<pre>
for x in y:
    print(x)
</pre>be<!-- not this -->hind<template>template</template><svg><text>picture</text></svg><button>OK</button>
<noscript>Switch it on</noscript><h3></h3><p>so&shy;ft &#x1F600;</p>
</body></html>"""
TEXT = """# Harbours & tides

## The café – Zoë

One bold, italic <tag>. The same line.
A new one.

Not closed

- first
  - inner
  - in a paragraph
- second

Port | Depth
Kiel

low | high

for x in y:
    print(x)

behind

soft 😀"""


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "windows-1252", "UTF-16", "klingon"])
def test_a_page_gives_what_is_seen_of_it(charset: str) -> None:
    codec = {"iso-8859-1": "cp1252", "UTF-16": "utf-8", "klingon": "utf-8"}.get(charset, charset)  # as browsers do
    content = PAGE.replace("CHARSET", charset).encode(codec)
    assert Document.of("page.html", content) == Document("page.html", "html", TEXT)


def test_a_byte_order_mark_and_a_named_encoding_come_before_what_a_page_declares() -> None:
    page = PAGE.replace("CHARSET", "koi8-r")
    assert html_text(page.encode("utf-8-sig")) == TEXT
    assert html_text(page.encode("utf-16")) == TEXT
    assert html_text(page.encode("utf-8"), "utf-8") == TEXT


def test_a_page_with_a_heading_has_its_title_only_there() -> None:
    assert html_text(b"<title>Site | Page</title><h1>Page</h1>x") == "# Page\n\nx"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("standard input", b" \n<!-- saved --><!doctype HTML><p>x", "html"),
        ("page", b"<?xml version='1.0'?>\n<html xmlns='x'><body>x</body></html>", "html"),
        ("page.php", "<html><body>x".encode("utf-16"), "html"),
        ("page.txt", b"<html><body>x", "text"),
        ("about.md", b"<body> is a tag", "text"),
        ("mail", b"<htmlx> is none", "text"),
        ("page.HTM", b"no tags", "html"),
    ],
)
def test_the_kind_is_told_by_name_and_content(name: str, content: bytes, kind: str) -> None:
    assert Document.of(name, content).kind == kind


def test_a_page_without_text_is_an_error() -> None:
    assert "no text in it" in error_of(
        "app.html", b"<html><body><div id=app></div><script>run()</script></body></html>"
    )


@pytest.mark.parametrize("n", [1, 6])
def test_comments_before_a_page_are_passed_over(n: int) -> None:
    page = b"<!-- one --> \n" * n + b"<html><body>x"
    assert Document.of("standard input", page).kind == "html"
    assert Document.of("standard input", b"<!-- not ended <html>").kind == "text"


def test_however_many_comments_are_before_a_text_its_kind_is_told() -> None:
    assert Document.of("standard input", b"<!---->" * 280 + b"# Title").kind == "text"


def test_lists_in_lists_are_indented_only_so_far() -> None:
    lines = html_text(b"<ul><li>x" * 12).splitlines()
    assert lines[:9] == [f"{'  ' * level}- x" for level in (0, 1, 2, 3, 4, 5, 6, 7, 7)]
    assert lines[9:] == lines[8:9] * 3
    assert len(html_text(b"<ul><li>x" * 20_000)) < 20 * 20_000


@pytest.mark.parametrize("part", [b"<a ", b"<!--", b"<", b"<a b='", b"<![CDATA[", b"</", b"<?", b"&"])
def test_a_page_of_markup_that_does_not_end_is_read(part: bytes) -> None:
    assert html_text(b"<p>Text.</p>" + part * 200_000).startswith("Text.")


@pytest.mark.parametrize("charset", [b"\0evil", b"\0", b"base64", b"rot13", b"undefined", b"idna", b"punycode"])
def test_an_encoding_that_is_none_is_passed_over(charset: bytes) -> None:
    assert html_text(b"<meta charset='" + charset + b"'><p>caf\xc3\xa9 x") == "café x"
    assert html_text(b"<meta charset='\xff" + charset + b"'><p>caf\xe9 x") == "café x", "in Windows-1252"


def test_a_page_that_decodes_to_half_characters_is_read() -> None:
    assert html_text(b"<meta charset='unicode_escape'><p>a \\ud800 b").encode()


def test_a_page_may_be_nested_deeply() -> None:
    assert html_text(b"<div>" * 20_000 + b"deep") == "deep"


@given(st.text(alphabet="<>/!-[]&;pubrli td=\"' \n", max_size=80))
def test_any_bytes_are_a_page_or_one_line(content: str) -> None:
    assert is_text_or_one_line("x.html", content.encode())


# PDF


def pdf(*pages: str) -> bytes:
    """Return a PDF as small as may be, with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        font = "<< /Font << /F1 3 0 R >> >>"
        contents = f"{5 + 2 * i} 0 R"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {contents} /Resources {font} >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    body = "%PDF-1.4\n"
    offsets = []
    for number, one in enumerate(objects, 1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{one}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"trailer << /Size {size} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return f"{body}xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")


def test_the_pages_of_a_pdf_are_apart() -> None:
    assert Document.of("a.pdf", pdf("One page.", "And another.")) == Document(
        "a.pdf", "pdf", "One page.\n\nAnd another."
    )
    assert Document.of("standard input", pdf("One page.")).kind == "pdf"


def test_a_pdf_of_a_plotting_library_is_read(tmp_path: Path) -> None:
    figure = Figure()
    figure.text(0.1, 0.5, "Tides of Zoë")
    figure.savefig(tmp_path / "figure.pdf")
    assert "Tides of Zoë" in Document.read(tmp_path / "figure.pdf").text


def test_a_scanned_pdf_has_no_text() -> None:
    assert "its pages may be pictures" in error_of("scan.pdf", pdf("", ""))


def test_an_encrypted_pdf_is_read_if_it_has_no_password(tmp_path: Path) -> None:
    for password in "", "secret":
        writer = PdfWriter()
        writer.append(PdfReader(tmp_path / "plain.pdf") if (tmp_path / "plain.pdf").exists() else _plain(tmp_path))
        writer.encrypt(password, "owner", algorithm="RC4-128")
        writer.write(tmp_path / f"locked{password}.pdf")
    assert Document.read(tmp_path / "locked.pdf").text == "One page."
    with pytest.raises(FileError, match=r"lockedsecret\.pdf is encrypted: save it without a password"):
        Document.read(tmp_path / "lockedsecret.pdf")


def _plain(folder: Path) -> PdfReader:
    (folder / "plain.pdf").write_bytes(pdf("One page."))
    return PdfReader(folder / "plain.pdf")


@pytest.mark.parametrize("content", [b"%PDF-1.7\n", b"%PDF-1.4\n" + b"\0\xff" * 300, pdf("One page.")[:120]])
def test_a_damaged_pdf_is_one_line(content: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    assert "is a damaged PDF" in error_of("a.pdf", content)
    assert capfd.readouterr() == ("", "")


@given(st.binary(max_size=30), st.integers(9, 500))
def test_however_a_pdf_is_damaged_it_is_read_or_one_line(rubbish: bytes, at: int) -> None:
    whole = pdf("One page.")
    assert is_text_or_one_line("a.pdf", whole[:at] + rubbish + whole[at + len(rubbish) :])


def test_what_is_called_a_pdf_and_is_none_is_an_error() -> None:
    assert "is not a PDF file" in error_of("a.pdf", b"Dear Zoe")


def test_without_pypdf_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    assert "pip install 'lcspec[pdf]'" in error_of("a.pdf", pdf("One page."))
