"""The lock of a fragment: at most one attempt runs it at a time, in any process.

Problem: an executor that was declared dead may only be frozen, or still dying: its Python process is gone,
but its Java process ends a moment later and may still write Spark's commit of the last batch. Two attempts on
one checkpoint would disturb each other.

Design: an advisory lock on a file in the fragment's directory, which the kernel releases when the process
ends. The holder writes the ids of itself and its Java process into the file. The next one waits for the lock,
then for that Java process, if it was on this machine. On another machine Spark itself detects the second
writer and fails the batch, which then runs again.

Invariants:

1. While a lock is held no other process, and no other attempt in this one, has it. `take` never waits.
2. `mark` changes with every holder: equal marks mean that the fragment did not run in between.

Called by `run_directory`.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from drivetrain.durable import writing
from drivetrain.errors import UnavailableError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.lock_marks import lost_lock, new_mark


class FragmentLock:
    """The lock of one fragment, whose directory must exist."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._what = what
        self._lock = FileLock(path)
        self._is_held = False

    @property
    def mark(self) -> str:
        """The last holder's mark; "" when there was none."""
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return ""

    @property
    def is_java_alive(self) -> bool:
        """Whether the Java process of the last holder, which died, still runs on this machine."""
        return _alive(self.mark)

    def take(self, java_pid: int | None = None) -> str | None:
        """Take the lock if its last holder and that one's Java process have ended; returns its mark.

        None: not yet, so call it again, or `release`. `java_pid` is this process's own Java.
        """
        try:
            with writing("the lock of a fragment", self._path):
                # While the Java process ends, the file is locked already, but the fragment is not free yet.
                if not self._lock.take() or self.is_java_alive:
                    return None
                before = self.mark
                self._write(java_pid)
        except BaseException:
            self._lock.release()
            raise
        self._is_held = True
        return before

    def refusal(self) -> UnavailableError:
        """The error when its holder does not end in time."""
        return UnavailableError(
            "another process still runs this fragment",
            where=self._what,
            got=self.mark or "a process that has not written its name yet",
            remedy="Drivetrain tries again; if this error continues, end that process",
        )

    def release(self) -> None:
        """Release the lock, or stop waiting for it; may be called again."""
        try:
            was_held, self._is_held = self._is_held, False
            if was_held and self._lock.is_kept():
                # The Java process continues to serve others: the next holder need not wait for it.
                with writing("the lock of a fragment", self._path):
                    self._write(None)
        finally:
            self._lock.release()

    def require_own(self) -> None:
        """Raise LostLockError if another process has the fragment; only its holder may call it."""
        if not self._lock.is_kept():
            raise lost_lock("this fragment", self._what, self.mark)

    def _write(self, java_pid: int | None) -> None:
        java = {} if java_pid is None else {"java": java_pid, "java_started": _started(java_pid)}
        self._lock.note(new_mark(**java))


def is_java_alive(state: Path) -> bool:
    """Whether the Java process of a predecessor, which ended before it, still runs on this machine.

    `state` is the state directory of the application.
    """
    locks = (*state.glob("fragments/*/lock"), *state.glob("lives/*/fragments/*/lock"))
    return any(FragmentLock(lock, state.name).is_java_alive for lock in locks)


def _alive(mark: str) -> bool:
    """Whether the Java process of the holder that wrote `mark` still runs on this machine."""
    try:
        holder = json.loads(mark)
    except ValueError:
        return False  # no holder, or one that died while writing its mark, before it began
    if holder.get("host") != socket.gethostname() or holder.get("java") is None:
        return False
    started = _started(int(holder["java"]))
    return started is not None and started == holder.get("java_started")


def _started(pid: int) -> str | None:
    """When a process began, in the kernel's ticks; None when it has ended. Detects a reused id."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else rest[18]
