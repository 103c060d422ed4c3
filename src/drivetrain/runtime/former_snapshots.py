"""Which snapshots are of a former fragment: one of the same name that has left the application.

Problem: a fragment that starts may have the name of one that has left, whose snapshots are still there, and
in the newest checkpoint. It must not continue with their state. Nor may its own snapshots have links to their
files: Spark numbers the files of each state from 1 on, so their names are the same.

    <snapshots>/<fragment>/former     the newest round that a former fragment was saved in

Design: when a fragment leaves, the newest of its snapshots is noted. Rounds never fall, so snapshots up to
that one are of former fragments. They are deleted, like all that are older than a checkpoint, when there is a
newer checkpoint.

Called by `fragment_places`, `checkpoints.snapshots` and `checkpoints.transaction_file`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drivetrain.runtime.durable_file import DurableFile

NO_ROUND: Final = 0
"""Older than every round."""


def newest_former(snapshots: Path, fragment: str) -> int:
    """The newest round in which a former fragment was saved, `NO_ROUND` if none.

    `snapshots` is the directory of all snapshots. Raises InputError if the note is damaged.
    """
    noted = _note(snapshots, fragment).read()
    return NO_ROUND if noted is None else int(noted)


def note_former(snapshots: Path, fragment: str) -> None:
    """Record that all snapshots that a fragment has are of one that leaves. Raises OutputError."""
    newest = max(saved_rounds(snapshots, fragment), default=NO_ROUND)
    if newest > newest_former(snapshots, fragment):
        _note(snapshots, fragment).write(str(newest).encode())


def saved_rounds(snapshots: Path, fragment: str) -> list[int]:
    """The rounds with a snapshot of any fragment of that name, ascending."""
    parent = snapshots / fragment
    if not parent.is_dir():
        return []
    return sorted(int(path.name) for path in parent.iterdir() if path.name.isdigit())


def _note(snapshots: Path, fragment: str) -> DurableFile:
    return DurableFile(
        snapshots / fragment / "former",
        f"which snapshots are of a former fragment {fragment}",
        if_damaged="put the file back from a backup, start from a savepoint, or start over with --fresh",
        if_full="make room, or make the state directory writable",
    )
