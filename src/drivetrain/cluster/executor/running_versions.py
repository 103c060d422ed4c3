"""Checks versions of the graph in one executor, and loads those that are in force for its attempts.

Problem: a change concerns several executors, each of which runs some of the fragments, and any of which may
be replaced in the middle. A message about a version may be lost or late.

Design: the files in the state directory decide which version is in force, and whether it is on trial; no
message repeats this. `look_again` makes every attempt read them (`attempt_versions`). What was compiled to
check a proposed version is kept for it: the branches of running fragments, and the readers of former
messages.

Called by `spark_work`, and by `attempt_versions` and `fragment_attempt` for each attempt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.change.change_state import not_kept
from drivetrain.core.change.graph_version import GraphVersion
from drivetrain.core.change.subscriptions import refuse_transactional
from drivetrain.core.plan.plan import Plan
from drivetrain.errors import UserError
from drivetrain.runtime.checkpoints.checkpoint_mode import makes_checkpoints
from drivetrain.runtime.former_messages import FormerMessages
from drivetrain.runtime.fragment_roles import Role, roles_in
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.runtime.wanted_history import WantedHistoryFile
from drivetrain.runtime.wanted_scaling import WantedScalingFile
from drivetrain.spark.run.application_versions import add_schemas
from drivetrain.spark.run.change_proposal import Proposal, RequestedChange, checked
from drivetrain.spark.run.fragment_versions import (
    fits,
)
from drivetrain.spark.run.history_readers import with_history
from drivetrain.spark.run.starting_fragments import check_sources
from drivetrain.spark.run.subscribers import note_columns
from drivetrain.spark.run.trunk_changes import first_context
from drivetrain.spark.run.withdrawn_sinks import refuse_withdrawn

if TYPE_CHECKING:
    from drivetrain.core.plan.plan import Fragment
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
    from drivetrain.spark.batch.query_versions import BranchSet
    from drivetrain.spark.repair.steps import Steps
    from drivetrain.spark.run.application_versions import ApplicationVersions, LoadedVersion
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver
    from drivetrain.spark.run.history_reader import HistoryReader
    from drivetrain.spark.run.recovery import SteppedWork

log = logging.getLogger(__name__)


class RunningVersions:
    """The state that the attempts of one executor share; `compiling` is held during a compilation.

    `begin_reading` begins the steps of a reader of former messages of a fragment.
    """

    def __init__(
        self,
        execution: Execution,
        compiling: threading.Lock,
        begin_reading: Callable[[str, Steps[None]], SteppedWork],
    ) -> None:
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
        self.wanted_history: Final = WantedHistoryFile(self.versions.rundir.path)
        self.begin_reading: Final = begin_reading
        self._proposal: Proposal | None = None
        self._readers: dict[tuple[str, str], HistoryReader] = {}  # not used yet, by proposal and fragment

    @property
    def plan(self) -> Plan:
        """The plan of the version in force, as far as this executor has seen it."""
        return self.versions.in_force.plan

    def look_again(self) -> None:
        """Have every attempt read which version is in force. From any thread."""
        self.mark += 1

    def check(
        self,
        id: str,
        asked: RequestedChange,
        drivers: Mapping[str, FragmentDriver],
        *,
        has_starts: bool,
        not_running: Iterable[str],
    ) -> Proposal:
        """Check the proposed version `id`, and compile it for the fragments of `drivers`; nothing changes.

        With `has_starts` its new fragments are compiled, too; so are those `not_running`, which wait for a
        restart. Raises the errors of `LiveChanges.propose`.
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
            waiting = self._next_queries(set(not_running) - drivers.keys())
            try:
                made = checked(self.versions, drivers, asked, start=start, not_started=waiting)
            finally:
                for query in waiting.values():
                    query.trunk.close()
            known = {channel.id for channel in before.plan.subscriptions}
            note_columns(made.loaded.plan, self.versions.rundir, made.loaded.context.schemas, known)
            left = {id for ids in self.stored.to_remove().values() for id in ids}
            refuse_withdrawn(left, made.loaded.sinks)
            self._refuse_other_mode(made)
            made = self._with_readers(id, made, asked.options.history_ms, drivers)
            self._proposal = made
        return made

    def _with_readers(self, id: str, made: Proposal, from_ms: int | None, drivers: Iterable[str]) -> Proposal:
        """A proposal with the readers of its history, if it has one, for the fragments `drivers`."""
        for reader in self._readers.values():
            reader.release()
        self._readers.clear()
        if from_ms is None:
            return made
        former = FormerMessages(self.versions.rundir, id)
        made = with_history(made, from_ms, self.versions, self.engine, former, frozenset(drivers))
        self._readers = {(id, reader.fragment): reader for reader in made.histories}
        return made

    def take_reader(self, id: str, fragment: str) -> HistoryReader | None:
        """The reader of former messages for proposal `id`, once; None if it was not compiled here."""
        with self.compiling:
            return self._readers.pop((id, fragment), None)

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

    def _next_queries(self, waiting: Set[str]) -> dict[str, FragmentQuery]:
        """Queries of fragments that wait for a restart, with the version in force; they are never started."""
        version, new = self.versions.in_force, self._execution.new_fragment
        fragments = [fragment for fragment in version.plan.fragments if fragment.id in waiting]
        return {fragment.id: new(version.context, version.sinks, fragment) for fragment in fragments}

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
