"""Fetching from the Hugging Face hub, with its own client and into its own cache."""

import errno
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
from lcspec.hub.checks import check_content, check_room, wrong_digest, wrong_size

_CONNECT_SECONDS = 3.0
_LONGEST_WAIT = 300  # seconds, where the hub limits the rate of requests
_MOST_WAITS = 5
_UNAUTHORIZED, _TOO_MANY_REQUESTS = 401, 429
_WRONG_SIZE = re.compile(r"file should be of size (\d+) but has size (\d+)")
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG}
_OF_THE_DISK |= {errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EMFILE}

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
    if file.size and stated.size and file.size != stated.size:
        raise wrong_size(file, stated.size, "it was not fetched")
    file = File(file.name, file.size or stated.size, file.sha256 or stated.sha256)
    _forget_cut_downloads(source, file)
    link_before = cached_in_hub(source, file.name)
    blobs_before = {blob.name for blob in blobs_folder(source).glob("*")}
    if file.size is not None and link_before is None and file.sha256 not in blobs_before:
        check_room(entry.name, Path(constants.HF_HUB_CACHE), file.size)
    try:
        download = huggingface_hub.hf_hub_download
        path = Path(_ask(failure, lambda: download(source.repository, file.name, revision=source.revision)))
    except ModelError:
        _forget_cut_downloads(source, file)
        raise
    blob = path.parent / path.readlink() if path.is_symlink() else path

    def reject() -> str:
        if path != link_before:
            path.unlink(missing_ok=True)
        if blob.name in blobs_before or path == link_before:
            return f"it was in the hub's cache before: `lcspec models rm {entry.name}` and fetch it again"
        blob.unlink(missing_ok=True)
        return "it was not kept"

    check_content(path, file, reject)
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
            with _retries_told():
                return request()
        except Exception as error:  # the client's HTTP library differs by version, and so do its errors
            cause = _cause(error)
            wait = _wanted_wait(cause)
            if wait is None or wait > _LONGEST_WAIT:
                kind = ModelError if _is_refusal(cause) or _is_of_the_disk(cause) else HubUnreachableError
                raise kind(f"{failure}: {_reason(cause)}") from error
            _log.info("the hub limits the rate of requests: waiting %d s", wait)
            time.sleep(wait)
    raise ModelError(f"{failure}: it limits the rate of requests; try again later, or set HF_TOKEN")


@contextmanager
def _retries_told() -> Iterator[None]:
    """Say so while the hub's client waits and tries again, which it does for half a minute."""
    log = logging.getLogger("huggingface_hub.utils._http")
    level, handler = log.level, _Retries()
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


class _Retries(logging.Handler):
    """Passes on what the hub's client says of retries."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass on one message."""
        if (message := record.getMessage()).startswith("Retrying"):
            _log.info("the hub does not answer as it should: %s", message[0].lower() + message[1:])


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
    if isinstance(error, HfHubHTTPError):
        return 400 <= error.response.status_code < 500
    return isinstance(error, UnicodeEncodeError) or _WRONG_SIZE.search(str(error)) is not None


def _is_of_the_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _OF_THE_DISK


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
    if isinstance(error, HfHubHTTPError) and error.response.status_code == _UNAUTHORIZED:
        return "it wants a token that it accepts: check HF_TOKEN"
    if isinstance(error, UnicodeEncodeError):
        return "HF_TOKEN has characters that no token has"
    if isinstance(error, OSError) and _is_of_the_disk(error):
        return f"{error.strerror}: {error.filename or constants.HF_HUB_CACHE}"
    if sizes := _WRONG_SIZE.search(str(error)):
        return f"what came has {int(sizes[2]):,} bytes, expected {int(sizes[1]):,}; it was not kept"
    if isinstance(error, ValueError):
        return f"its answer is not that of a hub ({type(error).__name__}): check HF_ENDPOINT and proxies"
    return " ".join(str(error).split()) or type(error).__name__
