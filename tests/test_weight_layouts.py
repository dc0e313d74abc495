"""What llama.cpp may lay weights out for, and that an AMX which crashes is left out."""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from llama_cpp import _ggml

from lcspec.llama import Model, amx_probe, machine, weight_layouts
from lcspec.llama.weight_layouts import _leave_out, _probe


def test_names_are_those_of_the_library(smollm2: Path) -> None:
    names = weight_layouts.weight_layouts()
    assert names == tuple(amx_probe.extra_buffer_types(_ggml.libggml))  # what it left out is gone
    assert names == weight_layouts.weight_layouts()
    assert machine()["layouts"].split() == list(names)
    with Model(smollm2) as model:
        assert model.is_repacked <= bool(names)


def test_amx_stays_only_where_its_product_is_right() -> None:
    """In a new process, in which nothing was left out yet; here it is the real AMX, where there is one."""
    script = (
        "from llama_cpp import _ggml; from lcspec.llama import amx_probe, weight_layouts\n"
        "print(*amx_probe.extra_buffer_types(_ggml.libggml)); print(*weight_layouts.weight_layouts())"
    )
    before, after = subprocess.check_output([sys.executable, "-c", script], text=True).split("\n")[:2]
    if "AMX" in before.split() and not _probe(Path(_ggml.libggml._name)):
        assert after.split() == [name for name in before.split() if name != "AMX"]
    else:
        assert before == after


def test_probe_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ordinary weights in AMX's place, which every processor multiplies right."""
    ggml = _ggml.libggml
    device = amx_probe._pointer_function(ggml, "ggml_backend_dev_by_type", of=ctypes.c_int)(0)
    ordinary = amx_probe._pointer_function(ggml, "ggml_backend_dev_buffer_type")(device)
    monkeypatch.setattr(amx_probe, "extra_buffer_types", lambda ggml: {"AMX": ordinary})
    assert amx_probe.product_is_right(ggml)
    monkeypatch.setattr(amx_probe, "_BLOCK", b"\x00\x3c" + b"\x02" + b"\x01" * 31)
    assert not amx_probe.product_is_right(ggml)


@pytest.mark.skipif(sys.platform == "win32", reason="ends a process by a signal")
@pytest.mark.parametrize(
    ("script", "works"),
    [
        ("pass", True),
        ("raise SystemExit(1)", False),
        (f"import os; os.kill(os.getpid(), {signal.SIGSEGV:d})", False),
        ("import time; time.sleep(60)", None),
    ],
)
def test_probe_that_does_not_end_well(
    script: str, works: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "probe.py").write_text(script)
    monkeypatch.setattr(amx_probe, "__file__", os.fspath(tmp_path / "probe.py"))
    monkeypatch.setattr(weight_layouts, "_SECONDS", 5.0 if "sleep" not in script else 0.5)
    assert _probe(tmp_path) is works


def test_an_application_without_python_does_not_start_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess, "run", pytest.fail)
    assert _probe(tmp_path) is None


@pytest.mark.parametrize("index", [0, 1, 2])
def test_left_out(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    array = (ctypes.c_void_p * 4)(10, 20, 30, None)
    monkeypatch.setattr(amx_probe, "extra_buffer_array", lambda ggml: array)
    _leave_out(index)
    kept = [address for i, address in enumerate([10, 20, 30]) if i != index]
    assert list(array) == [*kept, None, None]
