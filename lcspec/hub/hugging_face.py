"""Fetching from the Hugging Face hub, with its own client and into its own cache."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import huggingface_hub
from filelock import FileLock, Timeout
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

from lcspec.errors import ModelError
from lcspec.hub.cache import blobs_folder, cached_in_hub
from lcspec.hub.catalog import Entry, File, HubSource
from lcspec.hub.checks import check_digest, check_room, wrong_digest

_CONNECT_SECONDS = 3.0
_LONGEST_WAIT = 300  # seconds, where the hub limits the rate of requests
_MOST_WAITS = 5
_TOO_MANY_REQUESTS = 429

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class HubUnreachableError(ModelError):
    """The hub does not answer, or breaks off; another source may have the file."""


def fetch_from_hub(entry: Entry) -> Path:
    """Fetch the files of a model into the hub's cache and return the path of the first.

    Raises:
        HubUnreachableError: the connection fails.
        ModelError: the hub refuses, there is no room, or a file has another digest than it should.
    """
    failure = f"{entry.name} can't be fetched from {constants.ENDPOINT}"
    if not _answers():
        raise HubUnreachableError(f"{failure}: it does not answer")
    first, *_ = [_fetch_file(entry, file, failure) for file in entry.files]
    return first


def names_on_hub(source: HubSource) -> list[str]:
    """Return the names of the files of a repository.

    Raises:
        ModelError: there is no such repository or revision, or the hub can't be asked.
    """
    failure = f"the files of {source.repository} can't be listed"
    if constants.HF_HUB_OFFLINE:
        raise ModelError(f"{failure}: HF_HUB_OFFLINE forbids to ask the hub")
    if not _answers():
        raise HubUnreachableError(f"{failure}: {constants.ENDPOINT} does not answer")
    api = huggingface_hub.HfApi(endpoint=constants.ENDPOINT)
    return sorted(_ask(failure, lambda: api.list_repo_files(source.repository, revision=source.revision)))


def _answers() -> bool:
    """Ask once, with a short timeout; the hub's client alone would retry for half a minute."""
    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_SECONDS)
    except Exception:  # the client's HTTP library differs by version, and so do its errors
        return False
    return True


def _fetch_file(entry: Entry, file: File, failure: str) -> Path:
    source = entry.hub
    stated = _ask(failure, lambda: _stated(source, file))
    if file.sha256 and stated.sha256 and file.sha256 != stated.sha256:
        raise wrong_digest(file.name, stated.sha256, file.sha256, "it was not fetched")
    file = File(file.name, file.size or stated.size, file.sha256 or stated.sha256)
    _forget_cut_downloads(source, file)
    link_before = cached_in_hub(source, file.name)
    blobs_before = {blob.name for blob in blobs_folder(source).glob("*")}
    if file.size is not None and link_before is None and file.sha256 not in blobs_before:
        check_room(entry.name, Path(constants.HF_HUB_CACHE), file.size)
    path = Path(
        _ask(failure, lambda: huggingface_hub.hf_hub_download(source.repository, file.name, revision=source.revision))
    )
    blob = path.parent / path.readlink() if path.is_symlink() else path

    def reject() -> str:
        if path != link_before:
            path.unlink(missing_ok=True)
        if blob.name in blobs_before or path == link_before:
            return f"it was in the hub's cache before: delete {blob.resolve()} to fetch again"
        blob.unlink(missing_ok=True)
        return "it was not kept"

    check_digest(path, file, reject)
    return path


def _stated(source: HubSource, file: File) -> File:
    """Return what the hub states of a file: its size and, if it is a large one, its digest."""
    url = huggingface_hub.hf_hub_url(source.repository, file.name, revision=source.revision)
    metadata = huggingface_hub.get_hf_file_metadata(url)
    try:
        return File(file.name, metadata.size, metadata.etag)
    except ValueError:  # a small file's ETag is another hash
        return File(file.name)


def _forget_cut_downloads(source: HubSource, file: File) -> None:
    """Delete what a killed process left of this file; the client begins anew and would leave it for ever."""
    left = list(blobs_folder(source).glob(f"{file.sha256}*.incomplete"))
    locks = Path(constants.HF_HUB_CACHE) / ".locks" / repo_folder_name(repo_id=source.repository, repo_type="model")
    if left:
        with suppress(Timeout, OSError), FileLock(locks / f"{file.sha256}.lock", timeout=0):
            for path in left:
                path.unlink(missing_ok=True)


def _ask(failure: str, request: Callable[[], _Result]) -> _Result:
    """Make a request, waiting as long as the hub wants where it limits the rate; turn errors into ours."""
    for _ in range(_MOST_WAITS):
        try:
            return request()
        except Exception as error:  # the client's HTTP library differs by version, and so do its errors
            cause = _cause(error)
            wait = _wanted_wait(cause)
            if wait is None or wait > _LONGEST_WAIT:
                kind = ModelError if _is_refusal(cause) else HubUnreachableError
                raise kind(f"{failure}: {_reason(cause)}") from error
            _log.info("the hub limits the rate of requests: waiting %d s", wait)
            time.sleep(wait)
    raise ModelError(f"{failure}: it limits the rate of requests; try again later, or set HF_TOKEN")


def _cause(error: Exception) -> BaseException:
    """Return what made the client say that a file is neither there nor here."""
    return error.__cause__ if isinstance(error, LocalEntryNotFoundError) and error.__cause__ else error


def _wanted_wait(error: BaseException) -> int | None:
    """Return the seconds to wait when the hub was asked too often; None for other errors."""
    if not isinstance(error, HfHubHTTPError) or error.response.status_code != _TOO_MANY_REQUESTS:
        return None
    after = error.response.headers.get("Retry-After", "")
    return max(1, int(after)) if after.isdecimal() else 10


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, HfHubHTTPError) and 400 <= error.response.status_code < 500


def _reason(error: BaseException) -> str:
    if isinstance(error, GatedRepoError):
        return "the repository is gated: accept its terms on the hub's page and set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return "the repository does not exist, or is private: check its name and HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return "the repository does not have this revision"
    if isinstance(error, RemoteEntryNotFoundError):
        return "the repository does not have this file"
    if (wait := _wanted_wait(error)) is not None:
        return f"it limits the rate of requests; try again in {wait:,} s, or set HF_TOKEN"
    return " ".join(str(error).split()) or type(error).__name__
