"""What people do with texts: each task is a prompt, the care around it, and a result."""

from typing import TYPE_CHECKING

from lcspec.lazily import lazily

if TYPE_CHECKING:
    from lcspec.tasks.chat import FittedPrompt, fit
    from lcspec.tasks.documents import Document
    from lcspec.tasks.edit import Edited, edit_text
    from lcspec.tasks.edited_piece import EditedPiece
    from lcspec.tasks.summarize import SummaryStream, summarize_text
    from lcspec.tasks.summary import Summary
    from lcspec.tasks.templates import Template, find_template
    from lcspec.tasks.text_file import TextFile

__all__ = [
    "Document",
    "Edited",
    "EditedPiece",
    "FittedPrompt",
    "Summary",
    "SummaryStream",
    "Template",
    "TextFile",
    "edit_text",
    "find_template",
    "fit",
    "summarize_text",
]

__getattr__ = lazily(
    __name__,
    {
        "lcspec.tasks.chat": ("FittedPrompt", "fit"),
        "lcspec.tasks.documents": ("Document",),
        "lcspec.tasks.edit": ("Edited", "edit_text"),
        "lcspec.tasks.edited_piece": ("EditedPiece",),
        "lcspec.tasks.summarize": ("SummaryStream", "summarize_text"),
        "lcspec.tasks.summary": ("Summary",),
        "lcspec.tasks.templates": ("Template", "find_template"),
        "lcspec.tasks.text_file": ("TextFile",),
    },
)
