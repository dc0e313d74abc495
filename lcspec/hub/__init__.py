"""Where models come from, and which belong together."""

from lcspec.hub.cache import LocalModel, cached_path, local_models, remove
from lcspec.hub.catalog import Entry, catalog, user_catalog_path
from lcspec.hub.drafts import (
    HEAD,
    MODEL,
    DerivedDraft,
    check_draft_is_new,
    check_draft_name,
    derived_draft,
    derived_drafts,
    derived_file,
    drafts_folder,
    publish,
    remove_draft,
)
from lcspec.hub.fetch import fetch, is_intact
from lcspec.hub.find import find_model
from lcspec.hub.names import entry_of
from lcspec.hub.pairing import Candidate, check_pair, draft_candidates, pre_tokenizer_difference

__all__ = [
    "HEAD",
    "MODEL",
    "Candidate",
    "DerivedDraft",
    "Entry",
    "LocalModel",
    "cached_path",
    "catalog",
    "check_draft_is_new",
    "check_draft_name",
    "check_pair",
    "derived_draft",
    "derived_drafts",
    "derived_file",
    "draft_candidates",
    "drafts_folder",
    "entry_of",
    "fetch",
    "find_model",
    "is_intact",
    "local_models",
    "pre_tokenizer_difference",
    "publish",
    "remove",
    "remove_draft",
    "user_catalog_path",
]
