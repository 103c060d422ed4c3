"""How many cores this process may use: those of the machine, or fewer in a container or a service.

Problem: `os.cpu_count` counts the machine's cores. A container or a systemd service that is limited to two of
sixty-four would offer sixty-four slots, and be throttled by the kernel.

Design: the smaller of two numbers: the cores that the process may be scheduled on, and the CPU time that its
control group may use, of version 2 (`cpu.max`) or 1 (`cpu.cfs_quota_us`). A limit of any group above applies,
too. In a container the files of its own group are often at the root, whatever its path; so every folder from
the path up to the root is read, and missing ones are skipped.

Called by workers, for their slots, by `drivetrain local`, and by sessions of Spark.
Source: https://docs.kernel.org/admin-guide/cgroup-v2.html, and cgroup-v1/cpusets; Java does the same.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path


def usable_cores(root: Path = Path("/")) -> int:
    """The number of whole cores that this process may use, at least 1.

    A limit of 2.5 cores counts as 2. `root` holds the folders `proc` and `sys`.
    """
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [limit for limit in cpu_limits(root) if limit > 0]
    return max(1, min(given, *(math.floor(limit) for limit in limits)) if limits else given)


def cpu_limits(root: Path) -> Iterator[float]:
    """The limits in cores of the control groups that this process is in; none without limits."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            for base in (mounted, mounted / "unified"):
                for folder in _up_from(base, path):
                    yield from _of_version_2(folder)
        elif "cpu" in controllers.split(","):
            for base in (mounted / controllers, mounted / "cpu"):
                for folder in _up_from(base, path):
                    yield from _of_version_1(folder)


def _up_from(base: Path, path: str) -> Iterator[Path]:
    """The folder of a group, those above it, and at last `base`."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for count in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:count])


def _of_version_2(folder: Path) -> Iterator[float]:
    quota, period, *_ = (*_read(folder / "cpu.max").split(), "", "")  # "200000 100000", or "max 100000"
    yield from _share(quota, period)


def _of_version_1(folder: Path) -> Iterator[float]:
    yield from _share(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))  # -1: no limit


def _share(quota: str, period: str) -> Iterator[float]:
    if quota.isdecimal() and period.isdecimal() and int(period) > 0:
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""  # there is no such group here, or it is not limited
