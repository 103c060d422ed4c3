"""Checks versions of the graph in one executor, puts them in force, and has its attempts run them.

Problem: a change concerns several executors, each of which runs some of the fragments, and any of which may
be replaced in the middle. A message about a version may be lost or late.

Design: the files in the state directory decide which version is in force, and whether it is on trial; no
message repeats this. `look_again` makes every attempt read them: a new attempt does that first, and a running
one switches its query between two batches (`spark.run.fragment_versions`). Attempts report what they have
read and done to the application master, which decides how a trial ends. An attempt that fails because of a
version on trial waits for that decision.

Invariants:

1. No attempt begins a batch with a version that it has not read to be in force.
2. A fragment that a change does not affect keeps its branches.
3. An attempt leaves a version on trial only after its rollback is recorded.

Called by `spark_work`, and by `fragment_attempt` for each attempt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.cluster.executor.attempt_handover import AttemptHandover
from drivetrain.cluster.executor.attempt_scaling import AttemptScaling
from drivetrain.cluster.messages.changing import VersionReport
from drivetrain.core.change.change_state import not_kept
from drivetrain.core.change.difference import live_change, touched
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.subscriptions import refuse_transactional
from drivetrain.core.cluster.record_limits import cut
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.fragment_roles import Role, roles_in
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.runtime.wanted_scaling import WantedScalingFile
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.run.application_versions import add_schemas
from drivetrain.spark.run.change_proposal import Proposal, RequestedChange, checked
from drivetrain.spark.run.fragment_versions import (
    end_unbegun,
    fits,
    switch_version,
    why_it_failed,
)
from drivetrain.spark.run.starting_fragments import check_sources
from drivetrain.spark.run.subscribers import note_columns
from drivetrain.spark.run.trial_progress import TrialProgress
from drivetrain.spark.run.trunk_changes import TrunkChanges, first_context
from drivetrain.spark.run.withdrawn_sinks import WithdrawnSinks, refuse_withdrawn

if TYPE_CHECKING:
    from drivetrain.core.plan.plan import Fragment
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
    from drivetrain.spark.batch.query_versions import BranchSet
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver

log = logging.getLogger(__name__)

_LONGEST_REASON: Final = 8_000


class RunningVersions:
    """The state that the attempts of one executor share; `compiling` is held during a compilation."""

    def __init__(self, execution: Execution, compiling: threading.Lock) -> None:
        assert execution.versions is not None, "an application that cannot change"
        self.versions: Final[ApplicationVersions] = execution.versions
        self._execution: Final = execution
        execution.first_version = partial(first_context, self.versions)
        self.stored: Final = self.versions.rundir.versions
        self.compiling: Final = compiling
        self.wanted_scaling: Final = WantedScalingFile(self.versions.rundir.path)
        self.engine: Final = execution.engine
        self.config: Final = RunningConfig(self.versions.rundir.path, execution.context.config)
        self.mark = 0
        """Changes when attempts must read the state directory again."""
        self._proposal: Proposal | None = None

    @property
    def plan(self) -> Plan:
        """The plan of the version in force, as far as this executor has seen it."""
        return self.versions.in_force.plan

    def look_again(self) -> None:
        """Have every attempt read which version is in force. From any thread."""
        self.mark += 1

    def check(
        self, asked: RequestedChange, drivers: Mapping[str, FragmentDriver], *, has_starts: bool
    ) -> Proposal:
        """Check a proposed version, and compile it for the fragments of `drivers`; nothing changes.

        With `has_starts` its new fragments are compiled, too. Raises the errors of `LiveChanges.propose`.
        """
        with self.compiling:
            self.put_in_force()
            if self.stored.code(asked.against) is None:
                raise UserError(
                    f"the code of version {asked.against} was not kept, so the application could not go back "
                    "to it",
                    expected="a graph that can be pickled: no iterator of the application's own",
                    remedy="end the application, and submit it with this graph: it continues with its state",
                )
            start, before = self._compiled if has_starts else None, self.versions.in_force
            if asked.made_how == "subscribe":
                refuse_transactional(before.plan.application, transactional=before.context.transactional)
            made = checked(self.versions, drivers, asked, start=start)
            known = {channel.id for channel in before.plan.subscriptions}
            note_columns(made.loaded.plan, self.versions.rundir, made.loaded.context.schemas, known)
            left = {id for ids in self.stored.to_remove().values() for id in ids}
            refuse_withdrawn(left, made.loaded.sinks)
            self._refuse_other_mode(made)
            self._proposal = made
        return made

    def kept(self, number: int) -> tuple[GraphVersion, bytes]:
        """The record and the code of a version to go back to; raises UserError when its code was not kept."""
        record, code = self.stored.version(number), self.stored.code(number)
        if code is None:
            raise not_kept(number, self.plan.application)
        return msgspec.structs.replace(record, schemas={}, at_ms=None), code

    def _compiled(self, loaded: LoadedVersion, fragment: Fragment) -> FragmentQuery:
        """A fragment that is to start, compiled to see whether it can; its attempt compiles it again."""
        check_sources(loaded, fragment)
        return self._execution.new_fragment(loaded.context, loaded.sinks, fragment)

    def _refuse_other_mode(self, made: Proposal) -> None:
        """Raise UserError when checkpoints would begin: the application master decided that at its start."""
        context = made.loaded.context
        if makes_checkpoints(context.plan, context.config) and not context.transactional:
            raise UserError(
                "an application in a cluster cannot begin to make checkpoints while it runs",
                expected="a graph whose sinks need none, or checkpoint.mode=on from the start",
                remedy="end the application, and submit it with this graph: it continues with its state",
            )

    def put_in_force(self) -> GraphVersion:
        """Compile the version in force from now on; `compiling` is held.

        Raises InputError when the version cannot be read or loaded.
        """
        record, proposal = self.stored.in_force(), self._proposal
        if record is None:
            return self.versions.in_force.record
        if record.number != self.versions.in_force.record.number:
            if proposal is not None and self._is_proposed(record, proposal):
                self.versions.recorded(proposal.loaded, record)
                add_schemas(proposal.loaded.context, record)  # other executors have compiled their producers
            self.versions.put_in_force(record.number)
            for id in self._execution.leaving.keys() & record.fragments.keys():
                del self._execution.leaving[id]
        return record

    def role(self, fragment: str) -> Role | None:
        """The role in which a fragment has to run, so that it can be compiled; None: it has left. `compiling`
        is held.

        Raises InputError when the versions cannot be read, or the version that has it cannot be loaded.
        """
        role = roles_in(self.stored).get(fragment)
        if role is not None and role.by:
            version = self.versions.of_number(role.record.number)
            add_schemas(version.context, self.stored.version(role.by))
            self._execution.leaving[fragment] = version.context
        return role

    def abandoned(self, query: FragmentQuery) -> list[str]:
        """The channels of a query whose subscribers have left, or will leave, without reading the rest."""
        roles = roles_in(self.stored)
        found: list[str] = []
        for channel in query.plan.outputs(query.fragment.id):
            role = roles.get(channel.consumer_fragment)
            if channel in query.plan.subscriptions:
                continue  # another application reads it
            if role is None or role.how in ("is discarded", "is deleted"):
                found.append(channel.id)
        return found

    def stop_waiting_for(self, channels: Iterable[str]) -> None:
        """Let no batch wait any more for the subscribers of these channels."""
        for channel in channels:
            self._execution.flow.subscriber_left(channel)

    def _is_proposed(self, record: GraphVersion, proposal: Proposal) -> bool:
        proposed = proposal.loaded.record
        return record.number == proposed.number and record.is_same_graph(proposed)

    def branches(
        self, number: int, before: int, query: MicroBatchQuery, at_hand: BranchSet | None
    ) -> BranchSet:
        """A version's branches for a query: cached, compiled for the proposal, or compiled now.

        With `before` they are those of both versions.
        """
        version, proposal = self.versions.of_number(number), self._proposal
        if before:  # those of the proposal were for a time that was not known yet
            return fits(at_hand, query) or self.versions.handover_set(before, number, query)
        if at_hand is None and proposal is not None and proposal.loaded.context is version.context:
            at_hand = proposal.sets.get(query.fragment.id)
        return fits(at_hand, query) or self.versions.branch_set(version, query)


class AttemptVersions:
    """The versions that attempt `attempt` of a fragment runs, which `driver` drives. For its thread."""

    def __init__(self, shared: RunningVersions, driver: FragmentDriver, attempt: int) -> None:
        self._shared: Final = shared
        self._driver: Final = driver
        self._withdrawn: Final = WithdrawnSinks(shared.versions, {driver.fragment: driver})
        self._trunks: Final = TrunkChanges(shared.versions, {driver.fragment: driver})
        self._handover: Final = AttemptHandover(shared.versions, driver)
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
        also = (self._scaling.state, self._is_trial and seen.has_waited)
        return VersionReport(self._driver.fragment, self._attempt, self._number, self._is_trial, *done, *also)

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
