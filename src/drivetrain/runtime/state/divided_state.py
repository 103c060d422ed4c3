"""A fragment's checkpoint with its state in another number of partitions, in place of the one before.

Problem: dividing a state again changes many files of Spark's checkpoint, and takes as long as the state is
large. The process may die, and the disk may be full, at any moment of it. Then the fragment must continue
with the checkpoint before or with the whole one after.

    <fragment>/divided/made/      a copy of the checkpoint, in which the state is being divided
    <fragment>/divided/whole/     the same, whole and durable: it is going to be the checkpoint
    <fragment>/divided/before/    the checkpoint that it replaces

Design: Spark divides the state in a copy, whose files are links to those of the checkpoint, because Spark
never changes a file. The copy gets the name `whole` in one step, which decides: from then on it becomes the
checkpoint, by two more renames. A copy without that name is deleted.

What if we die here: `settle` completes what was decided and deletes what was not; the next process calls it
before anything reads the checkpoint: an embedded run, and the executor that prepares an application, for all
fragments, and an attempt of a fragment once it has the fragment's lock.

Invariants:

1. Until the decision the checkpoint is as it was, to the byte.
2. After the decision only `settle` changes anything, and no process reads the checkpoint before it has ended.
3. The checkpoint is absent only between two renames of `settle`.

Called by `spark.run.divided_fragment`, by `dropped_state` before an application begins, and by attempts of
fragments.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.durable import publish_directory, sync, writing
from drivetrain.runtime.state.linked_copy import link_directory, publish_copy

DIRECTORY: Final = "divided"
_IF_FULL: Final = "make room: the fragment continues with the partitions that it had; then scale it again"
_IF_UNSETTLED: Final = "make room, and run the application again: it completes the scaling first"


class DividedState:
    """The checkpoint of the fragment whose directory is `own`; only the process that runs the fragment may
    use it."""

    def __init__(self, own: Path) -> None:
        self._checkpoint: Final = own / "checkpoint"
        self._place: Final = own / DIRECTORY
        self._made: Final = self._place / "made"
        self._whole: Final = self._place / "whole"
        self._before: Final = self._place / "before"

    def copy(self, batch_id: int) -> Path:
        """A copy of the checkpoint to work on, as it is after a batch, the newest that was committed.

        The extent of a batch that was planned and never began is left out. Raises DiskFullError and
        OutputError.
        """
        shutil.rmtree(self._place, ignore_errors=True)
        with writing("a copy of the fragment's checkpoint", self._made, if_full=_IF_FULL):
            link_directory(self._checkpoint, self._made)
            for path in (self._made / "offsets").iterdir():
                if path.name.isdigit() and int(path.name) > batch_id:
                    path.unlink()
        maybe_crash(CrashPoint.BEFORE_DIVISION)
        return self._made

    def put_in_place(self) -> None:
        """Put the copy in the place of the checkpoint; raises DiskFullError and OutputError."""
        with writing("the fragment's checkpoint", self._whole, if_full=_IF_FULL):
            publish_copy(self._made, self._whole)
        maybe_crash(CrashPoint.AFTER_DIVISION)
        self.settle()

    def settle(self) -> None:
        """Complete a division that was decided, and delete one that was not.

        Raises DiskFullError and OutputError: then no process may read the checkpoint before `settle` has
        ended.
        """
        with writing(
            "the fragment's checkpoint", self._checkpoint, if_full=_IF_UNSETTLED, if_refused=_IF_UNSETTLED
        ):
            if self._whole.is_dir():
                if self._checkpoint.is_dir():
                    shutil.rmtree(self._before, ignore_errors=True)
                    publish_directory(self._checkpoint, self._before)
                publish_directory(self._whole, self._checkpoint)
            elif self._before.is_dir():
                sync(self._checkpoint.parent)  # its new name may not be durable yet
        shutil.rmtree(self._place, ignore_errors=True)


def settle_all(fragments: Path) -> None:
    """Settle the divisions of all fragments, whose directories are in `fragments`."""
    for place in fragments.glob(f"*/{DIRECTORY}"):
        DividedState(place.parent).settle()
