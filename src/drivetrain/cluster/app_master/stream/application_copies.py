"""The copies of an application's checkpoints that are its state, in its application master.

Problem: where the state is in an object store, a checkpoint must be there before its results are shown, and
others must know of the process that has the state, from the moment when the application is prepared.

Design: the executor that prepares the application claims a number in the store (`executor_copies`), and notes
the claim in the directory that it shares with this application master. From then on the application master
continues that claim: it renews its lease, looks whether another process has taken over, and copies each
checkpoint before the coordinator's decision is persisted. It takes the claim, and copies, while it is the one
for which executors have prepared: a predecessor on the same worker cannot be copying at the same time.

A change of the graph that is recorded, and how its trial ends, is in the store before it is decided here. So
whoever continues the application elsewhere runs the version that it has, and goes back to the one before if
that fails.

If this process dies at any point, the next application master continues on this worker with the same claim,
or on another one with the next.

Invariants:

1. What an application master copies, it copies while it is the newest preparer of its directory.
2. The lease says that the application has ended only if no executor's process is left.
3. Nothing is computed by a version whose record and code the store does not have.

Called by `checkpoint_relay` and `application_checkpoints`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from drivetrain.config import Config
from drivetrain.core.checkpoint.transaction import CheckpointRecord, Phase, Transaction
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.runtime.checkpoints.change_files import change_files
from drivetrain.runtime.checkpoints.checkpoint_copy import Claimant
from drivetrain.runtime.checkpoints.checkpoint_copying import CheckpointCopying
from drivetrain.runtime.checkpoints.continuation_watch import ContinuationWatch, look
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.runtime.state_place import is_remote
from drivetrain.runtime.wanted_scaling import WantedScalingFile


class ApplicationCopies:
    """The copies of the application in `rundir`, for the application master `me`; see `copies_of`.

    `report` is called, in another thread, when another process has continued the application.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        copies: CopiedCheckpoints,
        me: Preparer,
        report: Callable[[BaseException], None],
    ) -> None:
        self._rundir: Final = rundir
        self._copies: Final = copies
        self._me: Final = me
        self._claiming: Final = threading.Lock()
        self._has_claim = False
        self._copying: CheckpointCopying | None = None
        self._watch: Final = ContinuationWatch(self._look, report)

    @property
    def place(self) -> str:
        """Where they are, for users."""
        return self._copies.place

    def before(self, transaction: Transaction) -> None:
        """Copy a checkpoint before its transaction is persisted; for use in `while_prepared_by`.

        Raises what `CopiedCheckpoints.claim` and `add` raise.
        """
        self._claim()
        if self._copying is None:
            self._copying = CheckpointCopying(self._rundir, self._copies)
        self._copying.before(transaction)
        if transaction.phase is Phase.COMMITTING and transaction.record is not None:
            self._forget_scaling(transaction.record)

    def _forget_scaling(self, record: CheckpointRecord) -> None:
        """Forget a scaling that is done, once the store has a checkpoint that was divided."""
        file = WantedScalingFile(self._rundir.path)
        try:
            wanted = file.read()
        except InputError:
            return  # whoever begins a scaling reports it
        if wanted is None or not wanted.is_done:
            return
        fragment = wanted.state.fragment
        place = Snapshots(CheckpointFiles(self._rundir.home).snapshots).place(fragment, record.round)
        known = record.fragments.get(fragment)
        if known is None or state_partitions(place / "checkpoint", known.batch_id) == wanted.state.after:
            file.remove()

    def keep(self, files: Mapping[str, bytes]) -> None:
        """Note in the store how the application changes, before that is decided; for `while_prepared_by`.

        `files` are the files that decide it. Raises UnavailableError: the change must not come into force.
        """
        try:
            self._claim()
            self._copies.keep(change_files(self._rundir.path, files), files)
        except (DrivetrainError, PermissionError) as error:
            raise UnavailableError(
                "the change cannot be noted in the store, where another worker would find it",
                where=self.place,
                got=str(error),
                remedy="try again once the store answers; `drivetrain versions` shows what is in force",
            ) from error

    def close(self, *, has_ended: bool) -> None:
        """Stop renewing the lease; it is over if no process of the application is left. Blocks."""
        self._watch.close()
        if has_ended:
            self._copies.close()

    def _look(self) -> None:
        if not self._has_claim:
            with self._rundir.preparation.while_prepared_by(self._me):
                self._claim()
        look(self._copies)

    def _claim(self) -> None:
        with self._claiming:
            if not self._has_claim:
                self._copies.claim(starts_over=False)
                self._has_claim = True


def copies_of(
    rundir: RunDirectory,
    config: Config,
    me: Preparer,
    submission: str,
    report: Callable[[BaseException], None],
) -> ApplicationCopies | None:
    """The copies of an application that has been prepared; None if its state is not in a store."""
    by = Claimant(submission, me.epoch)
    copies = CopiedCheckpoints.of(rundir, config, by) if is_remote(config) else None
    return None if copies is None else ApplicationCopies(rundir, copies, me, report)
