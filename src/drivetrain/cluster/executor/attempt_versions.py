"""The versions that one attempt of a fragment runs, and what it reports about them.

Problem: an attempt may learn of a version late, twice or never, may be replaced in the middle of a change,
and may fail because of it.

Design: the files in the state directory decide (`running_versions`). An attempt reads them when it starts and
when its executor is asked to look, has its query switch between two batches
(`spark.run.fragment_versions`), and reports to the application master what it has read and done. What a
change does besides has parts of its own: a time at which it takes effect (`attempt_handover`), former
messages (`attempt_history`), scaling (`attempt_scaling`). An attempt that fails because of a version on trial
waits for the application master's decision.

Invariants:

1. No attempt begins a batch with a version that it has not read to be in force.
2. A fragment that a change does not affect keeps its branches.
3. An attempt leaves a version on trial only after its rollback is recorded.

Called by `fragment_attempt`, in the attempt's thread.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from drivetrain.cluster.executor.attempt_handover import AttemptHandover
from drivetrain.cluster.executor.attempt_history import AttemptHistory
from drivetrain.cluster.executor.attempt_scaling import AttemptScaling
from drivetrain.cluster.messages.changing import VersionReport
from drivetrain.core.change.difference import live_change, touched
from drivetrain.core.cluster.record_limits import cut
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.fragment_roles import Role
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.run.fragment_versions import end_unbegun, switch_version, why_it_failed
from drivetrain.spark.run.trial_progress import TrialProgress
from drivetrain.spark.run.trunk_changes import TrunkChanges
from drivetrain.spark.run.withdrawn_sinks import WithdrawnSinks

if TYPE_CHECKING:
    from drivetrain.cluster.executor.running_versions import RunningVersions
    from drivetrain.core.change.graph_version import GraphVersion
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.run.fragment_driver import FragmentDriver

log = logging.getLogger(__name__)

_LONGEST_REASON: Final = 8_000


class AttemptVersions:
    """The versions that attempt `attempt` of a fragment runs, which `driver` drives. For its thread."""

    def __init__(self, shared: RunningVersions, driver: FragmentDriver, attempt: int) -> None:
        self._shared: Final = shared
        self._driver: Final = driver
        self._withdrawn: Final = WithdrawnSinks(shared.versions, {driver.fragment: driver})
        self._trunks: Final = TrunkChanges(shared.versions, {driver.fragment: driver})
        self._history: Final = AttemptHistory(shared, driver)
        self._handover: Final = AttemptHandover(shared.versions, driver, self._history)
        self._scaling: Final = AttemptScaling(shared.wanted_scaling, shared.engine, driver)
        self._progress: Final = TrialProgress(shared.config)
        self._attempt: Final = attempt
        self._looked: tuple[int, FragmentQuery] | None = None
        self.leaves: Role | None = None
        """The role in which the fragment leaves; None: it does not leave."""
        self._abandoned: list[str] = []
        self._number = self._newest = 0
        self._is_trial = False
        self._has_ended_channels = False  # of the version that was read
        self._is_restarting = False  # the query has to, to run the version that was read
        self._failed: tuple[int, str] | None = None  # the version that has failed, and why

    def look(self) -> VersionReport:
        """Advance the fragment to the version in force; returns what to report."""
        now = (self._shared.mark, self._driver.query)
        self._history.look(self._shared.mark)
        if self._handover.is_pausing:
            self._looked = None  # the pause may be over
        if self._is_restarting and now == self._looked:
            self._is_restarting = self._restarts()
        if now != self._looked and not self._driver.is_recovering:
            try:
                self._read()
                self._looked = now
            except DrivetrainError as error:
                self._looked = now  # the application master asks again if a report is missing
                log.warning("%s cannot take up the version in force: %s", self._driver.fragment, error)
        if self._handover.look():
            with self._shared.compiling:
                self._take_up(self._number)
        self._scaling.look(self._shared.mark, is_restarting=self._is_restarting)
        if self._driver.is_finished and not self._has_ended_channels:
            self._end_channels()
        self._shared.stop_waiting_for(self._abandoned)  # again and again: a query that starts forgets it
        self._withdrawn.look()
        while self._shared.versions.notices:
            with suppress(IndexError):  # the thread of another attempt has logged it
                log.info(self._shared.versions.notices.popleft())
        return self.seen()

    def _read(self) -> None:
        shared, driver, versions = self._shared, self._driver, self._driver.query.versions
        with shared.compiling:
            self._handover.find_pause()
            newest = max(shared.stored.numbers(), default=0)
            record = shared.put_in_force()
            is_trial = shared.stored.is_on_trial(record)
            role = shared.role(driver.fragment)
            self._number, self._is_trial, self._newest = record.number, is_trial, newest
            was_restarting, self._is_restarting = self._is_restarting, False
            if role is None or role.by:
                self.leaves = None if role is not None and role.how is None else role or Role(record)
                if versions is not None:
                    versions.on_trial = False
            elif versions is not None:
                runs = versions.wanted.number
                # A query that was drained for a version that is gone restarts, whatever follows that version.
                if was_restarting or runs == record.number or self._touches(runs, record):
                    self._handover.enter(record)
                    self._take_up(record.number)
                else:
                    versions.on_trial = False
            self._abandoned = shared.abandoned(driver.query)
            self._withdrawn.find()
            self._handover.release()
        self._has_ended_channels = False

    def _end_channels(self) -> None:
        """End the channels of a fragment that has finished before it switched to their version."""
        shared = self._shared
        for channel in shared.plan.outputs(self._driver.fragment):
            end_unbegun(self._driver, channel.id, shared.versions.rundir.channel(channel.id))
        self._has_ended_channels = True

    def _take_up(self, number: int) -> None:
        """Have the query switch to a version, or begin to restart with it; `compiling` is held."""
        self._is_restarting = self._restarts()
        if not self._is_restarting:
            before = self._handover.before
            made = partial(self._shared.branches, number, before)
            switch_version(self._driver, number, made, before=before, on_trial=self._is_trial)

    def _restarts(self) -> bool:
        """Whether the query has yet to restart for the trunk of the version that was read; takes a step."""
        driver = self._driver
        if driver.query.state is FragmentState.STARTING:
            return self._trunks.differs(driver, self._number)  # it starts with the trunk that it has
        return self._trunks.restarts(driver.fragment, self._number, on_trial=self._is_trial)

    def _touches(self, runs: int, record: GraphVersion) -> bool:
        return self._driver.fragment in touched(self._shared.versions.of_number(runs).record, record)

    def seen(self) -> VersionReport:
        """The report about the version that the fragment runs."""
        seen = self._progress.look(self._driver, self._number, self._handover.has_proven)
        failure = None
        if self._failed is not None and self._failed[0] == self._number:
            failure = cut(self._failed[1], _LONGEST_REASON)
        clock_ms = self._driver.query.settled_clock_ms if self._handover.before else None
        handover = (self._handover.before, clock_ms, self._handover.stands, self._handover.newest_ms)
        done = (seen.began, seen.has_shown, failure, self._writes(), self._newest, *handover)
        also = (self._scaling.state, self._is_trial and seen.has_waited, self._history.state)
        return VersionReport(self._driver.fragment, self._attempt, self._number, self._is_trial, *done, *also)

    def close(self) -> None:
        """The attempt ends: stop reading former messages."""
        self._history.close()

    def _writes(self) -> tuple[str, ...]:
        """The channels that the fragment writes, or will write with the version that it switches to."""
        query, versions = self._driver.query, self._driver.query.versions
        plan = query.plan if versions is None else versions.wanted.plan
        planned = {channel.id for channel in plan.outputs(self._driver.fragment)}
        return tuple(sorted(planned | query.branches.stores.keys()))

    # -- failures ----------------------------------------------------------------------------------------

    def is_by_trial(self, error: Exception) -> bool:
        """Whether the fragment failed because of a version that is on trial or was rolled back.

        The fragment then waits while `is_undecided`, and afterwards switches back if it `was_rolled_back`.
        """
        versions = self._driver.query.versions
        if versions is None or isinstance(error, RestoreNeededError):
            return False
        number, stored = self._trunks.version_of(self._driver), self._shared.stored
        try:
            is_trial = stored.is_on_trial(stored.version(number))
            if not is_trial and not stored.is_rolled_back(number):
                return False
        except DrivetrainError as unreadable:
            log.warning("whether version %d is on trial cannot be read: %s", number, unreadable)
            return False
        if is_trial and versions.began(number) is None and not self._may_fail_early(number):
            return False
        self._failed = (number, why_it_failed(error))
        return True

    def _may_fail_early(self, number: int) -> bool:
        """Whether the fragment is new with a version, or restarts for it."""
        record = self._shared.stored.version(number)
        change = live_change(self._shared.stored.version(record.follows), record)
        return self._driver.fragment in change.may_fail_before_a_batch

    def is_undecided(self) -> bool:
        """Whether the trial of the version that has failed continues."""
        assert self._failed is not None
        if self._looked is None or self._looked[0] != self._shared.mark:
            self._looked = (self._shared.mark, self._driver.query)
            try:
                record = self._shared.stored.in_force()
                if record is not None:
                    self._number, self._is_trial = record.number, self._shared.stored.is_on_trial(record)
            except DrivetrainError as error:
                log.warning("how a trial ended cannot be read: %s", error)
        return self._number == self._failed[0] and self._is_trial

    def has_no_place(self) -> bool:
        """Whether the version in force lacks the fragment."""
        return self._driver.fragment not in self._shared.versions.in_force.record.fragments

    def was_rolled_back(self) -> bool:
        """Whether the failed version was rolled back; the previous version is compiled from then on."""
        assert self._failed is not None
        number, self._failed = self._failed[0], None
        self._looked = None
        if not self._shared.stored.is_rolled_back(number):
            return False
        with self._shared.compiling:
            self._shared.put_in_force()
        return True
