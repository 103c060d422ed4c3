"""Leading master or application master, and worker: processes.

A worker starts one process per launch, with arguments from the message, in its own directory, and writes its
output to log files. Requests are sent, not asked, so that neither side waits; answers go to `owner`.
"""

from __future__ import annotations

from enum import Enum

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import ApplicationSpec
from drivetrain.cluster.messages.numbers import Count, DurationMs, Slots


class ProcessKind(Enum):
    """The kind of process to start."""

    APP_MASTER = "app-master"
    EXECUTOR = "executor"


class Launch(Message, frozen=True, tag="cluster.launch"):
    """Start a process; sent again with the same `launch_id`, it is the same launch.

    `launch_id` is the allocation id of the slots. `app_master` is the actor path that an executor registers
    with. The process must register with its owner; the worker only reports whether it lives. `submission` is
    the id of the application's submission, which no other one ever has, in any cluster.
    """

    launch_id: str
    kind: ProcessKind
    app_id: str
    epoch: Count
    spec: ApplicationSpec
    slots: Slots
    owner: ActorRef
    app_master: str | None = None
    submission: str = ""


class Launched(Message, frozen=True, tag="cluster.launched"):
    """The process was started."""

    launch_id: str
    worker_id: str
    pid: Count


class LaunchFailed(Message, frozen=True, tag="cluster.launch-failed"):
    """No process was started: `no-code`, `no-slots`, `no-directory`, `stale-epoch`, `no-process` or
    `worker-leaves`."""

    launch_id: str
    code: str
    why: str
    remedy: str | None = None


class ProcessExited(Message, frozen=True, tag="cluster.process-exited"):
    """The process has ended; `status` is its exit code (negative for a signal), `log` its output's end."""

    launch_id: str
    kind: ProcessKind
    app_id: str
    status: int
    log: str


class StopProcess(Message, frozen=True, tag="cluster.stop-process"):
    """End a launched process and all its descendants: with SIGTERM first, and SIGKILL after `grace_ms`."""

    launch_id: str
    grace_ms: DurationMs = 5_000


class EndEpoch(Message, frozen=True, tag="cluster.end-epoch"):
    """End the processes of an application whose epoch is at most this one: its application master is dead.

    Sent once: processes that it does not reach notice by themselves.
    """

    app_id: str
    epoch: Count


class ReadLog(Message, frozen=True, tag="cluster.read-log"):
    """Asks a worker (or an application master, which knows where its executors run) for log lines.

    `offset` None means the last `max_bytes`. Answered with `LogChunk` or `Failure("no-log", …)`.
    """

    app_id: str
    process: str | None = None
    offset: Count | None = None
    max_bytes: Count = 64 * 1024


class LogChunk(Message, frozen=True, tag="cluster.log-chunk"):
    """A piece of a process's log; the next starts at `next_offset`. `processes` names all with logs."""

    process: str
    data: bytes
    next_offset: Count
    processes: tuple[str, ...] = ()
