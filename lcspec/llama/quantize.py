"""The weights of a model at fewer bits, by llama.cpp's quantizer, in a process of its own.

The quantizer can't be interrupted, takes minutes, and ends its process over some types; in a process of its own it can
be ended, and end, at any time.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import llama_cpp

from lcspec.errors import ModelError
from lcspec.llama import log


def quantize(source: Path, destination: Path, kind: str, threads: int) -> None:
    """Write a model with its weights quantized to another type, those that are quantized already, too.

    Args:
        source: the model, one file.
        destination: the new file.
        kind: one of `lcspec.limits.QUANTIZATIONS`.
        threads: threads to use.

    Raises:
        ModelError: llama.cpp can't do it.
    """
    command = [sys.executable, "-m", __name__, str(source), str(destination), kind, str(threads)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    try:
        _, errors = process.communicate()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines() or ["llama.cpp gave no reason"]
        raise ModelError(f"{source.name} can't be quantized to {kind}: {lines[-1]}")


def _run(source: str, destination: str, kind: str, threads: str) -> int:
    log.install()
    params = llama_cpp.llama_model_quantize_default_params()
    name = f"LLAMA_FTYPE_MOSTLY_{kind}"
    params.ftype = getattr(llama_cpp, name)
    params.nthread = int(threads)
    params.allow_requantize = True
    log.forget_errors()
    status = llama_cpp.llama_model_quantize(os.fsencode(source), os.fsencode(destination), ctypes.byref(params))
    if status != 0:
        print(log.first_error(), file=sys.stderr)
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(_run(*sys.argv[1:]))
