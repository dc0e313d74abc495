"""The models on this machine: in the hub's cache, and in lcspec's own folder, where wheels are unpacked."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name
from platformdirs import user_cache_path

from lcspec.hub.catalog import Entry, File, HubSource, catalog
from lcspec.llama import split_files


@dataclass(frozen=True)
class LocalModel:
    """A model in one of the two caches."""

    name: str
    """The catalog's name, or 'hf:' with repository and file."""
    files: tuple[Path, ...]
    size: int
    """Bytes."""
    licence: str
    """As the catalog says; empty where it does not."""
    last_used: float
    """Seconds since the epoch."""


def own_folder() -> Path:
    """Return the folder of models that came as wheels."""
    return user_cache_path("lcspec") / "models"


def cached_path(entry: Entry) -> Path | None:
    """Return the first file of a model if all of them are on this machine, whole."""
    paths = [_cached_file(entry, file) for file in entry.files]
    return None if None in paths else paths[0]


def _cached_file(entry: Entry, file: File) -> Path | None:
    for path in (cached_in_hub(entry.hub, file.name), own_file(file)):
        if path is not None and path.is_file() and file.size in (None, path.stat().st_size):
            return path
    return None


def own_file(file: File) -> Path:
    """Return where a file that came as wheels has its place."""
    return own_folder() / Path(file.name).name


def cached_in_hub(source: HubSource, name: str) -> Path | None:
    """Return a file of a repository from the hub's cache."""
    path = huggingface_hub.try_to_load_from_cache(source.repository, name, revision=source.revision)
    return Path(path) if isinstance(path, str) else None


def names_in_hub_cache(source: HubSource) -> list[str]:
    """Return the GGUF files of a repository that are in the hub's cache."""
    folder = blobs_folder(source).parent
    revision = source.revision or "main"
    with suppress(OSError):
        revision = (folder / "refs" / revision).read_text().strip()
    snapshot = folder / "snapshots" / revision
    return sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.is_file())


def blobs_folder(source: HubSource) -> Path:
    """Return where the hub's cache has the contents of a repository's files, named by their digests."""
    folder = repo_folder_name(repo_id=source.repository, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / folder / "blobs"


def mark_used(path: Path) -> None:
    """Note in a cached file's access time that it is used now; mounts often don't keep it themselves."""
    if any(folder in path.parents for folder in (Path(constants.HF_HUB_CACHE), own_folder())):
        with suppress(OSError):
            for file in split_files(path):
                os.utime(file, (time.time(), file.stat().st_mtime))


def local_models() -> list[LocalModel]:
    """Return the models of both caches by name; of a split model, only where all files are here."""
    found = {model.files: model for model in (*_in_hub_cache(), *_in_own_folder())}
    return sorted(found.values(), key=lambda model: model.name)


def _in_own_folder() -> Iterator[LocalModel]:
    known = {own_file(file): entry for entry in catalog().values() if entry.wheels for file in entry.files}
    for path in own_folder().glob("*.gguf"):
        entry = known.get(path)
        complete = entry is None or cached_path(entry) == path
        if complete:
            yield _local(entry.name if entry else str(path), (path,), entry)


def _in_hub_cache() -> Iterator[LocalModel]:
    if not Path(constants.HF_HUB_CACHE).is_dir():
        return
    known = {(entry.hub.repository, entry.files[0].name): entry for entry in catalog().values()}
    for repository in huggingface_hub.scan_cache_dir(constants.HF_HUB_CACHE).repos:
        for revision in repository.revisions:
            in_use = "main" in revision.refs
            names = [path.relative_to(revision.snapshot_path) for path in revision.snapshot_path.rglob("*.gguf")]
            for name in names:
                files = split_files(revision.snapshot_path / name)
                if files[0].name != name.name or not all(file.is_file() for file in files):
                    continue
                entry = known.get((repository.repo_id, name.as_posix()))
                if entry is not None and cached_path(entry) == files[0]:
                    yield _local(entry.name, tuple(files), entry)
                else:
                    at = "" if in_use else f"@{revision.commit_hash}"
                    yield _local(f"hf:{repository.repo_id}/{name.as_posix()}{at}", tuple(files), None)


def _local(name: str, files: tuple[Path, ...], entry: Entry | None) -> LocalModel:
    states = [file.stat() for file in files]
    return LocalModel(
        name=name,
        files=files,
        size=sum(state.st_size for state in states),
        licence=entry.licence if entry else "",
        last_used=max(state.st_atime for state in states),
    )


def remove(model: LocalModel) -> int:
    """Delete a model from its cache and return the bytes that this frees.

    Contents that another revision in the hub's cache shares stay, for that one.
    """
    freed = 0
    for file in model.files:
        content = file.resolve()
        size = content.stat().st_size
        file.unlink()
        if content != file.absolute():
            repository = content.parent.parent
            if any(link.resolve() == content for link in (repository / "snapshots").rglob("*") if link.is_symlink()):
                continue
            content.unlink()
        freed += size
    return freed
