"""Drafters: cheap guesses at the next tokens, one file each."""

from lcspec.drafters.base import NO_DRAFT, Draft, Drafter, Propose
from lcspec.drafters.first_of import FirstOf
from lcspec.drafters.lookup import LookupDrafter
from lcspec.drafters.model import ModelDrafter

__all__ = ["NO_DRAFT", "Draft", "Drafter", "FirstOf", "LookupDrafter", "ModelDrafter", "Propose"]
