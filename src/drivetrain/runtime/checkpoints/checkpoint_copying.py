"""Copies an application's checkpoints to a store while they are made, each before it is decided.

Problem: results are published when a transaction commits. If checkpoints are copied, none may be published
that the store does not have; and what a fragment has snapshotted must stay until it is copied.

Design: whoever persists transactions calls `before` with each: one whose results are to be published is
copied first, with the clock that was known when it began.

Invariants:

1. If checkpoints are copied, no result is published before its checkpoint is in the store.

Called by the embedded run, by application masters, and by `executor_copies`. Imports neither pyspark nor
pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from drivetrain.core.checkpoint.transaction import (
    NO_TXID,
    CheckpointRecord,
    Phase,
    Snapshot,
    Transaction,
)
from drivetrain.errors import OutputError, UserError
from drivetrain.runtime.checkpoints.change_files import change_files
from drivetrain.runtime.checkpoints.checkpoint_parts import manifest_of, parts_of_checkpoint
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.clock_file import ClockFile

if TYPE_CHECKING:
    from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
    from drivetrain.runtime.run_directory import RunDirectory


class CheckpointCopying:
    """Copies the checkpoints of the application in `rundir` to `copies`; None: they are not copied."""

    def __init__(self, rundir: RunDirectory, copies: CopiedCheckpoints | None) -> None:
        self._rundir: Final = rundir
        self._copies: Final = copies
        self._clock: Final = ClockFile(rundir.home / "clock")
        self._clock_ms: int | None = None  # when the checkpoint began

    def before(self, transaction: Transaction) -> None:
        """Do what a transaction needs before it is persisted; raises what `CopiedCheckpoints.add` raises."""
        if self._copies is None:
            return
        if transaction.phase is Phase.PREPARING:
            self._clock_ms = self._clock.read()
        elif transaction.phase is Phase.COMMITTING and transaction.record is not None:
            self._copy(self._copies, transaction.record)

    def copy_life(self) -> None:
        """Copy what a life has that begins with a savepoint; raises what `before` raises."""
        transaction, self._clock_ms = CheckpointFiles(self._rundir.home).transaction(), self._clock.read()
        if self._copies is not None and transaction is not None and transaction.record is not None:
            self._copy(self._copies, transaction.record)

    def begin_life(self, fragments: Iterable[str]) -> None:
        """Copy that a life begins without a state, as one of a replay does, as its first checkpoint.

        Raises what `before` raises.
        """
        if self._copies is None:
            return
        files = CheckpointFiles(self._rundir.home)
        record = CheckpointRecord(NO_TXID + 1, 1, {id: Snapshot(-1) for id in fragments})
        for id in record.fragments:
            Snapshots(files.snapshots).place(id, record.round).mkdir(parents=True, exist_ok=True)
        self._clock_ms = self._clock.read()
        self._copy(self._copies, record)
        files.persist(Transaction(record.txid, Phase.COMMITTED, record.round, record=record))

    def _copy(self, copies: CopiedCheckpoints, record: CheckpointRecord) -> None:
        snapshots = Snapshots(CheckpointFiles(self._rundir.home).snapshots)
        try:
            with snapshots.held():
                copies.add(
                    parts_of_checkpoint(self._rundir, snapshots, record, with_prepared=True),
                    lambda files: manifest_of(
                        self._rundir,
                        record,
                        self._clock_ms,
                        files,
                        lambda id: snapshots.place(id, record.round),
                    ),
                    change_files(self._rundir.path),
                )
        except OutputError:
            raise
        except UserError as error:  # such as credentials that have expired: they may be renewed
            raise OutputError(
                "the checkpoint cannot be copied, and nothing is published meanwhile",
                where=error.where,
                got=f"{error.what}{f': {error.got}' if error.got else ''}",
                remedy=error.remedy,
            ) from error
