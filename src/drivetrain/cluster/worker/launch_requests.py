"""The interface through which the worker's actor starts and stops processes.

`launcher.ProcessLauncher` is the real implementation; simulations have their own.

Called by the `Worker` actor, and by the launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from drivetrain.cluster.access.system_names import app_master_name, executor_name
from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.cluster.leader import LeaderSearch
from drivetrain.cluster.messages.launching import Launch, LogChunk, ProcessKind
from drivetrain.errors import UnavailableError


class LaunchError(UnavailableError):
    """A launch failed; `failure_code` is one of `LaunchFailed`."""

    code = "launch"

    def __init__(self, what: str, *, failure_code: str, remedy: str | None = None) -> None:
        super().__init__(what, remedy=remedy)
        self.failure_code = failure_code


@dataclass(frozen=True, slots=True)
class LaunchEnvironment:
    """The worker's values for a launched process; `search` finds the masters that have its code."""

    worker_id: str
    worker_name: str
    worker: str
    masters: tuple[str, ...]
    host: str
    search: LeaderSearch


def launch_file(
    launch: Launch, surroundings: LaunchEnvironment, config: dict[str, str], code: Path, work: Path
) -> LaunchFile:
    """The launch file of a process with this configuration, unpacked code and directory."""
    return LaunchFile(
        kind=launch.kind,
        launch_id=launch.launch_id,
        app_id=launch.app_id,
        epoch=launch.epoch,
        spec=launch.spec,
        slots=launch.slots,
        owner=str(launch.owner.path),
        app_master=launch.app_master,
        code_directory=str(code),
        work_directory=str(work),
        worker_id=surroundings.worker_id,
        worker_name=surroundings.worker_name,
        worker=surroundings.worker,
        masters=list(surroundings.masters),
        host=surroundings.host,
        config=config,
        submission=launch.submission,
    )


OnEnd = Callable[[str, int, str], None]
"""Called with (launch id, status, end of the log) in the event loop's thread, once for each launch."""


class Launcher(Protocol):
    """Starts, stops and tracks processes, by launch id."""

    async def open(self, worker_id: str, on_end: OnEnd) -> list[str]:
        """Prepare for launches; returns the launches of an earlier worker that were cleaned up."""

    async def launch(self, launch: Launch, surroundings: LaunchEnvironment) -> int:
        """Start a process and return its id; raises LaunchError. Afterwards `on_end` is called once."""

    async def stop(self, launch_id: str, grace_ms: int) -> None:
        """Ask a process to end, kill it and its descendants after `grace_ms`; unknown ones are ignored.

        A launch under way ends with LaunchError. Returns at once; `on_end` reports the end.
        """

    async def read_log(
        self, app_id: str, process: str | None, offset: int | None, max_bytes: int
    ) -> LogChunk | None:
        """A piece of a process's log, None when there is none; `process` None means the newest."""

    async def tidy(self) -> None:
        """Remove code and logs that are no longer needed; called regularly."""

    async def close(self) -> None:
        """End every process, and wait until all have ended."""


def system_of(launch: Launch) -> str:
    """The name of a launched process's actor system."""
    if launch.kind is ProcessKind.APP_MASTER:
        return app_master_name(launch.app_id, launch.epoch)
    return executor_name(launch.app_id, launch.epoch, launch.launch_id)


def process_name(launch: Launch) -> str:
    """The name of a launched process's log."""
    if launch.kind is ProcessKind.APP_MASTER:
        return f"{launch.kind.value}-{launch.epoch}"
    return f"{launch.kind.value}-{launch.launch_id}"
