"""Public names that are imported when they are used."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazily(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, which imports names from modules when they are used.

    llama.cpp and numpy take a while to be imported, which completion in a shell does not have.

    Args:
        package: its name.
        modules: by name, and what to take from each.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return get
