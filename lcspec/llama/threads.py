"""How many threads an evaluation should use."""

import math
import os
from pathlib import Path

import psutil


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
    siblings = {_read(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in logical}
    if None not in siblings:
        return len(siblings)
    return min(len(logical), psutil.cpu_count(logical=False) or len(logical))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _cgroup_quota(root: Path) -> float | None:
    """Return the smallest CPU quota, in cores, of this process's control groups and their parents."""
    quotas: list[float] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy != "0" and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("" if hierarchy == "0" else controllers)
        group = mount / path.lstrip("/")
        # inside a container the path may name a group that is mounted as the root: walk up to it
        for directory in [group, *group.parents]:
            quotas += _quotas_of(directory)
            if directory == mount:
                break
    return min(quotas, default=None)


def _quotas_of(directory: Path) -> list[float]:
    v2 = (_read(directory / "cpu.max") or "max").split()
    limit, period = v2 if len(v2) == 2 else ("max", "0")
    if limit == "max":
        limit = _read(directory / "cpu.cfs_quota_us") or "-1"
        period = _read(directory / "cpu.cfs_period_us") or "0"
    return [int(limit) / int(period)] if int(limit) > 0 and int(period) > 0 else []


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
