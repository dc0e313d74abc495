"""The control groups that limit this process (Linux, v2 and v1)."""

from collections.abc import Iterator
from pathlib import Path


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of this process's groups for `controller` ('cpu', 'memory'), and of their parents.

    Not every folder exists: inside a container the path may name a group that is mounted as the root.
    `root` is where /sys and /proc are looked for.
    """
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy != "0" and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("" if hierarchy == "0" else controllers)
        group = mount / path.lstrip("/")
        for directory in [group, *group.parents]:
            yield directory
            if directory == mount:
                break


def read_text(path: Path) -> str | None:
    """Return the text of a file of the kernel without blanks around it, None where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
