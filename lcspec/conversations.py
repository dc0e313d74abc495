"""The user's conversations, kept as files."""

import glob
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from platformdirs import user_data_path

from lcspec.checks import shown
from lcspec.conversation import Conversation, now
from lcspec.errors import FileError
from lcspec.files import write_atomically

_VERSION = 1
_ENDING = ".json"
_LONGEST_NAME = 150  # bytes; file systems take 255, endings and all
_DEAD_SECONDS = 3600.0  # after which a file that is not whole was left by a writer that is dead
_LARGEST = 64 << 20  # bytes of a file that is read, or written
_LOCK_SECONDS = 10.0
_FORBIDDEN = re.compile(  # in file names, somewhere; and what controls a terminal, or turns the direction of a text
    r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]'
)
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)  # names that Windows keeps for itself


class ChangedError(FileError):
    """A conversation's file is not the one that was read or written here."""


class Conversations:
    """A folder of conversations, one JSON file each, readable by the user alone.

    A file is replaced as a whole or not at all, and never one that is damaged or that another process changed
    since it was read here.

    Args:
        folder: where they are kept; by default among the user's data.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or user_data_path("lcspec") / "conversations"
        self._contents: dict[str, bytes] = {}
        """Digests of the files as they were last read or written here, by name."""

    def begin(self, model: str, name: str | None = None) -> Conversation:
        """Return a new conversation, which is not saved yet; without a name it gets one of the date and time.

        Raises:
            FileError: the name can't be one, or is taken.
        """
        if name is None:
            name = self._free_name()
        elif self._path(name).exists():
            raise FileError(f"there is a conversation {name!r} already")
        created = now()
        return Conversation(name, model, [], created=created, changed=created)

    def save(self, conversation: Conversation) -> None:
        """Write a conversation.

        Raises:
            ChangedError: the file that it would replace is not the one that was read or written here: damaged, of
                another conversation, or changed by another process.
            FileError: it can't be written, or is too large to be read again.
        """
        name = conversation.name
        path = self._path(name)
        content = _as_json(conversation)
        if len(content) > _LARGEST:
            raise FileError(f"{path} would be larger than {_LARGEST >> 20} MB: not written; begin a new conversation")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock():
                write_atomically(
                    path, content, mode=0o600, check=lambda: self._check_unchanged(name, "replaced; use another name")
                )
            self._sweep("*", older_than=_DEAD_SECONDS)
        except OSError as error:
            raise FileError(f"the conversation can't be kept in {path}: {error.strerror}") from error
        self._contents[name] = _digest(content)

    def load(self, name: str) -> Conversation:
        """Read a conversation, to go on with it.

        Raises:
            FileError: there is none of that name, or its file is damaged or can't be read.
        """
        conversation, self._contents[name] = self._read(name)
        return conversation

    def peek(self, name: str) -> Conversation:
        """Read a conversation only to look at it: what `save` may replace stays the same.

        Raises:
            FileError: as of `load`.
        """
        return self._read(name)[0]

    def latest(self) -> Conversation | None:
        """Read the conversation that was saved last; None where there are none.

        Raises:
            FileError: its file is damaged or can't be read.
        """
        names = self.names()
        return self.load(names[0]) if names else None

    def names(self) -> list[str]:
        """Return the names of all conversations, the one that was saved last first.

        Raises:
            FileError: the folder can't be read.
        """
        saved = []
        try:
            for file in os.scandir(self.folder):
                name = file.name.removesuffix(_ENDING)
                if file.name.endswith(_ENDING) and _problem(name) is None and file.is_file():
                    with suppress(FileNotFoundError):  # removed just now
                        saved.append((file.stat().st_mtime_ns, name))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileError(f"the conversations in {self.folder} can't be listed: {error.strerror}") from error
        return [name for _, name in sorted(saved, reverse=True)]

    def remove(self, name: str) -> None:
        """Remove a conversation, and what is kept beside it.

        Raises:
            ChangedError: its file is not the one that was read or written here.
            FileError: there is none of that name, or it can't be removed.
        """
        path = self._path(name)
        if not path.exists():
            raise FileError(f"there is no conversation {name!r}")
        try:
            with self._lock():
                self._check_unchanged(name, "removed")
                path.unlink()
                self._state_path(name).unlink(missing_ok=True)
                self._sweep(name)
        except FileNotFoundError:
            raise FileError(f"there is no conversation {name!r}") from None
        except OSError as error:
            raise FileError(f"{path} can't be removed: {error.strerror}") from error
        self._contents.pop(name, None)

    def state_path(self, conversation: Conversation) -> Path:
        """Return where the state of a conversation is kept, for an engine to save and restore."""
        return self._state_path(conversation.name)

    def _state_path(self, name: str) -> Path:
        return self.folder / "states" / f"{_checked(name)}.kv"

    def _path(self, name: str) -> Path:
        return self.folder / f"{_checked(name)}{_ENDING}"

    def _read(self, name: str) -> tuple[Conversation, bytes]:
        """Return a conversation and the digest of its file."""
        path = self._path(name)
        if not path.exists():
            raise FileError(f"there is no conversation {name!r}")
        content = _read(path)
        return _from_json(name, content, path), _digest(content)

    def _check_unchanged(self, name: str, what: str) -> None:
        """Make sure that there is no file, or the one that was read or written here."""
        path = self._path(name)
        if path.exists() and _digest(_read(path)) != self._contents.get(name):
            raise ChangedError(f"{path} is not as it was when it was read: not {what}")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other processes from writing and removing."""
        try:
            with FileLock(self.folder / ".lock", timeout=_LOCK_SECONDS, mode=0o600):
                yield
        except Timeout as error:
            raise FileError(f"{self.folder} is locked by another process; try again") from error

    def _sweep(self, name: str, older_than: float = 0.0) -> None:
        """Remove what writers of a conversation ("*": of any) left that were killed, if that is some seconds old."""
        one = "*" if name == "*" else glob.escape(name)
        unfinished = (*self.folder.glob(f".{one}.json.*.new"), *self.folder.glob(f"states/.{one}.kv.*.new"))
        for leftover in unfinished:
            writer = leftover.name.removesuffix(".new").rpartition(".")[2]
            if name != "*" and leftover.name not in (f".{name}.json.{writer}.new", f".{name}.kv.{writer}.new"):
                continue  # of a conversation whose name begins like this one's
            with suppress(OSError):
                if time.time() - leftover.stat().st_mtime >= older_than:
                    leftover.unlink()

    def _free_name(self) -> str:
        """Return a name that no other process finds free in the same second."""
        while True:
            name = f"{datetime.now():%Y-%m-%d-%H%M%S}-{secrets.randbelow(1_000_000):06}"
            if not self._path(name).exists():
                return name


def _checked(name: str) -> str:
    if (problem := _problem(name)) is not None:
        raise FileError(f"{shown(name)} can't be the name of a conversation: {problem}")
    return name


def _problem(name: object) -> str | None:
    """Say what keeps a name from being one of a conversation, in words; None where nothing does."""
    if not isinstance(name, str) or not name.strip():
        return "it is empty"
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "it is no text"
    if length > _LONGEST_NAME:
        return f"it is longer than {_LONGEST_NAME} bytes"
    if found := _FORBIDDEN.search(name):
        return f"it has {found[0]!r} in it"
    if name[0] in ". " or name[-1] in ". ":
        return "it begins or ends with a dot or a space"
    return "some systems keep it for a device" if _DEVICE.fullmatch(name) else None


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise FileError(f"{path} is not an ordinary file")
        if path.stat().st_size > _LARGEST:
            raise FileError(f"{path} is too large for a conversation")
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"{path} can't be read: {error.strerror}") from error


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _as_json(conversation: Conversation) -> bytes:
    fields = {
        "version": _VERSION,
        "model": conversation.model,
        "created": conversation.created,
        "changed": conversation.changed,
        "messages": conversation.messages,
    }
    return json.dumps(fields, ensure_ascii=False, indent=1).encode("utf-8", "replace") + b"\n"


def _from_json(name: str, content: bytes, path: Path) -> Conversation:
    try:
        fields = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: it is no JSON; mend or move it") from error
    if not isinstance(fields, dict):
        raise FileError(f"{path} is no conversation; mend or move it")
    version = fields.get("version")
    if type(version) is int and version > _VERSION:
        raise FileError(f"{path} was written by a newer lcspec (version {version}): upgrade this one")
    messages: Any = fields.get("messages")
    texts: dict[str, Any] = {key: fields.get(key) for key in ("model", "created", "changed")}
    are_texts = all(isinstance(text, str) for text in texts.values())
    if type(version) is not int or version < 1 or not are_texts or not _are_messages(messages):
        raise FileError(f"{path} is no conversation; mend or move it")
    kept = [{"role": message["role"], "content": message["content"]} for message in messages]
    return Conversation(name, messages=kept, **texts)


def _are_messages(messages: object) -> bool:
    """Tell whether this is a list of messages with a system message at most in the first place."""
    if not isinstance(messages, list):
        return False
    for i, message in enumerate(messages):
        roles = ("user", "assistant") if i else ("system", "user", "assistant")
        if not isinstance(message, dict) or message.get("role") not in roles:
            return False
        if not isinstance(message.get("content"), str):
            return False
    return True
