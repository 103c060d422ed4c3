"""The first steps of a launched process: tie its life to its worker's, and read its launch file.

Problem: however a worker dies, its processes must not outlive it.

Design: three ties, as each of them fails somewhere. The kernel is asked for SIGKILL when the parent dies
(Linux; it looks at the thread that started this process, so workers start processes from their main
thread). Standard input is a pipe whose other end only the worker holds: when it closes, a thread ends this
process, on any platform. And the process compares its parent's process id, in case the parent died before
either tie held. The processes that these processes start (Java, Python workers, a user's commands) are
ended by the worker, by its guard when the worker is gone, and by the next worker in the same directory; see
`worker.orphans`.

Invariants:
1. When `wait_for_launch_file` has returned, the process ends within a moment after its worker has.
2. Nothing that the process starts inherits the pipe.

Called by `python -m drivetrain.cluster.app_master` and `python -m drivetrain.cluster.executor`, by spare
executors, to which the worker sends a line over the pipe, and by the masters and workers that
`drivetrain local` starts.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from drivetrain.cluster.launch_file import LaunchFile
from drivetrain.errors import UserError

PARENT_VARIABLE: Final = "_DRIVETRAIN_PARENT"
"""The variable with the parent's process id, by which a child sees that its parent is gone already."""

_PR_SET_PDEATHSIG: Final = 1


def wait_for_launch_file(arguments: Sequence[str] | None = None) -> LaunchFile:
    """Tie this process to its worker and read the launch file, the only argument.

    `arguments` None means those of the command line. Raises UserError without the argument, and what
    `LaunchFile.load` raises. Ends the process when the worker is gone already.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) != 1:
        raise UserError(
            "this process is started by a worker",
            expected="one argument: the path of a launch file",
            got=" ".join(given) or "none",
            remedy="start applications with `drivetrain submit`, or run them with `drivetrain run`",
        )
    tie_to_parent()
    return LaunchFile.load(Path(given[0]))


def tie_to_parent(take_line: Callable[[bytes], None] | None = None) -> int | None:
    """Let this process die with its parent; does nothing if the parent did not set `PARENT_VARIABLE`.

    Returns the pipe's number, or None. `take_line` gets each line that comes over the pipe, in a thread.
    """
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return None
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        _end()  # the parent died before the kernel was asked
    pipe = os.dup(0)  # not inheritable
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    threading.Thread(target=_wait_closed, args=(pipe, take_line), name="parent-watch", daemon=True).start()
    return pipe


def _wait_closed(pipe: int, take_line: Callable[[bytes], None] | None) -> None:
    rest = b""
    try:
        while block := os.read(pipe, 4096):
            if take_line is not None:
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    take_line(line)
    finally:
        _end()


def _end() -> None:
    """End this process and its process group, which its parent created for it."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)
