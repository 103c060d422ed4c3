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

Called by `run_directory`.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from drivetrain.errors import UnavailableError
from drivetrain.runtime.durable import writing
from drivetrain.runtime.file_lock import FileLock

_WAIT_S = 0.05


class FragmentLock:
    """The lock of one fragment, whose directory must exist."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._lock = FileLock(path)
        self._is_held = False

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
        try:
            with writing("the lock of a fragment", self._path):
                while not (self._lock.take() and not _alive(self.mark)):
                    self._require_patience(given_up() or time.monotonic() > deadline)
                    time.sleep(_WAIT_S)
                before = self.mark
                self._write(java_pid)
        except BaseException:
            self._lock.release()
            raise
        self._is_held = True
        return before

    def release(self) -> None:
        """Let another attempt have it; may be called again."""
        if self._is_held:
            self._is_held = False
            try:
                # The Java process goes on serving others: the next holder need not wait for it.
                with writing("the lock of a fragment", self._path):
                    self._write(None)
            finally:
                self._lock.release()

    def _require_patience(self, is_over: bool) -> None:
        if is_over:
            raise UnavailableError(
                "another process still runs this fragment",
                where=self._what,
                got=self.mark or "a process that has not written its name yet",
                remedy="Drivetrain tries again; if this error continues, end that process",
            )

    def _write(self, java_pid: int | None) -> None:
        told = {"host": socket.gethostname(), "pid": os.getpid(), "id": uuid.uuid4().hex}
        if java_pid is not None:
            told |= {"java": java_pid, "java_started": _started(java_pid)}
        self._lock.note(json.dumps(told))


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
