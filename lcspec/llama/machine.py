"""The processor and the library, on which speeds and last bits depend."""

import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import llama_cpp

from lcspec.llama.weight_layouts import weight_layouts


@cache
def machine() -> dict[str, str]:
    """Return the processor's name, what of it llama.cpp uses, and the library's version."""
    features = llama_cpp.llama_print_system_info()
    return {
        "processor": _processor(),
        "features": bytes(features).decode("utf-8", "replace").strip() if features else "",
        "layouts": " ".join(weight_layouts()),
        "library": f"llama-cpp-python {version('llama-cpp-python')}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = {line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")}
    return ", ".join(sorted(names)) or platform.processor() or platform.machine()
