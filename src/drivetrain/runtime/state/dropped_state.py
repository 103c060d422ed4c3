"""A fragment's checkpoint with an empty state in place of the one that it had, and the way back.

Problem: a change drops the state of a fragment. The fragment must continue after the batch that it committed
last, with an empty state; and if the change is rolled back, with the state that it had. The process may die
at any moment.

    <fragment>/checkpoint/dropped-state   the version that dropped the state, and after which batch
    <fragment>/dropped/made/              a copy of the checkpoint, in which the state is being replaced
    <fragment>/dropped/emptied/           the same, whole: it is going to be the checkpoint
    <fragment>/dropped/restored/          likewise, with the former state
    <fragment>/dropped/before/            the checkpoint with the former state, while the change is on trial

Design: the copy consists of links, because Spark never changes a file. It gets another name in one step,
which decides; a rename or two put it in place. Spark numbers a state by the batch that follows it, so the
empty state is a file of that number in each partition. If batches were committed with the new version before
it was rolled back, their numbers have changes of the former state without content: what they took went to the
new version.

What if we die here: `settle` completes what was decided and deletes what was not; the process that makes
the next query of the fragment calls it first.

Invariants:

1. Until the decision the checkpoint is as it was, to the byte.
2. Offsets and commits are the same before and after.
3. The former state is kept until `forget`.

Called by `spark.run.state_dropping`, by `run_directory` before an application begins, and when a change is
done.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import publish_directory, sync, writing
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.state.divided_state import settle_all
from drivetrain.runtime.state.linked_copy import link_directory, link_file, publish_copy
from drivetrain.runtime.state.state_partitions import newest_commit, state_partitions

DIRECTORY: Final = "dropped"
_MARK: Final = "dropped-state"
_STATE: Final = "state"
_IF_FULL: Final = "make room, and try again: the fragment still has the state that it had"


class DroppedRecord(msgspec.Struct, frozen=True):
    """The state was dropped by version `version` after batch `after` (-1: before the first one).

    `newest_ms` is the largest timestamp that messages may have had by then; None: there was none.
    """

    version: int
    after: int
    newest_ms: int | None = None


class DroppedState:
    """The checkpoint of the fragment whose directory is `own`; only the process that runs the fragment may
    change it."""

    def __init__(self, own: Path) -> None:
        self._checkpoint: Final = own / "checkpoint"
        self._place: Final = own / DIRECTORY
        self._made: Final = self._place / "made"
        self._emptied: Final = self._place / "emptied"
        self._restored: Final = self._place / "restored"
        self._before: Final = self._place / "before"

    # -- reading ---------------------------------------------------------------------------------------

    def read(self) -> DroppedRecord | None:
        """When the state began empty; None if no change dropped one. Raises InputError."""
        return _mark(self._checkpoint).read_json(DroppedRecord)

    @property
    def has_former(self) -> bool:
        """Whether the former state is kept."""
        return self._before.is_dir()

    @property
    def lacks_changes(self) -> bool:
        """Whether batches were committed since the state was dropped."""
        known = self.read()
        return known is not None and newest_commit(self._checkpoint) > known.after

    # -- changing --------------------------------------------------------------------------------------

    def drop(self, version: int, newest_ms: int | None, snapshot: Path | None) -> None:
        """Put a checkpoint with an empty state in place; `snapshot` is Spark's file of an empty state.

        It is not needed before the first batch. Raises DiskFullError and OutputError.
        """
        shutil.rmtree(self._place, ignore_errors=True)
        after = newest_commit(self._checkpoint)
        with writing("a copy of the fragment's checkpoint", self._made, if_full=_IF_FULL):
            self._copy(self._checkpoint, without={_STATE, _MARK})
            if snapshot is not None and after >= 0:
                for partition in range(state_partitions(self._checkpoint) or 0):
                    place = self._made / _STATE / "0" / str(partition)
                    place.mkdir(parents=True)
                    shutil.copyfile(snapshot, place / f"{after + 1}.zip")
        _mark(self._made).write(msgspec.json.encode(DroppedRecord(version, after, newest_ms)))
        self._publish(self._emptied)
        maybe_crash(CrashPoint.STATE_EMPTIED)
        self.settle()

    def restore(self, changes: Path | None) -> None:
        """Put a checkpoint with the former state in place; `changes` is Spark's file of no changes.

        It is needed if `lacks_changes`. Raises DiskFullError and OutputError.
        """
        known, last = self.read(), newest_commit(self._checkpoint)
        shutil.rmtree(self._made, ignore_errors=True)
        with writing("a copy of the fragment's checkpoint", self._made, if_full=_IF_FULL):
            self._copy(self._checkpoint, without={_STATE, _MARK})
            if (self._before / _STATE).is_dir():
                link_directory(self._before / _STATE, self._made / _STATE)
            if _mark(self._before).path.exists():
                link_file(_mark(self._before).path, _mark(self._made).path)
            if known is not None and changes is not None:
                for store in _stores(self._made / _STATE):
                    for batch in range(known.after + 1, last + 1):
                        shutil.copyfile(changes, store / f"{batch + 1}.changelog")
        self._publish(self._restored)
        maybe_crash(CrashPoint.STATE_RESTORED)
        self.settle()

    def settle(self) -> None:
        """Complete what was decided, and delete what was not.

        Raises DiskFullError and OutputError: then no process may read the checkpoint before `settle` has
        ended.
        """
        with writing("the fragment's checkpoint", self._checkpoint):
            if self._restored.is_dir():
                shutil.rmtree(self._checkpoint, ignore_errors=True)
                shutil.rmtree(self._before, ignore_errors=True)
                publish_directory(self._restored, self._checkpoint)
            elif self._emptied.is_dir():
                if self._checkpoint.is_dir():
                    publish_directory(self._checkpoint, self._before)
                publish_directory(self._emptied, self._checkpoint)
            elif self._place.is_dir():
                sync(self._checkpoint.parent)  # its name may not be durable yet
            shutil.rmtree(self._made, ignore_errors=True)

    def forget(self) -> None:
        """Delete the former state: the application does not go back to it."""
        shutil.rmtree(self._before, ignore_errors=True)

    # -- parts -----------------------------------------------------------------------------------------

    def _copy(self, checkpoint: Path, without: set[str]) -> None:
        self._made.mkdir(parents=True)
        if not checkpoint.is_dir():
            return
        for path in checkpoint.iterdir():
            if path.name in without:
                continue
            if path.is_dir():
                link_directory(path, self._made / path.name)
            else:
                link_file(path, self._made / path.name)

    def _publish(self, name: Path) -> None:
        with writing("the fragment's checkpoint", name, if_full=_IF_FULL):
            publish_copy(self._made, name)


def settle_checkpoints(fragments: Path) -> None:
    """Settle the checkpoints of all fragments in `fragments`, also those whose state is being divided."""
    settle_all(fragments)
    for place in fragments.glob(f"*/{DIRECTORY}"):
        DroppedState(place.parent).settle()


def forget_former_states(fragments: Path, dropped: Iterable[str]) -> None:
    """The change that dropped the states of these fragments is done: their former states are not needed any
    more."""
    for fragment in dropped:
        DroppedState(fragments / fragment).forget()


def _mark(checkpoint: Path) -> DurableFile:
    return DurableFile(
        checkpoint / _MARK,
        "when the state of a fragment was dropped",
        if_damaged="start the application over with --fresh",
        if_full=_IF_FULL,
    )


def _stores(state: Path) -> list[Path]:
    """The directories with the files of a state, of each partition."""
    found = {path.parent for ending in ("zip", "changelog") for path in state.rglob(f"*.{ending}")}
    return sorted(found)
