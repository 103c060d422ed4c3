"""Takes an application back to its newest checkpoint, before any of it runs.

Problem: a fragment's state is lost or damaged, while the others have theirs, and channels hold results of the
lost state. If each continued from its own position, their states would not be consistent.

Design: when an application starts, and nothing of it runs, every fragment must have at least the state of the
newest record. If one has not, all go back to the record, in a new life: the
coordinator's transaction is persisted with that life first. Then, fragment by fragment along the graph, its
directory is replaced by the snapshot, its output channels are cut at the record's positions, the batches that
its sinks prepared after it are dropped, and last the fragment's life is noted. Without a record all
fragments start from the beginning: nothing has been published then.

What if we die here: the next start finds fragments whose life is older than the transaction's, and continues.

Invariants:

1. Published results are in the record, and stay.
2. When `restore_lost` returns, every fragment is of the transaction's life.

Called by `preparing`, with the application's directory locked by this process alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.checkpoint.barriers import NO_LIFE
from drivetrain.core.checkpoint.transaction import Snapshot, Transaction
from drivetrain.errors import InputError
from drivetrain.runtime.channel.loss_record import cut_channel
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.checkpoints.snapshots import Snapshots
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.spark.connector.publishing import abort_after
from drivetrain.spark.session.offset_log import batch_numbers, committed

if TYPE_CHECKING:
    from drivetrain.core.plan.plan import Fragment, Plan
    from drivetrain.runtime.run_directory import RunDirectory
    from drivetrain.spark.connector.sink import SinkWriter

DAMAGED: Final = "damaged"
"""The marker file of a fragment's directory whose content cannot be used."""
NO_STATE_YET: Final = "no-state-yet"
"""The marker file of a fragment that has no state to lose yet, until it takes part in checkpoints again."""


def restore_lost(plan: Plan, rundir: RunDirectory, sinks: Mapping[str, SinkWriter]) -> str | None:
    """Go back to the newest record if a fragment has lost its state; returns a notice for the user.

    Raises InputError when the record or a snapshot of it cannot be read, or if results that the record lacks
    were published: sinks would take the batches that follow it for those.
    """
    files = CheckpointFiles(rundir.home)
    transaction = _present(files)
    lost = [f.id for f in plan.fragments if _is_lost(f, rundir, files, transaction)]
    life = transaction.life + bool(lost)
    behind = [f for f in plan.fragments if NO_LIFE < files.lives.newest(f.id) < life]
    if not behind:
        return None
    record = transaction.record
    if not files.has_all_published(record):
        raise _not_covered(rundir, lost or [f.id for f in behind])
    if lost:
        transaction = msgspec.structs.replace(transaction, life=life)
        files.persist(transaction)
    for fragment in behind:
        _restore(plan, fragment, rundir, files, transaction, sinks)
    whence = "the beginning" if record is None else f"checkpoint {record.txid}"
    why = f"the state of {', '.join(lost)} was lost" if lost else "a restore was interrupted"
    return f"{why}: the application went back to {whence}, and continues from there"


def require_states(plan: Plan, rundir: RunDirectory) -> None:
    """Raise InputError if a fragment has lost its state, and no checkpoint is to be gone back to.

    It would start from the beginning, and outputs would take its batches for those that they have.
    """
    lives = CheckpointFiles(rundir.home).lives
    for fragment in plan.fragments:
        checkpoint = rundir.fragment(fragment.id) / "checkpoint"
        has_one = (checkpoint / "metadata").exists() and batch_numbers(checkpoint / "offsets")
        if lives.has_run(fragment.id) and not has_one:
            raise InputError(
                f"the state of fragment {fragment.id} is lost",
                where=str(checkpoint),
                expected="Spark's checkpoint of the batches that it has run",
                remedy="put it back from a backup, start from a savepoint, or start over with --fresh",
            )


def _not_covered(rundir: RunDirectory, fragments: list[str]) -> InputError:
    return InputError(
        f"the state of {', '.join(fragments)} was lost, and no checkpoint has everything that was published",
        where=rundir.app_id,
        expected="a checkpoint that was made since checkpoint.mode=on",
        remedy="start from a savepoint, or start over with --fresh",
    )


def mark_damaged(rundir: RunDirectory, fragment: str) -> bool:
    """Mark a fragment's state as unusable; False when there is no checkpoint to go back to."""
    if CheckpointFiles(rundir.home).transaction() is None:
        return False
    (rundir.fragment(fragment) / DAMAGED).touch()
    return True


def is_lost(fragment: Fragment, rundir: RunDirectory) -> bool:
    """Whether a fragment has lost its state of the current life."""
    files = CheckpointFiles(rundir.home)
    return _is_lost(fragment, rundir, files, _present(files))


def _present(files: CheckpointFiles) -> Transaction:
    """The coordinator's state; its initial one if none is stored yet."""
    return files.transaction() or Transaction()


def _snapshot(transaction: Transaction, fragment: str) -> Snapshot | None:
    return None if transaction.record is None else transaction.record.fragments.get(fragment)


def _is_lost(
    fragment: Fragment, rundir: RunDirectory, files: CheckpointFiles, transaction: Transaction
) -> bool:
    if files.lives.newest(fragment.id) != transaction.life:
        return False  # it has not begun, or is to be restored anyway
    own = rundir.fragment(fragment.id)
    if (own / NO_STATE_YET).exists():
        return False
    snapshot = _snapshot(transaction, fragment.id)
    known = -1 if snapshot is None else snapshot.batch_id
    checkpoint = own / "checkpoint"
    newest = committed(checkpoint)
    return (
        (own / DAMAGED).exists()
        or not (checkpoint / "metadata").exists()
        or newest < known
        or not (newest < 0 or (checkpoint / "offsets" / str(newest)).exists())
    )


def _restore(
    plan: Plan,
    fragment: Fragment,
    rundir: RunDirectory,
    files: CheckpointFiles,
    transaction: Transaction,
    sinks: Mapping[str, SinkWriter],
) -> None:
    snapshot = _snapshot(transaction, fragment.id)
    record = transaction.record
    positions = {} if record is None else record.channel_positions()
    for channel in plan.outputs(fragment.id):
        end = positions.get(channel.id, 0)
        store = ChannelStore(rundir.channel(channel.id))
        cut_channel(store, end)
        store.record_position(channel.consumer_fragment, end)
    for id in fragment.processors:
        if id in sinks:
            abort_after(sinks[id], None if snapshot is None else snapshot.sinks.get(id))
    own = rundir.fragment(fragment.id)
    round = None if record is None or snapshot is None else record.round
    Snapshots(files.snapshots).restore(fragment.id, round, own)
    if snapshot is None or snapshot.batch_id < 0:
        (own / NO_STATE_YET).touch()
        files.lives.forget_batches(fragment.id)
    files.lives.note(fragment.id, transaction.life)
