"""Ends processes that outlive their launch; also the guard that does so when the worker is killed.

Problem: a launched process starts others (Java, Python workers, a user's commands), which may survive when it
is killed, in other process groups and sessions, with init as their parent. None of them may remain.

Design: every launched process has a tag in its environment, which all its descendants inherit. All processes
with the tag are killed, whatever their parents are. Unlike process ids, tags are not reused, so that no other
process is hit. A worker does this when one of its processes has ended. When the worker itself is killed, its
guard does it: a small process in its own session, started with the worker, that waits for a pipe to close.

Invariants:
1. Only processes that carry the tag are killed.
2. `end_tagged` returns an empty list only when its last search found no process with the tag.

Called by the worker and its records. Run as a program, it is the guard: it imports only the standard library.
Source: Jenkins finds a build's remaining processes by their environment, too.
"""

from __future__ import annotations

import os
import signal
import sys
import time

LAUNCH_VARIABLE = "_DRIVETRAIN_LAUNCH"
"""The environment variable with <worker id>/<launch id>, in all processes of a launch."""

_POLL_S = 0.02
_SESSION = 3
_STARTED = 19


def start_ticks(pid: int) -> int | None:
    """The process's start time in ticks since boot; None when it has ended."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[_STARTED])


def tagged(tag: str) -> list[int]:
    """The processes that carry `tag`, except this one; "worker/" means all tags of that worker.

    Processes of other users are not seen.
    """
    mark = f"\0{LAUNCH_VARIABLE}={tag}".encode()
    if not tag.endswith("/"):
        mark += b"\0"
    found = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = b"\0" + file.read()
        except OSError:
            continue  # it has ended, or belongs to another user
        if mark in environment and pid != os.getpid():
            found.append(pid)
    return found


def in_session(leader: int) -> list[int]:
    """The processes of the session led by `leader`; only reliable until `leader` is reaped."""
    found = []
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and fields[0] not in "ZX" and int(fields[_SESSION]) == leader:
            found.append(pid)
    return found


def end_tagged(tag: str, timeout_s: float) -> list[int]:
    """Kill processes with the tag until there are none; returns those left after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while True:
        left = [pid for pid in tagged(tag) if start_ticks(pid) is not None]
        if not left:
            return []
        for pid in left:
            kill(pid)
        if time.monotonic() >= end_s:
            return left
        time.sleep(_POLL_S)


def kill(pid: int) -> None:
    """Kill a process that may have ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []  # not Linux: only the ties of `parent` and process groups work there


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the process's state on; None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("ascii", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _guard(tag: str) -> int:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while os.read(0, 4096):
        continue
    return 1 if end_tagged(tag, 30.0) else 0


if __name__ == "__main__":
    sys.exit(_guard(sys.argv[1]))
