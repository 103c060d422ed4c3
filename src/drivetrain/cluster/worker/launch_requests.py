"""The interface through which the worker's actor starts and stops processes.

`launcher.ProcessLauncher` is the real implementation; simulations have their own.

Called by the `Worker` actor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from drivetrain.cluster.leader import LeaderSearch
from drivetrain.cluster.messages.launching import Launch, LogChunk
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
