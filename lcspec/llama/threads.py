"""How many threads an evaluation should use."""

import math
import os
from pathlib import Path

import psutil

from lcspec.llama.cgroups import control_groups, read_text


def usable_physical_cores(root: Path = Path("/")) -> int:
    """Count the physical cores that this process may use, at least one.

    A core counts once however many hardware threads it has: evaluation is bound by memory and
    vector units, which the threads of a core share. The process's affinity and the CPU quota of its
    control groups (v2 and v1) are respected. `root` is where /sys and /proc are looked for.
    """
    quota = _cgroup_quota(root)
    cores = _physical_cores(root)
    return max(1, min(cores, math.floor(quota)) if quota is not None else cores)


def _physical_cores(root: Path) -> int:
    logical = _affinity()
    siblings = {read_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in logical}
    if None not in siblings:
        return len(siblings)
    return min(len(logical), psutil.cpu_count(logical=False) or len(logical))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _cgroup_quota(root: Path) -> float | None:
    """Return the smallest CPU quota, in cores, of this process's control groups and their parents."""
    quotas = [quota for group in control_groups("cpu", root) for quota in _quotas_of(group)]
    return min(quotas, default=None)


def _quotas_of(directory: Path) -> list[float]:
    v2 = (read_text(directory / "cpu.max") or "max").split()
    limit, period = v2 if len(v2) == 2 else ("max", "0")
    if limit == "max":
        limit = read_text(directory / "cpu.cfs_quota_us") or "-1"
        period = read_text(directory / "cpu.cfs_period_us") or "0"
    return [int(limit) / int(period)] if int(limit) > 0 and int(period) > 0 else []
