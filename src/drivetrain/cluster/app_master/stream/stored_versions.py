"""The versions in an application's state directory, as its application master reads and records them.

Problem: an application master that was replaced may only be frozen; when it continues, it must not put a
version in force, or decide how a trial ended. And a write that fails may have happened nevertheless.

Design: everything that decides is written while this application master is the one for which executors have
prepared the application (`runtime.preparation`); what is in force already is compared first.

Invariants:

1. A version is recorded only after the one that it was compared with, under the number that was announced.
2. An outcome is recorded once.

Called by `application_changes` and `proposed_change`, in threads. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from drivetrain.cluster.app_master.stream.planned_application import Planned
from drivetrain.cluster.app_master.stream.stream_progress import Shown
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ConfigurationChanged,
    StoredVersion,
    Versions,
)
from drivetrain.config import Config
from drivetrain.core.change.change_state import ChangeState, not_kept
from drivetrain.core.change.difference import live_change
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.live_change import Change, Outcome, RecordOutcome, Stage
from drivetrain.core.cluster.record_limits import cut
from drivetrain.errors import DrivetrainError, UnavailableError
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.running_config import RunningConfig

_PAGE_BYTES: Final = 128 * 1024
_LONGEST_REASON: Final = 4_000


@dataclass(frozen=True)
class Compiled:
    """A change that executors have compiled: a proposal `id`, or back to version `source`.

    `against` is the version that was in force; `shown` is for the application's status.
    """

    id: str
    source: int
    against: int
    change: Change
    new_sinks: tuple[str, ...]
    shown: Shown


class StoredVersions:
    """The versions of the planned application; the state directory notes this application master as `me`."""

    def __init__(self, planned: Planned, config: Config, me: Preparer) -> None:
        self.can_change: Final = planned.plan is not None
        """Whether there are versions at all."""
        self._rundir: Final[RunDirectory] = planned.rundir(config)
        self._settings: Final = {name: str(value) for name, value in planned.settings.items()}
        self._config: Final = config
        self._me: Final = me

    # ---- reading

    def stands(self) -> tuple[ChangeState, Change | None]:
        """The version in force (0: none is recorded) and how the last change ended; the change on trial."""
        stored = self._rundir.versions
        record = stored.in_force()
        if record is None:
            return ChangeState(0), None
        before = stored.trial_of(record)
        if before is not None:
            return ChangeState(record.number), live_change(before, record)
        newest = stored.version(stored.numbers()[-1])
        ending = stored.ending(newest.number)
        if ending is None:
            return ChangeState(record.number), None
        how = (ending.outcome, ending.fragment, ending.why)
        return ChangeState(record.number, Stage.IDLE, newest.number, newest.follows, (), *how), None

    def page(self, before: int | None) -> Versions:
        """The newest versions, or those before one, as many as fit into a message; never raises."""
        try:
            return self._page(before)
        except (DrivetrainError, OSError) as error:
            return Versions(error=error_view(error))

    def _page(self, before: int | None) -> Versions:
        stored, size = self._rundir.versions, 0
        found: list[StoredVersion] = []
        numbers = [n for n in reversed(stored.numbers()) if before is None or n < before]
        for number in numbers:
            ending = stored.ending(number)
            if ending is not None:
                ending = msgspec.structs.replace(ending, why=cut(ending.why, _LONGEST_REASON))
            version = StoredVersion(stored.version(number), ending)
            size += len(msgspec.msgpack.encode(version))
            if found and size > _PAGE_BYTES:
                break
            found.append(version)
        in_force, left = stored.in_force(), len(numbers) > len(found)
        return Versions(
            tuple(found),
            0 if in_force is None else in_force.number,
            found[-1].record.number if left else None,
            self._rundir.application,
            self._settings,
            CheckpointFiles(self._rundir.home).are_periodic,
        )

    # ---- proposals

    def propose_archive(self, id: str, data: bytes) -> None:
        """Write the archive of a proposed version, for executors."""
        self._rundir.versions.propose_archive(id, data)

    def withdraw(self, id: str) -> None:
        """Delete what there is of a proposal."""
        self._rundir.versions.withdraw(id)

    # ---- recording

    def record(self, compiled: Compiled) -> None:
        """Put a version in force; raises UnavailableError when that is not this application master's to do,
        and what writing raises: then nothing has changed."""
        with self._rundir.preparation.while_prepared_by(self._me):
            stored = self._rundir.versions
            record, code, how = self._proposed(compiled)
            in_force = stored.in_force()
            if in_force is None or (in_force.number, stored.next_number(record)) != (
                compiled.against,
                compiled.change.number,
            ):
                raise UnavailableError("the application has changed meanwhile", remedy="try again")
            try:
                stored.note(msgspec.structs.replace(record, new_sinks=compiled.new_sinks), how, code)
            except DrivetrainError:
                now = stored.in_force()
                if now is None or now.number != compiled.change.number:
                    raise
                # The file is there, and is what counts; only its directory could not be synced.
        self.withdraw(compiled.id)

    def _proposed(self, compiled: Compiled) -> tuple[GraphVersion, bytes, Made]:
        stored, source = self._rundir.versions, compiled.source
        if not source:
            return *stored.proposal(compiled.id), "update"
        code = stored.code(source)
        if code is None:
            raise not_kept(source, self._rundir.app_id)
        return stored.version(source), code, "rollback"

    def record_outcome(self, effect: RecordOutcome) -> None:
        """Record how a change has ended; raises as `record`."""
        number, outcome = effect.change.number, effect.outcome
        with self._rundir.preparation.while_prepared_by(self._me):
            stored = self._rundir.versions
            if stored.ending(number) is not None:
                return
            new = stored.version(number).new_sinks if outcome is Outcome.ROLLED_BACK else ()
            stored.note_ending(number, outcome, effect.fragment, effect.why, to_remove=new)

    # ---- configuration

    def configure(self, message: ChangeConfiguration) -> ConfigurationChanged:
        """Change values of the configuration, which executors look up; never raises."""
        try:
            with self._rundir.preparation.while_prepared_by(self._me):
                running = RunningConfig(self._rundir.path, self._config)
                return ConfigurationChanged(running.change(message.values, message.restored))
        except (DrivetrainError, OSError) as error:
            return ConfigurationChanged(error=error_view(error))
