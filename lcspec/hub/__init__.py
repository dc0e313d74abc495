"""Where models come from, and which belong together."""

from lcspec.hub.catalog import Entry, catalog
from lcspec.hub.find import find_model, missing_entry
from lcspec.hub.pairing import check_pair

__all__ = ["Entry", "catalog", "check_pair", "find_model", "missing_entry"]
