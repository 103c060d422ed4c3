"""Fragments that start and leave while an application runs embedded: the shell around `core.change.leaving`.

Problem: a version that comes into force may have fragments that do not run, and lack fragments that do. They
begin and end while the others keep running, and a process that starts after a kill has to continue this.

Design: a new fragment is compiled with the change, and its query starts once the version is in force. A
fragment that the version lacks keeps running with the previous version until the trial is over; then it
leaves in the steps of the core. The outcome of the change names the fragments that have to leave
(`graph_versions`), so the next process finds them there, and those of a trial in the version itself.

What if we die here: before a version is recorded, the files of its new fragments belong to no version, and
the next fragment of that name deletes them. After that, they are ordinary fragments. A fragment that leaves
is restarted and drained, or deleted, depending on its outcome.

Invariants:

1. A fragment runs if the version in force has it, or if it has not left yet.
2. A producer never waits for a subscriber that is gone.

Called by `live_changes`; made by `embedded`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from drivetrain.api.moments import moment_text
from drivetrain.core.change.leaving import (
    DeleteFragment,
    EndChannels,
    Leaving,
    LeavingEffect,
    LeavingStage,
    RecordFinished,
)
from drivetrain.core.clock.clock_service import ClockedFragment
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.figures import show_counted
from drivetrain.crash_points import CrashPoint, maybe_crash
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.clock_actor import clocked_fragments
from drivetrain.runtime.fragment_roles import interrupted, note_done
from drivetrain.runtime.leftovers import delete_ended
from drivetrain.runtime.state.dropped_state import forget_former_states
from drivetrain.spark.prepare.whole_windows import first_whole_ms, window_size_ms
from drivetrain.spark.run.fragment_versions import end_unbegun

if TYPE_CHECKING:
    from drivetrain.core.change.change_events import Change
    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.run.application_versions import ApplicationVersions
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.run_checkpoints import RunCheckpoints
    from drivetrain.spark.run.run_clock import RunClock


class FragmentChanges:
    """The fragments of `execution` that start and leave; `drivers` drive all that run, by id.

    `drive` makes the driver of a query. The clock and the checkpoints are informed of every change.
    """

    def __init__(
        self,
        execution: Execution,
        drivers: dict[str, FragmentDriver],
        drive: Callable[[FragmentQuery], FragmentDriver],
        clock: RunClock,
        checkpoints: RunCheckpoints,
    ) -> None:
        assert execution.versions is not None, "an application that cannot change"
        self._versions: Final[ApplicationVersions] = execution.versions
        self._versions.newest_ms = self._newest_ms
        self._execution: Final = execution
        self._stored: Final = execution.rundir.versions
        self._drivers: Final = drivers
        self._drive: Final = drive
        self._clock: Final = clock
        self._checkpoints: Final = checkpoints
        self._leaving: Final = Leaving()
        self._left_by: Final[dict[str, tuple[int, GraphVersion]]] = {}
        """The version by whose change a fragment leaves, or may leave, and the one that has it."""
        self._unbegun: Final[set[tuple[str, str]]] = set()
        """Added channels that have not begun, each with the fragment that reads it."""
        self._lacking: Final[dict[str, int]] = {}
        """The time (ms) until which windows that are not whole may fire, by fragment."""

    @property
    def is_busy(self) -> bool:
        """Whether a fragment is about to leave."""
        return bool(self._leaving.stages)

    # -- starting --------------------------------------------------------------------------------------

    def start(self, query: FragmentQuery) -> None:
        """Start a new fragment of the version in force, which is on trial from its first batch on."""
        id = query.fragment.id
        self._versions.attach(query)
        if query.versions is not None:
            query.versions.on_trial = True
        self._drivers[id] = self._drive(query)
        self._announce_fragments()
        self._watch_channels(id)
        self._drivers[id].start()

    def hold(self, change: Change) -> None:
        """Keep the fragments that a change removes running: the version on trial may be rolled back."""
        before = self._versions.of_number(change.before)
        for id in change.leaves:
            self._left_by[id] = change.number, before.record
            self._execution.leaving[id] = before.context

    def go_back(self) -> None:
        """The previous version is in force again, with its fragments."""
        for id in self._execution.leaving.keys() - self._leaving.stages.keys():
            del self._execution.leaving[id], self._left_by[id]
        self._announce_fragments()

    def resume(self, change: Change | None) -> None:
        """Continue where an earlier process was killed, before any query starts; `change` is on trial."""
        for ended in interrupted(self._stored):
            self.note_done(ended)
        for number, id, how in self._stored.leaving():
            self._left_by[id] = number, self._record_with(number, id)
            if how == "drains":
                self._add_driver(id)
                self._leave(id, drains=True)
            else:
                self._delete(id)  # it does not run
        if change is not None:
            for id in change.leaves:
                self._left_by[id] = change.number, self._stored.version(change.before)
                self._add_driver(id)
        for id in self._versions.in_force.record.fragments:
            self._watch_channels(id)
        self._announce_fragments()

    def _record_with(self, number: int, id: str) -> GraphVersion:
        record = self._stored.version(number)
        return record if id in record.fragments else self._stored.version(record.follows)

    def _add_driver(self, id: str) -> None:
        """Make the driver of a fragment that the version in force lacks."""
        number, record = self._left_by[id]
        version = self._versions.of_number(record.number)
        for channel, schema in self._stored.version(number).schemas.items():
            version.context.schemas.setdefault(channel, StructType.fromJson(schema))
        self._execution.leaving[id] = version.context
        self._drivers[id] = self._drive(self._execution.fragment(id))

    # -- leaving ---------------------------------------------------------------------------------------

    def note_done(self, change: Change) -> None:
        """Record that a change is done, and which fragments now have to leave."""
        note_done(self._stored, change)
        before, now = self._stored.version(change.before), self._stored.version(change.number)
        delete_ended(self._execution.rundir, before, now)
        forget_former_states(self._execution.rundir.home / "fragments", now.drops)

    def remove_fragment(self, id: str, change: Change, *, goes_back: bool) -> None:
        """Begin to remove a fragment; `goes_back` if it was new with a version that was rolled back."""
        owner = change.number if goes_back else change.before
        self._left_by[id] = change.number, self._stored.version(owner)
        drains = not goes_back and not self._stored.version(change.number).discards
        if goes_back:
            self._stop(id)
        self._leave(id, drains=drains)
        self._announce_fragments()

    def look(self) -> None:
        """Take the next steps of fragments that leave; end new channels whose producers have ended."""
        for id, stage in list(self._leaving.stages.items()):
            if stage is LeavingStage.HELD:
                if self._producers_have_stopped(id):
                    self._perform(self._leaving.went_over(id))
            elif self._has_drained(self._drivers[id]):
                self._perform(self._leaving.finished(id))
        for id, channel in list(self._unbegun):
            self._look_at_beginning(id, channel)
        for id, until_ms in list(self._lacking.items()):
            self._look_at_windows(id, until_ms)

    def _leave(self, id: str, *, drains: bool) -> None:
        _, record = self._left_by[id]
        self._leaving.add(id, frozenset(record.producers(id)), drains=drains)

    def _has_drained(self, driver: FragmentDriver) -> bool:
        """Whether a fragment has processed its messages; a source of its own ends with the running batch."""
        if driver.is_finished or driver.is_recovering or not driver.query.trunk.sources:
            return driver.is_finished
        driver.drain()
        return not driver.is_draining

    def _producers_have_stopped(self, id: str) -> bool:
        """Whether the producers of a fragment have stopped writing to it for good."""
        return all(self._is_released_by(channel, producer) for channel, producer in self._channels(id))

    def _is_released_by(self, channel: str, producer: str) -> bool:
        driver = self._drivers.get(producer)
        if driver is None or driver.is_finished:
            return True
        query = driver.query
        if query.versions is None or driver.is_recovering or not query.turn.acquire(blocking=False):
            return False
        try:
            wanted = query.versions.wanted.plan.channels
            return channel not in query.branches.stores and all(known.id != channel for known in wanted)
        finally:
            query.turn.release()

    def _channels(self, id: str) -> list[tuple[str, str]]:
        """The channels that a fragment reads, each with the fragment that writes it."""
        _, record = self._left_by.get(id, (0, self._versions.in_force.record))
        return list(record.channel_producers(id).items())

    def _perform(self, effects: list[LeavingEffect]) -> None:
        for effect in effects:
            self._leaving.check()
            match effect:
                case EndChannels(id):
                    for channel, producer in self._channels(id):
                        self._end(channel, producer)
                    maybe_crash(CrashPoint.CHANNEL_ENDS)
                case RecordFinished(id):
                    self._stop(id)
                    self._stored.note_leaving(self._left_by[id][0], id, "is deleted")
                    maybe_crash(CrashPoint.FRAGMENT_LEAVES)
                case DeleteFragment(id):
                    self._delete(id)
                    self._versions.notices.append(f"fragment {id} has left the application")

    def _end(self, channel: str, producer: str) -> None:
        store = ChannelStore(self._execution.rundir.channel(channel), fragment=producer)
        store.append_clock(FINAL_CLOCK_MS)

    def _stop(self, id: str) -> None:
        """Stop a fragment; its producers no longer wait for it."""
        for channel, _ in self._channels(id):
            self._execution.flow.subscriber_left(channel)
            self._unbegun.discard((id, channel))
        driver = self._drivers.pop(id, None)
        if driver is not None:
            driver.stop()
        self._execution.leaving.pop(id, None)
        self._announce_fragments()

    def _delete(self, id: str) -> None:
        number, record = self._left_by.pop(id)
        self._execution.rundir.places.delete(id, record.channels(id), record.sources(id))
        self._stored.note_leaving(number, id, None)

    # -- the beginning of channels ---------------------------------------------------------------------

    def _watch_channels(self, id: str) -> None:
        for channel, _ in self._channels(id):
            if ChannelBeginning(self._execution.rundir.channel(channel)).is_late:
                self._unbegun.add((id, channel))

    def _look_at_beginning(self, id: str, channel: str) -> None:
        """Record where a new channel begins; end one whose producer ended before it switched."""
        uri = self._execution.rundir.channel(channel)
        begins = ChannelBeginning(uri).read()
        producer = dict(self._channels(id)).get(channel)
        if begins is None or producer is None:
            self._unbegun.discard((id, channel))
            return
        driver = self._drivers.get(producer)
        if driver is not None and (begins.after is None or begins.former):
            end_unbegun(driver, channel, uri)
        has_switched = driver is None or driver.is_finished or channel in driver.query.branches.stores
        if begins.after is not None and (has_switched or not begins.former):
            self._unbegun.discard((id, channel))
            self._tell_beginning(id)

    def _tell_beginning(self, id: str) -> None:
        try:
            context = self._execution.context_of(id)
            bound_ms = first_whole_ms(context.plan, id, context.rundir)
        except DrivetrainError as error:
            self._versions.notices.append(f"fragment {id}: {error}")
            return
        fragment = next((f for f in context.plan.fragments if f.id == id), None)
        size_ms = None if fragment is None else window_size_ms(context.plan, fragment)
        if bound_ms is not None and size_ms is not None:
            self._lacking[id] = bound_ms + size_ms
            self._versions.notices.append(
                f"fragment {id} has begun: windows that start at or before {moment_text(bound_ms)} are not "
                "whole, and are left out"
            )

    def _look_at_windows(self, id: str, until_ms: int) -> None:
        """Report how many results were discarded, once no more can follow."""
        driver = self._drivers.get(id)
        if driver is None:
            del self._lacking[id]
        elif driver.query.settled_clock_ms is not None and driver.query.settled_clock_ms > until_ms:
            del self._lacking[id]
            left_out = driver.query.counts.not_whole.get(id, 0)
            if left_out:
                results = show_counted(left_out, "result")
                notice = f"fragment {id} has left out {results} of windows that had begun before it"
                self._versions.notices.append(notice)

    def _newest_ms(self, fragment: str) -> int | None:
        """The largest timestamp that messages of a fragment may have had so far; for any thread."""
        channels = self._versions.in_force.plan.channels
        upstreams, wanted = set[str](), [fragment]
        while wanted:
            id = wanted.pop()
            upstreams.add(id)
            wanted += [c.producer_fragment for c in channels if c.consumer_fragment == id]
        found: list[int] = []
        for id in upstreams:
            driver = self._drivers.get(id)
            if driver is not None:
                clock = driver.query.clock
                found += clock.newest_ms.values()
                # An earlier process may have seen later messages: the bound covers them.
                known = (clock.bound_ms, driver.query.progress.newest_ms, driver.query.clock_ms)
                found += [ms for ms in known if ms is not None and ms < FINAL_CLOCK_MS - 1]
        return max(found, default=None)

    # -- who has to know -------------------------------------------------------------------------------

    def _announce_fragments(self) -> None:
        """Inform the clock and the checkpoints of the application's fragments."""
        known = {f.id: f for f in clocked_fragments(self._versions.in_force.plan) if f.id in self._drivers}
        self._checkpoints.changed({id: self._drivers[id].query for id in known})
        for id in self._drivers:
            if id not in known:
                upstreams = {producer for _, producer in self._channels(id)} & known.keys()
                known[id] = ClockedFragment(id, tuple(sorted(upstreams)))
        self._clock.changed(tuple(known.values()))
