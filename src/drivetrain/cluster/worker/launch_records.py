"""Records of a worker's launches on disk, so that the next worker in the same directory can clean up.

Problem: a worker that is killed leaves processes that may still run; process ids are reused, and killing an
unrelated process is worse than leaving one.

Design: a record with the launch's tag is durable before the process is started, so that a crash during the
start leaves a record, too; its process id and start time follow. Cleaning up ends all processes that carry
the tag, see `orphans`, and the recorded process only if its start time and boot match the record.

Invariants:
1. A process of a launch exists only while its record does.
2. Cleaning up kills only processes that a recorded launch has started.

Called by the launcher and `spare_executors`, in threads.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.cluster.worker.launched_process import LaunchedProcess
from drivetrain.cluster.worker.orphans import end_tagged, kill, start_ticks
from drivetrain.durable import write_whole
from drivetrain.private_files import make_private_directory

log: Final = logging.getLogger("drivetrain.worker")

_END_S: Final = 10.0


class LaunchRecord(msgspec.Struct, frozen=True):
    """A launch: its tag, and its process with the start time (in ticks since boot) once known."""

    launch_id: str
    tag: str
    work_directory: str
    pid: int | None = None
    started_ticks: int | None = None
    boot: str = ""


class LaunchRecords:
    """The records in `directory`, which is created."""

    def __init__(self, directory: Path) -> None:
        make_private_directory(directory, "the worker's records")
        self._directory: Final = directory

    def put(self, record: LaunchRecord) -> None:
        """Write a record, durably; raises OSError."""
        write_whole(self._path(record.launch_id), msgspec.json.encode(record))

    def remove(self, launch_id: str) -> None:
        """Delete the record of a launch whose processes have all ended."""
        self._path(launch_id).unlink(missing_ok=True)

    def has(self, launch_id: str) -> bool:
        """Whether this launch has a record."""
        return self._path(launch_id).exists()

    def clean_up(self) -> list[str]:
        """End the processes that a dead worker's launches left, delete their directories; returns the ids."""
        cleaned = []
        for path in sorted(self._directory.iterdir()):
            if path.suffix != ".json":
                path.unlink()
                continue
            try:
                record = msgspec.json.decode(path.read_bytes(), type=LaunchRecord)
            except msgspec.MsgspecError:
                log.warning("%s is not a record of a launch; removed", path)
                path.unlink()
                continue
            if record.pid is not None and _is_recorded_process(record):
                kill(record.pid)
            left = end_tagged(record.tag, _END_S)
            if left:
                log.error("processes of an earlier worker cannot be ended: %s", left)
                continue
            shutil.rmtree(record.work_directory, ignore_errors=True)
            path.unlink()
            cleaned.append(record.launch_id)
        return cleaned

    def _path(self, launch_id: str) -> Path:
        return self._directory / f"{launch_id}.json"


def record_of(launch_id: str, tag: str, work: Path, process: LaunchedProcess | None) -> LaunchRecord:
    """The record of a launch or a spare executor, before its process is started (None) and afterwards."""
    if process is None:
        return LaunchRecord(launch_id, tag, str(work), boot=boot_id())
    return LaunchRecord(launch_id, tag, str(work), process.pid, process.started_ticks, boot_id())


def boot_id() -> str:
    """The kernel's id of the current boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _is_recorded_process(record: LaunchRecord) -> bool:
    if record.pid is None or record.started_ticks is None:
        return False
    return record.boot == boot_id() and start_ticks(record.pid) == record.started_ticks
