"""Ends processes that have lost their parents, and the guard that does so when a worker is killed.

Problem: a launched process starts others (Java, Python workers, a user's commands) that may go on when it is
killed, in other process groups and sessions, with init for a parent. None of them may be left.

Design: every launched process has a tag in its environment, which all that it starts inherits. Whoever
carries the tag is ended, whatever its parents are. Process ids are used again, tags are not, so that nobody
else is ever hit. A worker does this when a process of its has ended. When the worker itself is killed its
guard does: a small process of its own session, started with the worker, that waits for a pipe to close.

Invariants:
1. Only processes that carry the tag are killed.
2. `end_tagged` returns an empty list only when no process with the tag was there at its last look.

Called by the worker and its records; run as a program it is the guard: only the standard library is imported.
Source: the environment as a mark is how Jenkins finds what a build left.
"""

from __future__ import annotations

import os
import signal
import sys
import time

LAUNCH_VARIABLE = "_DRIVETRAIN_LAUNCH"
"""Holds <worker id>/<launch id> in everything that a launch has started."""

_POLL_S = 0.02
_SESSION = 3
_STARTED = 19


def start_ticks(pid: int) -> int | None:
    """When the process started, in ticks since the machine did; None when it has ended."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[_STARTED])


def tagged(tag: str) -> list[int]:
    """The processes that carry `tag`, without this one; "worker/" means all tags of that worker.

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
            continue  # it has ended, or is somebody else's
        if mark in environment and pid != os.getpid():
            found.append(pid)
    return found


def in_session(leader: int) -> list[int]:
    """The processes of the session that `leader` began; only sure while nobody has reaped `leader`."""
    found = []
    for pid in _pids():
        fields = _stat(pid)
        if fields is not None and fields[0] not in "ZX" and int(fields[_SESSION]) == leader:
            found.append(pid)
    return found


def end_tagged(tag: str, timeout_s: float) -> list[int]:
    """Kill everything that carries the tag, until nothing does; returns what is left after `timeout_s`."""
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
        return []  # not Linux: there the ties of `parent` and the process groups must do


def _stat(pid: int) -> list[str] | None:
    """What /proc says of a process, from its state on."""
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
