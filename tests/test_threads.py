import os
from pathlib import Path

import psutil
import pytest

from lcspec.llama.threads import usable_physical_cores


class FakeMachine:
    """The files under /sys and /proc that tell of processors and control groups."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._monkeypatch = monkeypatch

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def allow(self, *cpus: int) -> None:
        """Let this process run on some logical processors."""
        self._monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(cpus), raising=False)

    def add_core(self, *cpus: int, siblings: str) -> None:
        for cpu in cpus:
            self.write(f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)

    def add_plain_cores(self, n: int) -> None:
        """Add cores of one hardware thread each, all of them usable."""
        for cpu in range(n):
            self.add_core(cpu, siblings=str(cpu))
        self.allow(*range(n))

    def join_groups(self, *lines: str) -> None:
        self.write("proc/self/cgroup", "\n".join(lines))

    @property
    def cores(self) -> int:
        return usable_physical_cores(self.root)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    return FakeMachine(tmp_path, monkeypatch)


@pytest.fixture
def eight_cores(machine: FakeMachine) -> FakeMachine:
    machine.add_plain_cores(8)
    assert machine.cores == 8
    return machine


def test_hardware_threads_of_a_core_count_once(machine: FakeMachine) -> None:
    for cpu in range(4):
        machine.add_core(cpu, cpu + 4, siblings=f"{cpu},{cpu + 4}")
    machine.allow(*range(8))
    assert machine.cores == 4


def test_cores_with_and_without_hardware_threads_add_up(machine: FakeMachine) -> None:
    machine.add_core(0, 1, siblings="0-1")
    machine.add_core(2, 3, siblings="2-3")
    machine.add_core(4, siblings="4")
    machine.add_core(5, siblings="5")
    machine.allow(*range(6))
    assert machine.cores == 4


def test_only_processors_that_the_process_may_use_count(machine: FakeMachine) -> None:
    for cpu in range(4):
        machine.add_core(cpu, cpu + 4, siblings=f"{cpu},{cpu + 4}")
    machine.allow(0, 4, 5)
    assert machine.cores == 2
    machine.allow(6)
    assert machine.cores == 1


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000", 8),
        ("400000 100000", 4),
        ("250000 100000", 2),
        ("150000 50000", 3),
        ("50000 100000", 1),
        ("1600000 100000", 8),
    ],
)
def test_the_quota_of_the_control_group_limits(eight_cores: FakeMachine, quota: str, cores: int) -> None:
    eight_cores.join_groups("0::/user.slice/job.scope")
    eight_cores.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", quota)
    assert eight_cores.cores == cores


@pytest.mark.parametrize("parent", ["user.slice/", ""])
def test_the_smallest_quota_of_the_group_and_its_parents_limits(eight_cores: FakeMachine, parent: str) -> None:
    eight_cores.join_groups("0::/user.slice/job.scope")
    eight_cores.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "500000 100000")
    eight_cores.write(f"sys/fs/cgroup/{parent}cpu.max", "300000 100000")
    assert eight_cores.cores == 3
    eight_cores.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "200000 100000")
    assert eight_cores.cores == 2


def test_a_group_that_is_mounted_as_the_root_limits(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("0::/")
    eight_cores.write("sys/fs/cgroup/cpu.max", "300000 100000")
    assert eight_cores.cores == 3


def test_a_group_path_from_outside_the_container_leads_to_the_mounted_root(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("0::/docker/0123456789abcdef")
    eight_cores.write("sys/fs/cgroup/cpu.max", "200000 100000")
    assert eight_cores.cores == 2


def test_other_groups_do_not_limit(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("0::/mine")
    eight_cores.write("sys/fs/cgroup/mine/below/cpu.max", "100000 100000")
    eight_cores.write("sys/fs/cgroup/beside/cpu.max", "100000 100000")
    eight_cores.write("sys/fs/cpu.max", "100000 100000")
    assert eight_cores.cores == 8


@pytest.mark.parametrize("controllers", ["cpu,cpuacct", "cpuacct,cpu", "cpu"])
def test_the_quota_of_a_version_1_group_limits(eight_cores: FakeMachine, controllers: str) -> None:
    eight_cores.join_groups("9:memory:/job", f"4:{controllers}:/job", "1:name=systemd:/job")
    eight_cores.write(f"sys/fs/cgroup/{controllers}/job/cpu.cfs_quota_us", "300000")
    eight_cores.write(f"sys/fs/cgroup/{controllers}/job/cpu.cfs_period_us", "100000")
    assert eight_cores.cores == 3
    eight_cores.write(f"sys/fs/cgroup/{controllers}/cpu.cfs_quota_us", "100000")
    eight_cores.write(f"sys/fs/cgroup/{controllers}/cpu.cfs_period_us", "50000")
    assert eight_cores.cores == 2


def test_a_version_1_group_without_quota_does_not_limit(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("4:cpu,cpuacct:/job")
    eight_cores.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1")
    eight_cores.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000")
    assert eight_cores.cores == 8


def test_other_version_1_controllers_do_not_limit(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("4:cpuset:/job", "5:cpuacct:/job")
    for controller in ("cpuset", "cpuacct"):
        eight_cores.write(f"sys/fs/cgroup/{controller}/job/cpu.cfs_quota_us", "100000")
        eight_cores.write(f"sys/fs/cgroup/{controller}/job/cpu.cfs_period_us", "100000")
    assert eight_cores.cores == 8


def test_both_versions_together_give_the_smaller_quota(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("4:cpu:/job", "0::/job")
    eight_cores.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "500000")
    eight_cores.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000")
    eight_cores.write("sys/fs/cgroup/job/cpu.max", "600000 100000")
    assert eight_cores.cores == 5


def test_a_quota_below_one_core_still_gives_one(eight_cores: FakeMachine) -> None:
    eight_cores.join_groups("0::/job")
    eight_cores.write("sys/fs/cgroup/job/cpu.max", "1000 100000")
    assert eight_cores.cores == 1


def test_the_quota_counts_cores_and_not_hardware_threads(machine: FakeMachine) -> None:
    for cpu in range(2):
        machine.add_core(cpu, cpu + 2, siblings=f"{cpu},{cpu + 2}")
    machine.allow(*range(4))
    machine.join_groups("0::/")
    machine.write("sys/fs/cgroup/cpu.max", "300000 100000")
    assert machine.cores == 2


@pytest.mark.parametrize(("physical", "allowed", "cores"), [(2, 4, 2), (8, 3, 3), (None, 4, 4)])
def test_without_a_topology_psutil_and_the_affinity_decide(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, physical: int | None, allowed: int, cores: int
) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 99 if logical else physical)
    machine.allow(*range(allowed))
    assert machine.cores == cores


def test_a_topology_with_gaps_is_not_trusted(machine: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 99 if logical else 4)
    machine.add_core(0, 1, siblings="0-1")
    machine.allow(*range(8))
    assert machine.cores == 4


@pytest.mark.parametrize(("count", "cores"), [(6, 6), (None, 1)])
def test_without_affinity_every_processor_counts(
    machine: FakeMachine, monkeypatch: pytest.MonkeyPatch, count: int | None, cores: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)
    assert machine.cores == cores


def test_this_machine_has_a_core() -> None:
    assert 1 <= usable_physical_cores() <= (os.cpu_count() or 1)
