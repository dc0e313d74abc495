"""Drafters: cheap guesses at the next tokens, one file each."""

from lcspec.drafters.base import NO_DRAFT, Draft, Drafter, Propose, StepwiseDrafter
from lcspec.drafters.head import HeadDrafter
from lcspec.drafters.lookup import LOOKUP_KINDS, LookupDrafter
from lcspec.drafters.model import MODEL_KINDS, ModelDrafter, voted
from lcspec.drafters.none import NoDrafter
from lcspec.drafters.shared_prompt import SharedPrompt

__all__ = [
    "LOOKUP_KINDS",
    "MODEL_KINDS",
    "NO_DRAFT",
    "Draft",
    "Drafter",
    "HeadDrafter",
    "LookupDrafter",
    "ModelDrafter",
    "NoDrafter",
    "Propose",
    "SharedPrompt",
    "StepwiseDrafter",
    "voted",
]
