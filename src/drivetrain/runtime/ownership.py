"""Whether this process still has the application, or the fragment, that it runs.

Problem: locks keep two processes from running one application. But a process may be suspended, with its
machine, for longer than a network file system keeps its locks; or someone deletes a lock's file. Then
another process continues the application, and the first one must change nothing when it wakes.

Design: who begins to run an application, or an attempt of a fragment, notes a new mark in the lock's file. A
process looks whether its marks are still there before each effect that others see: when a batch begins, when
its results become visible, before its entries are appended, when it ends, before a decision on a checkpoint,
and before the clock is written. What remains is the moment between a look and the one call of the system
that follows (docs/decisions/0159-a-process-looks-for-its-mark-before-each-effect.md).

Invariants:

1. After another process has begun, `require` raises in all that ran before.

Called by `run_directory`; what it guards calls it through that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drivetrain.runtime.lock_marks import LostLockError, lost_lock, new_mark

if TYPE_CHECKING:
    from drivetrain.file_lock import FileLock
    from drivetrain.runtime.fragment_lock import FragmentLock


class Ownership:
    """What this process has of the application `app_id`: its lock, and those of the fragments it runs."""

    def __init__(self, app_id: str, lock: FileLock) -> None:
        self._app_id: Final = app_id
        self._lock: Final = lock
        self._fragments: Final[dict[str, FragmentLock]] = {}

    def begin(self) -> None:
        """Note that this process runs the application from now on; it holds the lock alone."""
        self._lock.note(new_mark())

    def holder(self) -> str:
        """The mark of the last process that has begun; "" if there was none."""
        try:
            return self._lock.path.read_text()
        except OSError:
            return ""

    def take_fragment(self, fragment: str, lock: FragmentLock) -> None:
        """This process runs a fragment from now on, whose lock it holds."""
        self._fragments[fragment] = lock

    def drop_fragment(self, fragment: str) -> None:
        """This process no longer runs a fragment."""
        self._fragments.pop(fragment, None)

    def explain(self, error: BaseException) -> None:
        """Raise LostLockError from an error that follows from it: files may be gone, and entries trimmed."""
        if isinstance(error, LostLockError):
            return
        try:
            self.require()
        except LostLockError as lost:
            raise lost from error

    def require(self, fragment: str | None = None) -> None:
        """Raise LostLockError if another process has the application, or the fragment if this one ran it.

        A process that has not locked the application only looks at it, and is not refused.
        """
        if self._lock.is_open and not self._lock.is_kept():
            raise lost_lock("this application", self._app_id, self.holder())
        lock = None if fragment is None else self._fragments.get(fragment)
        if lock is not None:
            lock.require_own()
