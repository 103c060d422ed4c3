"""The cores that a process may use, in control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from drivetrain.runtime.usable_cores import cpu_limits, usable_cores


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="ascii")
    return root


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def test_without_control_groups_all_cores_that_the_process_may_be_scheduled_on_count(tmp_path: Path) -> None:
    assert usable_cores(tmp_path) == 8


def test_version_2_in_a_container_has_its_limit_at_the_root(tmp_path: Path) -> None:
    root = _write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "350000 100000"})
    assert list(cpu_limits(root)) == [3.5]
    assert usable_cores(root) == 3


def test_a_limit_of_a_group_above_applies_too(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/system.slice/drivetrain-worker.service",
            "sys/fs/cgroup/system.slice/drivetrain-worker.service/cpu.max": "max 100000",
            "sys/fs/cgroup/system.slice/cpu.max": "200000 100000",
        },
    )
    assert usable_cores(root) == 2


def test_version_1_is_read_beside_other_controllers(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpuset:/\n4:cpu,cpuacct:/kubepods/pod7\n0::/",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )
    assert usable_cores(root) == 4


def test_no_limit_of_version_1_is_written_as_a_negative_number(tmp_path: Path) -> None:
    root = _write(
        tmp_path,
        {
            "proc/self/cgroup": "1:cpu:/",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert list(cpu_limits(root)) == []
    assert usable_cores(root) == 8


def test_half_a_core_is_one(tmp_path: Path) -> None:
    root = _write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000"})
    assert usable_cores(root) == 1


@pytest.mark.parametrize("text", ["", "max", "abc def", "100000 0", "-5 100000"])
def test_what_is_not_a_limit_is_none(tmp_path: Path, text: str) -> None:
    root = _write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": text})
    assert usable_cores(root) == 8


def test_a_limit_above_the_cores_adds_none(tmp_path: Path) -> None:
    root = _write(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "6400000 100000"})
    assert usable_cores(root) == 8
