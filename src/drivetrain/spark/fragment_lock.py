"""Who runs a fragment: at most one attempt at a time, in whatever process.

Problem: an executor that was given up for dead may be frozen only, or may be dying: its Python process is
gone, its Java process ends a moment later and may still write Spark's commit of the last batch. Two attempts
on one checkpoint would disturb each other.

Design: an advisory lock on a file in the fragment's directory, which the kernel takes back when the process
ends. The holder writes itself and its Java process into the file. Who comes next waits for the lock, then for
that Java process, if it was on this machine. On another machine Spark itself finds the second writer and
fails the batch, which then runs again.

Invariants:

1. While a lock is held no other process, and no other attempt in this one, has it.
2. `mark` changes with every holder: equal marks mean that nobody ran the fragment in between.

Called by `execution`.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drivetrain.errors import UnavailableError

_WAIT_S = 0.05


class FragmentLock:
    """The lock of one fragment, whose directory must exist."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._file: Any = None

    @property
    def mark(self) -> str:
        """What the last holder wrote; "" when there was none."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return ""

    def acquire(
        self, wait_s: float, java_pid: int | None = None, given_up: Callable[[], bool] = lambda: False
    ) -> str:
        """Take the lock, waiting up to `wait_s` for the last holder, and for its Java process, to end.

        Returns the last holder's mark; `java_pid` is this process's own Java. `given_up` is asked while
        waiting. Raises `UnavailableError` when it says so, or after the time.
        """
        deadline = time.monotonic() + wait_s
        file = open(self._path, "a+")  # noqa: SIM115 - held until release
        try:
            while not (_locked(file) and not _alive(self.mark)):
                self._require_patience(given_up() or time.monotonic() > deadline)
                time.sleep(_WAIT_S)
            before = self.mark
            self._write(file, java_pid)
        except BaseException:
            file.close()
            raise
        self._file = file
        return before

    def release(self) -> None:
        """Let another attempt have it; may be called again."""
        if self._file is not None:
            # The Java process goes on serving others: the next holder need not wait for it.
            self._write(self._file, None)
            self._file.close()
            self._file = None

    def _require_patience(self, is_over: bool) -> None:
        if is_over:
            raise UnavailableError(
                "another process still runs this fragment",
                where=self._what,
                got=self.mark or "a holder that has not said who it is yet",
                remedy="it is tried again; if it stays like this, end that process",
            )

    def _write(self, file: Any, java_pid: int | None) -> None:
        told = {"host": socket.gethostname(), "pid": os.getpid(), "id": uuid.uuid4().hex}
        if java_pid is not None:
            told |= {"java": java_pid, "java_started": _started(java_pid)}
        file.seek(0)
        file.truncate()
        file.write(json.dumps(told))
        file.flush()


def _locked(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(mark: str) -> bool:
    """Whether the Java process of the holder that wrote `mark` still runs on this machine."""
    try:
        told = json.loads(mark)
    except ValueError:
        return False  # nobody, or somebody who died while writing: then it had not begun
    if told.get("host") != socket.gethostname() or told.get("java") is None:
        return False
    started = _started(int(told["java"]))
    return started is not None and started == told.get("java_started")


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; None when it has ended. Tells a reused id apart."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else rest[18]
