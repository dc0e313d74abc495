"""A stand-in of the Hugging Face hub, and wheels for pip: the two sources of models, on this machine."""

import base64
import hashlib
import json
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NEWER_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
REPOSITORY = "someone/Tiny-GGUF"


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class StandIn(ThreadingHTTPServer):
    """As much of the hub as its client needs to list repositories and to fetch large files."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.commits: dict[str, dict[str, bytes]] = {}
        """The files of each commit, by repository and name."""
        self.main = COMMIT
        self.stated: dict[str, bytes] = {}
        """Contents whose size and digest are stated in the place of a file's, by its name."""
        self.refusal: tuple[int, str] | None = None
        self.moved_to: str | None = None
        """Where every request but those to the root is sent, with a body that is no JSON."""
        self.break_off_at: int | None = None
        self.breaks_off_again = False
        self.rate_limits: list[str] = []
        """Retry-After headers for the next requests, all of them but those to the root."""
        self.ranges: list[str | None] = []
        """The Range header of each request for a body."""
        self.tokens: set[str | None] = set()
        """The Authorization headers seen."""
        self.block_seconds = 0.0
        """How long each block of a body takes."""
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, body: bytes, file: str = "tiny.q8_0.gguf", commit: str = COMMIT) -> None:
        self.commits.setdefault(commit, {})[f"{REPOSITORY}/{file}"] = body

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing when a client leaves."""


class _Answer(BaseHTTPRequestHandler):
    server: StandIn

    def do_HEAD(self) -> None:
        if self.path == "/":
            self._answer(200, {})
            return
        self.server.tokens.add(self.headers["Authorization"])
        if self.server.rate_limits:
            self._answer(429, {"Retry-After": self.server.rate_limits.pop(0)})
        elif self.server.moved_to is not None:
            if self.path == self.server.moved_to:
                self._answer(200, {}, length=1)
                self.wfile.write(b"<")
            else:
                self._answer(301, {"Location": self.server.moved_to})
        elif self.server.refusal is not None:
            status, code = self.server.refusal
            self._answer(status, {"X-Error-Code": code, "X-Error-Message": "not for you"})
        elif tree := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([^/?]+)(\?.*)?", self.path):
            self._tree(tree[1], unquote(tree[2]))
        elif resolved := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path):
            self._resolve(resolved[1], unquote(resolved[2]), unquote(resolved[3]))
        else:
            self._answer(404, {})

    do_GET = do_HEAD

    def _files(self, repository: str, revision: str) -> dict[str, bytes] | None:
        files = self.server.commits.get(self.server.main if revision == "main" else revision)
        if files is None:
            self._answer(404, {"X-Error-Code": "RevisionNotFound"})
            return None
        own = {name.removeprefix(f"{repository}/"): body for name, body in files.items() if repository in name}
        if not own:
            self._answer(404, {"X-Error-Code": "RepoNotFound"})
            return None
        return own

    def _tree(self, repository: str, revision: str) -> None:
        if (files := self._files(repository, revision)) is not None:
            entries = [{"type": "file", "path": name, "size": len(body), "oid": "0"} for name, body in files.items()]
            body = json.dumps(entries).encode()
            self._answer(200, {"Content-Type": "application/json"}, length=len(body))
            self.wfile.write(body)

    def _resolve(self, repository: str, revision: str, name: str) -> None:
        commit = self.server.main if revision == "main" else revision
        if (files := self._files(repository, revision)) is None:
            return
        if name not in files:
            self._answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        else:
            self._send(files[name], self.server.stated.get(name, files[name]), commit)

    def _send(self, body: bytes, stated: bytes, commit: str) -> None:
        headers = {
            "Accept-Ranges": "bytes",
            "ETag": '"of-the-pointer"',
            "X-Linked-ETag": f'"{sha256(stated)}"',
            "X-Linked-Size": str(len(stated)),
            "X-Repo-Commit": commit,
        }
        wanted = self.headers["Range"]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._answer(206 if wanted else 200, headers, length=len(body) - start)
        if self.command == "GET":
            self.server.ranges.append(wanted)
            end = self.server.break_off_at
            if not self.server.breaks_off_again:
                self.server.break_off_at = None
            self._write(body[start:end])

    def _write(self, body: bytes) -> None:
        if not self.server.block_seconds:
            self.wfile.write(body)
            return
        for start in range(0, len(body), 1 << 16):
            self.wfile.write(body[start : start + (1 << 16)])
            self.wfile.flush()
            if self.server.stopping.wait(self.server.block_seconds):
                return

    def _answer(self, status: int, headers: dict[str, str], length: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def write_wheel(folder: Path, package: str, members: dict[str, bytes], version: str = "1.2.0") -> Path:
    """Write the smallest wheel that pip takes."""
    distribution = package.replace("-", "_")
    info = f"{distribution}-{version}.dist-info"
    files = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={_record_digest(body)},{len(body)}\n" for path, body in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    path = folder / f"{distribution}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, body in files.items():
            archive.writestr(member, body)
    return path


def _record_digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
