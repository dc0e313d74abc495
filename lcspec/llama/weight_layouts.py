"""The layouts that llama.cpp may bring weights into for this processor's matrix kernels."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

from llama_cpp import _ggml

from lcspec.llama import amx_probe
from lcspec.measurements import Measurements

_log = logging.getLogger(__name__)

_SECONDS = 20.0  # for the probe, which takes a fraction of one
_lock = threading.Lock()


def weight_layouts() -> tuple[str, ...]:
    """Return the names of the layouts in the order in which llama.cpp tries them, for example 'CPU_REPACK'.

    AMX is left out, for this process, where the installed build of llama.cpp crashes in it: GCC before 14
    drops the stores of the tile configuration, and the processor then refuses to load it
    (llama.cpp, pull request 26954). Call it before a model is loaded.
    """
    with _lock:
        names = list(amx_probe.extra_buffer_types(_ggml.libggml))
        if "AMX" in names and not _amx_works():
            _leave_out(names.index("AMX"))
            names.remove("AMX")
        return tuple(names)


def _amx_works() -> bool:
    library = Path(_ggml.libggml._name)
    files = sorted(library.parent.glob("*ggml*"))
    built = {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}
    measurements = Measurements({"library": str(library), "built": built})
    works = measurements.recall("amx-works")
    if not isinstance(works, bool):
        works = _probe(library)
        if works is not None:
            measurements.keep("amx-works", works)
    if works is False:
        _log.info("this build of llama.cpp crashes in AMX, so it runs without; GCC 14 or later would build it right")
    return works is True


def _probe(library: Path) -> bool | None:
    """Tell whether AMX multiplies right; None where that can't be tried."""
    if not sys.executable or getattr(sys, "frozen", False):
        return None  # an application without a Python of its own, which must not start itself
    command = [sys.executable, "-I", amx_probe.__file__, str(library)]
    quiet = subprocess.DEVNULL
    try:
        return subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_SECONDS).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return None


def _leave_out(index: int) -> None:
    array = amx_probe.extra_buffer_array(_ggml.libggml)
    while array[index]:
        array[index] = array[index + 1]
        index += 1
