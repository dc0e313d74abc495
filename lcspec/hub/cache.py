"""The models on this machine: in the hub's cache, and in lcspec's own folder, where wheels are unpacked."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from filelock import FileLock, Timeout
from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name
from platformdirs import user_cache_path

from lcspec.errors import ModelError
from lcspec.hub.catalog import Entry, HubSource, catalog, shipped_catalog
from lcspec.hub.drafts import drafts_folder
from lcspec.llama import split_files

_STAGING = ".fetch-"


@dataclass(frozen=True)
class LocalModel:
    """A model in one of the two caches."""

    name: str
    """The catalog's name, or 'hf:' with repository and file."""
    files: tuple[Path, ...]
    """Those that are here."""
    size: int
    """Bytes."""
    licence: str
    """As the catalog says; empty where it does not."""
    last_used: float
    """Seconds since the epoch."""
    is_complete: bool = True
    """Whether all files are here; otherwise it can only be fetched on, or removed."""


def cached_path(entry: Entry) -> Path | None:
    """Return the first file of a model if all of them are on this machine, whole."""
    paths = [cached_in_hub(entry.hub, file.name) for file in entry.files]
    if _are_whole(entry, paths):
        return paths[0]
    return own_file(entry) if entry.wheels is not None and _are_whole(entry, [own_file(entry)]) else None


def _are_whole(entry: Entry, paths: list[Path | None]) -> bool:
    for path, file in zip(paths, entry.files, strict=True):
        try:
            if path is None or not path.is_file() or file.size not in (None, path.stat().st_size):
                return False
        except OSError:  # it vanished meanwhile
            return False
    return True


# lcspec's own folder


def own_folder() -> Path:
    """Return the folder of models that came as wheels."""
    return user_cache_path("lcspec") / "models"


def own_file(entry: Entry) -> Path:
    """Return where the file of an entry with wheels has its place.

    No two entries of the shipped catalog have files of the same name; those of other catalogs have a
    folder for each package.
    """
    assert entry.wheels is not None
    name = Path(entry.files[0].name).name
    if any((one.wheels, one.files) == (entry.wheels, entry.files) for one in shipped_catalog().values()):
        return own_folder() / name
    return own_folder() / f"{entry.wheels.package}-{entry.wheels.version}" / name


def staging_folder(entry: Entry) -> Path:
    """Return where the file of an entry with wheels is joined."""
    target = own_file(entry)
    return target.with_name(f"{_STAGING}{target.name}")


def fetch_lock(staging: Path) -> FileLock:
    """Return the lock that a fetch into `staging` holds."""
    folder = own_folder()
    name = "-".join(staging.relative_to(folder).parts).replace(_STAGING, "")
    return FileLock(folder.with_name("locks") / f"{name}.lock")


def _in_own_folder() -> Iterator[LocalModel]:
    known = {own_file(entry): entry for entry in catalog().values() if entry.wheels is not None}
    folder = own_folder()
    for path in [*folder.glob("*.gguf"), *folder.glob("*/*.gguf")]:
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        entry = known.get(path)
        yield from _local(
            entry.name if entry else str(path), [path], entry, entry is None or cached_path(entry) == path
        )
    for entry in known.values():
        staging = staging_folder(entry)
        parts = [path for path in staging.glob("**/*") if path.is_file()]
        if not own_file(entry).is_file():
            yield from _local(entry.name, parts, entry, is_complete=False)


# the hub's cache


def cached_in_hub(source: HubSource, name: str) -> Path | None:
    """Return a file of a repository from the hub's cache."""
    path = huggingface_hub.try_to_load_from_cache(source.repository, name, revision=source.revision)
    return Path(path) if isinstance(path, str) else None


def names_in_hub_cache(source: HubSource) -> list[str]:
    """Return the GGUF files of a repository that are in the hub's cache."""
    folder = blobs_folder(source).parent
    revision = source.revision or "main"
    snapshot = folder / "snapshots" / (_commit(folder, revision) or revision)
    return sorted(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf") if path.is_file())


def blobs_folder(source: HubSource) -> Path:
    """Return where the hub's cache has the contents of a repository's files, named by their digests."""
    folder = repo_folder_name(repo_id=source.repository, repo_type="model")
    return Path(constants.HF_HUB_CACHE) / folder / "blobs"


def _commit(repository: Path, revision: str) -> str | None:
    with suppress(OSError):
        return (repository / "refs" / revision).read_text().strip()
    return None


def _in_hub_cache() -> Iterator[LocalModel]:
    known = {(entry.hub.repository, entry.files[0].name): entry for entry in catalog().values()}
    for folder in Path(constants.HF_HUB_CACHE).glob("models--*"):
        repository = folder.name.removeprefix("models--").replace("--", "/")
        main = _commit(folder, "main")
        for snapshot in folder.glob("snapshots/*"):
            at = "" if snapshot.name == main else f"@{snapshot.name}"
            for first in {split_files(path)[0] for path in snapshot.rglob("*.gguf")}:
                files = split_files(first)
                here = [file for file in files if file.is_file()]
                name = first.relative_to(snapshot).as_posix()
                entry = known.get((repository, name))
                revision = entry.hub.revision or "main" if entry else ""
                if (_commit(folder, revision) or revision if revision else "") != snapshot.name:
                    entry = None
                is_complete = len(here) == len(files)
                if is_complete and entry is not None and cached_path(entry) != first:
                    entry = None
                title = entry.name if entry else f"hf:{repository}/{name}{at}"
                yield from _local(title, here, entry, is_complete)


# both


def mark_used(path: Path) -> None:
    """Note in a cached file's access time that it is used now; mounts often don't keep it themselves."""
    if any(folder in path.parents for folder in (Path(constants.HF_HUB_CACHE), own_folder(), drafts_folder())):
        with suppress(OSError):
            for file in split_files(path):
                os.utime(file, (time.time(), file.stat().st_mtime))


def local_models() -> list[LocalModel]:
    """Return the models of both caches by name."""
    found = {model.files: model for model in (*_in_hub_cache(), *_in_own_folder())}
    return sorted(found.values(), key=lambda model: model.name)


def _local(name: str, files: list[Path], entry: Entry | None, is_complete: bool) -> Iterator[LocalModel]:
    """Yield a model of which there are ordinary files; nothing where they vanish meanwhile."""
    try:
        states = [file.stat() for file in files if file.is_file()]
    except OSError:
        return
    if states:
        yield LocalModel(
            name=name,
            files=tuple(files),
            size=sum(state.st_size for state in states),
            licence=entry.licence if entry else "",
            last_used=max(state.st_atime for state in states),
            is_complete=is_complete,
        )


def remove(model: LocalModel) -> int:
    """Delete a model from its cache and return the bytes that this frees.

    Contents that another revision in the hub's cache shares stay, for that one, and so does a file outside
    of the caches to which there is only a link.

    Raises:
        ModelError: a file can't be deleted.
    """
    try:
        staging = next((folder for folder in model.files[0].parents if folder.name.startswith(_STAGING)), None)
        if staging is not None:
            return _remove_staging(model, staging)
        freed = sum(_remove_file(file) for file in model.files)
        if model.files[0].parent.parent == own_folder():
            with suppress(OSError):  # it has other files
                model.files[0].parent.rmdir()
    except OSError as error:
        raise ModelError(f"{model.name} can't be deleted: {error.strerror or error}: {error.filename}") from error
    return freed


def _remove_staging(model: LocalModel, staging: Path) -> int:
    lock = fetch_lock(staging)
    lock_folder = Path(lock.lock_file).parent
    lock_folder.mkdir(parents=True, exist_ok=True)
    try:
        with lock.acquire(timeout=0):
            shutil.rmtree(staging)
    except Timeout as error:
        raise ModelError(f"{model.name} can't be deleted: another process fetches it") from error
    return model.size


def _remove_file(file: Path) -> int:
    is_link, content = file.is_symlink(), file.resolve()
    size = content.stat().st_size if content.exists() else 0
    file.unlink(missing_ok=True)
    if not is_link:
        return size
    if content.parent.name != "blobs" or Path(constants.HF_HUB_CACHE).resolve() not in content.parents:
        return 0
    links = (content.parents[1] / "snapshots").rglob("*")
    if any(link.is_symlink() and link.resolve() == content for link in links):
        return 0
    content.unlink(missing_ok=True)
    return size
