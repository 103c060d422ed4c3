"""The note that names the process that has prepared an application, and the fence that follows from it.

Problem: an application master that was replaced may only be frozen, not dead. When it continues, it still
believes that it decides on checkpoints, and would replace what its successor has decided.

Design: one durable file, written by the executor that prepares the application, after all executors of the
predecessor have ended: when it begins (`begin`), as it may go back to a checkpoint and decides on it then,
and when the application is prepared (`note`). A process that decides for the application does so in
`while_prepared_by`, which refuses all but the newest preparer. A file lock spans the look and the decision,
so one that freezes between holds up its successor, which cannot prepare before that process continues or
ends. An executor of the predecessor that is late does not prepare the application once more
(`require_newest`).

A state that begins with a savepoint is noted with the submission that asked for it, as part of that state.
The request is there until the masters' registry records that it took effect, and nothing runs before that. So
a process that gets the request, and finds the state that its own submission has begun, begins once more.

Invariants:

1. After `begin` no process is in `while_prepared_by`, or enters it, before `note`; then only that preparer.
2. The preparers of one application have ascending epochs.

Called by `run_directory`; application masters reach it from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from drivetrain.errors import UnavailableError
from drivetrain.file_lock import FileLock
from drivetrain.runtime.run_notes import durable_notes, read_notes, write_notes

LOCK: Final = "prepared.lock"
"""The file of the lock; never deleted."""
CLEARING: Final = "clearing"
"""The file that is there while an application's state is deleted."""


class Preparer(NamedTuple):
    """One application master process: its application, its epoch, and its actor's path with incarnation."""

    app_id: str
    epoch: int
    app_master: str


NO_EXECUTORS: Final = Preparer("", 0, "")
"""Stands for a preparer when one process runs the application without executors."""


class Preparation:
    """The note in the state directory `directory` of one application.

    `submission` is the one that this process runs the application for; "" in a run without a cluster.
    """

    def __init__(self, directory: Path, submission: str = "") -> None:
        self._directory: Final = directory
        self._submission: Final = submission
        self._notes: Final = durable_notes(
            directory / "prepared.json",
            "what executors have prepared",
            "delete the file and start the application again: it is made anew",
        )

    @property
    def by(self) -> Preparer | None:
        """The current preparer; None without one, or while the directory is being cleared."""
        noted = self._read()
        return None if "by" not in noted or "next" in noted else Preparer(*noted["by"])

    @property
    def last(self) -> Preparer | None:
        """The last preparer, also while the application is prepared again."""
        noted = self._read()
        return Preparer(*noted["by"]) if "by" in noted else None

    @property
    def has_begun_state(self) -> bool:
        """Whether the state here began with a savepoint for this process's submission."""
        return self._submission != "" and self._read().get("begun_for") == self._submission

    def note_beginning(self) -> None:
        """Note who begins a state with a savepoint, while `CLEARING` exists: it counts once that is gone."""
        if self._submission:
            write_notes(self._notes, {"begun_for": self._submission})

    def require_newest(self, preparer: Preparer) -> None:
        """Raise UnavailableError if a later epoch of the same application has prepared it, or began to."""
        noted = self._read()
        newest = noted.get("next", noted.get("by"))
        by = None if newest is None else Preparer(*newest)
        if by is not None and by.app_id == preparer.app_id and by.epoch > preparer.epoch:
            raise self._replaced(preparer, by)

    @property
    def schemas(self) -> Mapping[str, Any]:
        """The schemas of all channels, as Spark's JSON."""
        return dict(self._read().get("schemas", {}))

    def begin(self, preparer: Preparer) -> None:
        """End the time of an earlier preparer, if any; waits for a decision that it is making."""
        noted = self._read()  # which only the process that prepares changes
        if not noted:
            return
        before = Preparer(*noted.get("next", noted.get("by", preparer)))
        if before.app_id != preparer.app_id:
            noted.pop("by", None)
        with self._locked():
            write_notes(self._notes, {**noted, "next": preparer})

    def note(self, preparer: Preparer, schemas: Mapping[str, Any]) -> None:
        """Record the preparer and the schemas; waits for a decision that an earlier one is making."""
        begun = {key: value for key, value in self._read().items() if key == "begun_for"}
        with self._locked():
            write_notes(self._notes, {**begun, "by": preparer, "schemas": dict(schemas)})

    @contextmanager
    def while_prepared_by(self, preparer: Preparer) -> Iterator[None]:
        """Decide something for the application; raises UnavailableError unless `preparer` is the newest."""
        with self._locked():
            by = self.by
            if by != preparer:
                raise self._replaced(preparer, by)
            yield

    def _replaced(self, preparer: Preparer, by: Preparer | None) -> UnavailableError:
        return UnavailableError(
            "another application master has this application",
            where=str(self._directory),
            expected=f"{preparer.app_id}, epoch {preparer.epoch}",
            got="nobody has prepared it" if by is None else f"{by.app_id}, epoch {by.epoch}",
            remedy="nothing to do: that one continues, and this one ends",
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self._directory / LOCK)
        try:
            lock.wait()
            yield
        finally:
            lock.release()

    def _read(self) -> dict[str, Any]:
        # An incomplete directory is not a prepared one.
        return {} if (self._directory / CLEARING).exists() else read_notes(self._notes)
