"""A draft head: a small network that foresees tokens from the target's own hidden states."""

from lcspec.draft_head.head import Head, head_for, read_head, write_head
from lcspec.draft_head.reader import HeadReader
from lcspec.draft_head.rows import TargetRows

__all__ = ["Head", "HeadReader", "TargetRows", "head_for", "read_head", "write_head"]
