"""The files of an application's checkpoints besides snapshots: the transaction, and the fragments' lives.

    <home of the life>/checkpoints/transaction          the coordinator's state (`Transaction`)
    <home of the life>/checkpoints/lives/…              see `fragment_lives`
    <home of the life>/checkpoints/periodic             exists while checkpoints are periodic: the last round
                                                        before that, if sinks have published without them
    <home of the life>/checkpoints/snapshots/…          see `snapshots`

Design: each is one durable file (`runtime.durable_file`), replaced in one step. The coordinator's corresponds
to what a `KeyValueState` persists.

Called by the coordinator's process, by `participation` and `restoring`. Imports neither pyspark nor pyarrow:
application masters are small.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.checkpoint.transaction import CheckpointRecord, Transaction
from drivetrain.core.state.key_value_state import KeyValueState, SavedState
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.runtime.durable_file import DurableFile
from drivetrain.runtime.former_snapshots import newest_former
from drivetrain.runtime.fragment_lives import FragmentLives

_TRANSACTION: Final = "transaction"
_ALWAYS: Final = -1
"""The round since which checkpoints are periodic if sinks have never published without them."""
_FULL: Final = "make room, or make the state directory writable: the checkpoint is tried again"
_DAMAGED: Final = (
    "put the file back from a backup, start from a savepoint, or start over with --fresh: what sinks have "
    "prepared is decided by it"
)


class CheckpointFiles:
    """The files below `home`, the directory of an application's life.

    `require_own` raises if another process decides on the checkpoints by now.
    """

    def __init__(self, home: Path, require_own: Callable[[], None] | None = None) -> None:
        self.directory: Final = home / "checkpoints"
        self._require_own: Final = require_own
        self._transaction: Final = self._file("transaction", "the transaction of the last checkpoint")
        self._periodic: Final = self._file("periodic", "since when checkpoints are periodic")
        self.lives: Final = FragmentLives(home)

    @property
    def snapshots(self) -> Path:
        """The directory of the snapshots."""
        return self.directory / "snapshots"

    def transaction(self) -> Transaction | None:
        """The last persisted transaction; None before the first checkpoint. Raises InputError if damaged.

        Without the snapshots of fragments that have left since, though others of their names may be there.
        """
        found = self._state().get(_TRANSACTION)
        if found is None or found.record is None:
            return found
        record = found.record
        own = {
            id: snapshot
            for id, snapshot in record.fragments.items()
            if record.round > newest_former(self.snapshots, id)
        }
        return msgspec.structs.replace(found, record=msgspec.structs.replace(record, fragments=own))

    def persist(self, transaction: Transaction) -> None:
        """Persist a transaction; raises OutputError when that fails, and LostLockError."""
        state = self._state()
        state.put(_TRANSACTION, transaction)
        state.prepare_commit(state.committed + 1)
        state.commit(state.committed + 1)
        self.directory.mkdir(parents=True, exist_ok=True)
        maybe_crash(CrashPoint.BEFORE_RECORD)
        self._transaction.write(msgspec.json.encode(state.saved()), self._require_own)
        maybe_crash(CrashPoint.AFTER_RECORD)

    def _state(self) -> KeyValueState[str, Transaction]:
        persisted = self._transaction.read()
        if persisted is None:
            return KeyValueState(copy=_immutable)
        try:
            return KeyValueState(
                msgspec.json.decode(persisted, type=SavedState[str, Transaction]), _immutable
            )
        except msgspec.DecodeError as error:
            raise self._transaction.damaged(str(error)) from error

    @property
    def are_periodic(self) -> bool:
        """Whether the last run of the application took periodic checkpoints."""
        return self._periodic.path.exists()

    def note_periodic(self, periodic: bool, *, has_published: bool) -> None:
        """Record whether checkpoints are periodic: if so, nothing is published after the last one.

        `has_published`: sinks may have published results of this life before. Raises OutputError.
        """
        if periodic is self.are_periodic:
            return
        if not periodic:
            self._periodic.remove()
        else:
            known = self.transaction()
            last = 0 if known is None else known.round
            self.directory.mkdir(parents=True, exist_ok=True)
            self._periodic.write(str(last if has_published else _ALWAYS).encode())

    def has_all_published(self, record: CheckpointRecord | None) -> bool:
        """Whether a record (None: the beginning of the life) has everything that sinks have published.

        Raises InputError if it is not known, because a file is damaged.
        """
        noted = self._periodic.read()
        since = None if noted is None else int(noted)
        return since is not None and (since == _ALWAYS or (record is not None and record.round > since))

    def _file(self, name: str, what: str) -> DurableFile:
        return DurableFile(self.directory / name, what, if_damaged=_DAMAGED, if_full=_FULL)


def _immutable(transaction: Transaction) -> Transaction:
    return transaction
