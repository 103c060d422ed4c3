"""The versions in an application's state directory, as its application master reads and records them.

Problem: an application master that was replaced may only be frozen; when it continues, it must not put a
version in force, or decide how a trial ended. And a write that fails may have happened nevertheless.

Design: everything that decides is written while this application master is the one for which executors have
prepared the application (`runtime.preparation`); what is in force already is compared first.

Invariants:

1. A version is recorded only after the one that it was compared with, under the number that was announced.
2. An outcome is recorded once.

Called by `application_changes` and `change_compiler`, in threads. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from drivetrain.cluster.app_master.stream.planned_application import PlannedApplication
from drivetrain.cluster.app_master.stream.stored_scalings import StoredScalings
from drivetrain.cluster.app_master.stream.stored_subscriptions import StoredSubscriptions
from drivetrain.cluster.app_master.stream.stream_progress import VersionStatus
from drivetrain.cluster.messages.changing import (
    ChangeConfiguration,
    ConfigurationChanged,
    StoredVersion,
    Versions,
)
from drivetrain.config import Config
from drivetrain.core.change.change_events import Change, Outcome, RecordOutcome
from drivetrain.core.change.change_stages import ChangeStage
from drivetrain.core.change.change_state import ChangeState
from drivetrain.core.change.difference import live_change, touched
from drivetrain.core.change.graph_version import GraphVersion, Made
from drivetrain.core.change.handover import ChangeTime, Handover
from drivetrain.core.change.live_change import Stage
from drivetrain.core.change.message_history import read_again, written_again
from drivetrain.core.change.scaling_state import ScalingState
from drivetrain.core.cluster.record_limits import cut
from drivetrain.core.job.job_events import Vertex
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.runtime.batch_versions import BatchVersions
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.runtime.durable_file import Keep
from drivetrain.runtime.error_views import error_view
from drivetrain.runtime.former_messages import FormerMessages, delete_former
from drivetrain.runtime.fragment_roles import interrupted, note_done, roles_in, vertices_of_roles
from drivetrain.runtime.graph_versions import GraphVersions, HowItLeaves
from drivetrain.runtime.handover_pause import HandoverPause, HandoverPauseFile
from drivetrain.runtime.leftovers import delete_ended
from drivetrain.runtime.preparation import Preparer
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.runtime.state.dropped_state import forget_former_states
from drivetrain.runtime.wanted_history import WantedHistory, WantedHistoryFile

_PAGE_BYTES: Final = 128 * 1024
_LONGEST_REASON: Final = 4_000


@dataclass(frozen=True)
class CompiledHistory:
    """Former messages, from `from_ms` on, for the new `fragments` of a change.

    `channels` are the new channels that each running fragment will write, by running fragment.
    """

    from_ms: int
    fragments: tuple[str, ...]
    channels: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class CompiledChange:
    """A change that executors have compiled: the proposal `id`, by a rollback or (`how`) an update.

    `against` is the version that was in force; `shown` is for the application's status. `at` is when it takes
    effect, `sizes` are those (ms) of the windows before what changes, and `at_ms` is the time, once known.
    `history` are the former messages that it waits for.
    """

    id: str
    how: Made
    against: int
    change: Change
    shown: VersionStatus
    at: ChangeTime = None
    sizes: tuple[int, ...] = ()
    at_ms: int | None = None
    history: CompiledHistory | None = None

    @property
    def pausing(self) -> tuple[str, ...]:
        """The fragments that must stand between two batches when the version is recorded."""
        if self.history is not None:
            return tuple(sorted(self.history.channels))
        return () if self.at is None else tuple(sorted(self.change.touched))


@dataclass(frozen=True)
class VersionsState:
    """The state of an application's versions, according to its files.

    `change` is on trial; `vertices` are the fragments that run, and `leaving` those of them that have to
    leave, each with the channels that it reads and the fragments that write these. `participants` take part
    in checkpoints: the fragments of the version in force, and whether each has a source. `newest` is the
    largest number of a version, `stages` those that the change on trial has reached. `handover` is the one to
    the version in force, in which the fragments `alone` run that version alone; None without one. `scaling`
    is the one that is wanted, or the last that was done, at the beginning.
    """

    state: ChangeState
    change: Change | None = None
    vertices: tuple[Vertex, ...] = ()
    leaving: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    participants: Mapping[str, bool] = field(default_factory=dict)
    newest: int = 0
    stages: tuple[ChangeStage, ...] = ()
    handover: Handover | None = None
    alone: frozenset[str] = frozenset()
    scaling: ScalingState | None = None


class StoredVersions:
    """The versions of the planned application; the state directory notes this application master as `me`.

    `keep` notes elsewhere what is decided, before it is.
    """

    def __init__(
        self, planned: PlannedApplication, config: Config, me: Preparer, keep: Keep | None = None
    ) -> None:
        self.can_change: Final = planned.plan is not None
        """Whether there are versions at all."""
        self._rundir: Final[RunDirectory] = planned.rundir(config)
        self._pause: Final = HandoverPauseFile(self._rundir.path)
        self._history: Final = WantedHistoryFile(self._rundir.path)
        self.scalings: Final = StoredScalings(self._rundir, me, keep)
        """The scalings of its fragments."""
        self.subscriptions: Final = StoredSubscriptions(self._rundir, me)
        """What other applications ask of it."""
        self._settings: Final = {name: str(value) for name, value in planned.settings.items()}
        self._config: Final = config
        self._me: Final = me
        self._keep: Final = keep
        self._deciding: Final = GraphVersions(self._rundir.path, self._rundir.writers, keep)

    # ---- reading

    def begin(self) -> VersionsState:
        """The state of the versions at the beginning; ends trials that no process can decide, and the pause
        and the history of an earlier application master.

        Raises like `record`.
        """
        stored = self._deciding
        with self._rundir.preparation.while_prepared_by(self._me):
            self._pause.remove()
            self._history.remove()
            self.scalings.forget_others()
            for change in interrupted(stored):
                note_done(stored, change)
            record = stored.in_force()
            if record is not None and stored.is_on_trial(record):
                try:
                    stored.version(record.follows)
                except InputError as error:
                    stored.note_ending(record.number, Outcome.DONE, None, str(error))
        return replace(self.read_state(), scaling=self.scalings.read_state())

    def read_state(self) -> VersionsState:
        """The state of the versions; raises InputError when a file is damaged."""
        stored = self._rundir.versions
        roles, record = roles_in(stored), stored.in_force()
        if record is None:
            return VersionsState(ChangeState(0))
        leaving = {
            id: role.record.channel_producers(id) for id, role in roles.items() if role.how is not None
        }
        state, before = self._state(record), stored.trial_of(record)
        change = None if before is None else live_change(before, record)
        newest = max(stored.numbers())
        participants = {id: bool(record.sources(id)) for id in record.fragments}
        handing_over = self._handover(record)
        stages = self._stages(record.number) if change is not None or handing_over[0] is not None else ()
        shown = (participants, newest, stages)
        return VersionsState(state, change, vertices_of_roles(roles), leaving, *shown, *handing_over)

    def _handover(self, record: GraphVersion) -> tuple[Handover | None, frozenset[str]]:
        """The handover to the version in force, unless it is over, and the fragments that run it alone."""
        if record.at_ms is None:
            return None, frozenset()
        try:
            of = touched(self._rundir.versions.version(record.follows), record)
        except InputError:
            return None, frozenset()  # attempts report what they miss
        noted = {id: BatchVersions(self._rundir.fragment(id)) for id in of}
        alone = frozenset(id for id in of if noted[id].has_run_alone(record.number))
        if alone == of:
            return None, frozenset()
        return Handover(record.number, record.follows, record.at_ms, of), alone

    def _stages(self, number: int) -> tuple[ChangeStage, ...]:
        try:
            return self._rundir.versions.stages(number)
        except InputError:
            return ()  # then the history begins here

    def note_stages(self, number: int, stages: tuple[ChangeStage, ...]) -> None:
        """Keep the stages that the change to a version has reached; nothing depends on them."""
        self._rundir.versions.note_stages(number, stages)

    def _state(self, record: GraphVersion) -> ChangeState:
        """The version in force, and how the last change ended."""
        stored = self._rundir.versions
        newest = stored.version(stored.numbers()[-1])
        ending = stored.ending(newest.number)
        if ending is None:
            return ChangeState(record.number)
        how = (ending.outcome, ending.fragment, ending.why)
        return ChangeState(record.number, Stage.IDLE, newest.number, newest.follows, (), *how)

    def proposed(self, id: str) -> tuple[Change, CompiledHistory | None]:
        """The change that a proposal would make, and the former messages that it waits for.

        Raises InputError when the proposal cannot be read.
        """
        stored = self._rundir.versions
        record, in_force = stored.proposal(id)[0], stored.in_force()
        if in_force is None:
            raise UnavailableError("the application has not begun", remedy="try again")
        history = None
        if record.history_ms is not None:
            again = tuple(read_again(in_force, record))
            history = CompiledHistory(record.history_ms, again, written_again(in_force, record))
        return live_change(in_force, record), history

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
            scalings=tuple(self.scalings.done()) if before is None else (),
        )

    # ---- proposals

    def propose_archive(self, id: str, data: bytes) -> None:
        """Write the archive of a proposed version, for executors."""
        self._rundir.versions.propose_archive(id, data)

    def proposed_record(self, id: str) -> GraphVersion:
        """The record of a proposal; raises InputError when it cannot be read."""
        return self._rundir.versions.proposal(id)[0]

    def withdraw(self, id: str) -> None:
        """Delete all files of a proposal; attempts delete the former messages that they have read for it."""
        self._rundir.versions.withdraw(id)

    # ---- pauses

    def pause(self, compiled: CompiledChange) -> None:
        """Have the fragments that a change concerns stand between two batches; raises like `record`."""
        with self._rundir.preparation.while_prepared_by(self._me):
            number, has_history = compiled.change.number, compiled.history is not None
            self._pause.write(HandoverPause(compiled.id, number, compiled.pausing, has_history))
        maybe_crash(CrashPoint.HANDOVER_PAUSED)

    def end_pause(self) -> None:
        """Let the fragments continue; raises like `record`."""
        with self._rundir.preparation.while_prepared_by(self._me):
            self._pause.remove()

    # ---- former messages

    def want_history(self, compiled: CompiledChange) -> None:
        """Have the fragments that write new channels read their former messages; raises like `record`."""
        assert compiled.history is not None
        with self._rundir.preparation.while_prepared_by(self._me):
            delete_former(self._rundir, but=compiled.id)
            channels = dict(compiled.history.channels)
            self._history.write(WantedHistory(compiled.id, compiled.change.number, channels))
        maybe_crash(CrashPoint.HISTORY_WANTED)

    def forget_history(self, id: str) -> None:
        """The former messages for a proposal are not wanted any more; raises like `record`."""
        with self._rundir.preparation.while_prepared_by(self._me):
            self._history.remove()
        self.withdraw(id)

    # ---- recording

    def record(self, compiled: CompiledChange) -> VersionsState:
        """Put a version in force; raises UnavailableError when another application master decides by now,
        and errors of writing: then nothing has changed."""
        maybe_crash(CrashPoint.BEFORE_VERSION)
        with self._rundir.preparation.while_prepared_by(self._me):
            stored = self._deciding
            record, code = stored.proposal(compiled.id)
            in_force = stored.in_force()
            if in_force is None or (in_force.number, stored.next_number(record)) != (
                compiled.against,
                compiled.change.number,
            ):
                raise UnavailableError("the application has changed meanwhile", remedy="try again")
            if compiled.pausing:
                pause = self._pause.read()
                if pause is None or pause.id != compiled.id:
                    raise UnavailableError("the fragments do not pause any more", remedy="try again")
                record = msgspec.structs.replace(record, at_ms=compiled.at_ms)
            for id in compiled.change.starts:
                self._rundir.places.prepare(id, record.channels(id), record.sources(id))
            former = FormerMessages(self._rundir, compiled.id)
            for id, channels in () if compiled.history is None else compiled.history.channels.items():
                former.place(id, channels)
            try:
                stored.note(record, compiled.how, code)
            except DrivetrainError:
                now = stored.in_force()
                if now is None or now.number != compiled.change.number:
                    raise
                # The file is there, and is what counts; only its directory could not be synced.
            if compiled.pausing:
                maybe_crash(CrashPoint.HANDOVER_RECORDED)
                self._pause.remove()
                self._history.remove()
        self.withdraw(compiled.id)
        maybe_crash(CrashPoint.AFTER_VERSION)
        return self.read_state()

    def record_outcome(self, effect: RecordOutcome) -> VersionsState:
        """Record how a change has ended, and which fragments now have to leave; raises like `record`."""
        change, outcome = effect.change, effect.outcome
        maybe_crash(CrashPoint.BEFORE_OUTCOME)
        with self._rundir.preparation.while_prepared_by(self._me):
            stored = self._deciding
            if stored.ending(change.number) is not None:
                return self.read_state()
            if outcome is Outcome.DONE:
                note_done(stored, change)
                before, now = stored.version(change.before), stored.version(change.number)
                delete_ended(self._rundir, before, now)
                forget_former_states(self._rundir.home / "fragments", now.drops)
            else:
                new = stored.version(change.number).new_sinks
                leaving: dict[str, HowItLeaves] = dict.fromkeys(change.starts, "is discarded")
                why = (effect.fragment, effect.why)
                stored.note_ending(change.number, outcome, *why, to_remove=new, leaving=leaving)
        maybe_crash(CrashPoint.AFTER_OUTCOME)
        return self.read_state()

    # ---- configuration

    def configure(self, message: ChangeConfiguration) -> ConfigurationChanged:
        """Change values of the configuration, which executors look up; never raises."""
        try:
            with self._rundir.preparation.while_prepared_by(self._me):
                running = RunningConfig(self._rundir.path, self._config, self._keep)
                return ConfigurationChanged(running.change(message.values, message.restored))
        except (DrivetrainError, OSError) as error:
            return ConfigurationChanged(error=error_view(error))
