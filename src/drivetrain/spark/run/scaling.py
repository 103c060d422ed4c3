"""Divides the state of a fragment that runs into another number of partitions, while all others run on.

Problem, stages and invariants: see `core.change.scaling_state`; how a death in the middle is survived:
`runtime.checkpoints.divided_state`. This is the shell around both, in an embedded run.

Design: `propose` checks in its caller's thread. The loop calls `look`, which drains the fragment's query;
then the next query is made in a thread of its own, as for another trunk. The state is divided before that.

What if we die here: the fragment continues with the partitions that it had, or with the new ones.

Called by `live_changes`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from drivetrain.api.operations import Process
from drivetrain.core.change.scaling_state import (
    MOST_PARTITIONS,
    PlannedScaling,
    ScalingStage,
    ScalingState,
    likely_pause_ms,
)
from drivetrain.core.figures import show_counted
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.checkpoints.divided_state import DividedState
from drivetrain.runtime.checkpoints.state_partitions import state_bytes, state_partitions
from drivetrain.runtime.scalings import Scalings
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.compile.keyed import BUCKETS
from drivetrain.spark.session.spark_errors import translated

if TYPE_CHECKING:
    from drivetrain.core.plan.plan import Plan
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.repair.steps import Steps
    from drivetrain.spark.run.execution import Execution
    from drivetrain.spark.run.fragment_driver import FragmentDriver


class Scaling:
    """The scalings of the application `execution`, whose fragments `drivers` drive, by id.

    `reserved` is held from the first look at a change, or a scaling, until it has ended.
    """

    def __init__(
        self, execution: Execution, drivers: Mapping[str, FragmentDriver], reserved: threading.Lock
    ) -> None:
        assert execution.versions is not None, "an application that cannot change"
        self._versions: Final = execution.versions
        self._engine: Final = execution.engine
        self._drivers: Final = drivers
        self._reserved: Final = reserved
        self._scalings: Final = Scalings(execution.rundir.path)
        self.state: ScalingState | None = None
        """The current or last scaling; replaced whole: threads read it."""
        self._why: str | None = None
        self._took_ms = 0
        self._since_s = 0.0

    def propose(self, name: str, partitions: int, refuse: Callable[[], None]) -> ScalingState:
        """Begin to scale a fragment, named by its id or by a processor in it; returns its state.

        `refuse` raises the error while something else is under way. Raises UserError when that is impossible.
        """
        if not self._reserved.acquire(blocking=False):
            refuse()
        try:
            state = self._checked(name, partitions)
        except BaseException:
            self._reserved.release()
            raise
        self._why, self._took_ms, self._since_s = None, 0, 0.0
        self.state = state
        return state

    def planned(self, name: str, partitions: int) -> PlannedScaling:
        """A scaling as it would be; changes nothing. Raises UserError when it is impossible."""
        state = self._checked(name, partitions)
        earlier = [scaled.of for scaled in self._scalings.all()]
        likely_ms = likely_pause_ms(earlier, state.bytes)
        return PlannedScaling(state.fragment, state.before, state.after, state.bytes, likely_ms)

    def _checked(self, name: str, partitions: int) -> ScalingState:
        plan = self._versions.in_force.plan
        fragment = next((f for f in plan.fragments if name == f.id or name in f.processors), None)
        if fragment is None or fragment.id not in self._drivers:
            raise UserError(
                "the application has no such fragment",
                where=plan.application,
                expected=f"one of {', '.join(sorted(self._drivers))}, or a processor of one",
                got=name,
                remedy="drivetrain plan shows the fragments",
            )
        if fragment.stateful is None:
            raise UserError(
                "the fragment keeps no state, so there is nothing to divide",
                where=f"fragment {fragment.id}",
                remedy="its batches use all cores that Spark has, and as many tasks as its input has parts",
            )
        query = self._drivers[fragment.id].query
        if not isinstance(query, MicroBatchQuery):
            raise UserError(
                "a fragment in real-time mode is never between two batches",
                where=f"fragment {fragment.id}",
                remedy='stop the application, and run it with latency="batch"',
            )
        _require_useful(plan, fragment.stateful, partitions)
        before = state_partitions(query.checkpoint)
        if before is None:
            raise UserError(
                "the fragment has no state yet",
                where=f"fragment {fragment.id}",
                remedy="scale it after its first batch; or start it over with "
                f"--fresh --set spark.shuffle-partitions={partitions}",
            )
        if before == partitions:
            raise UserError(
                f"the state has {show_counted(partitions, 'partition')} already",
                where=f"fragment {fragment.id}",
                remedy="give another number",
            )
        if self._drivers[fragment.id].is_finished:
            raise UserError(
                "the fragment has finished",
                where=f"fragment {fragment.id}",
                remedy="nothing is left to scale",
            )
        return ScalingState(fragment.id, before, partitions, state_bytes(query.checkpoint))

    # -- for the thread that polls -----------------------------------------------------------------------

    def look(self) -> None:
        """Take the next step of the scaling that is under way."""
        state = self.state
        if state is None or state.is_over:
            return
        driver = self._drivers.get(state.fragment)
        if driver is None or driver.is_finished:
            self._end(state, "the fragment has ended")
        elif state.stage is ScalingStage.WAITING:
            self._drain(state, driver)
        elif not driver.is_recovering:
            self._end(state, self._why)

    def _drain(self, state: ScalingState, driver: FragmentDriver) -> None:
        query = driver.query
        if driver.is_recovering or (query.has_failed and not query.has_drained):
            return
        if query.batch_id < query.replay_until:
            return  # the batch from before this query comes first
        self._since_s = self._since_s or time.monotonic()
        driver.drain()
        if not driver.is_draining and query.is_committed():
            self.state = state.drained()
            driver.restart(_continue, lambda drained: self._divided(drained, state.after))

    def _divided(self, query: FragmentQuery, partitions: int) -> Steps[None]:
        """Divide the state of a query that has stopped; the next one continues with what there is then.

        Raises DiskFullError and OutputError when it was decided and cannot be completed: no query may start.
        """
        place, since_s = DividedState(query.directory), time.monotonic()
        try:
            yield from self._engine.divide(place.copy(query.batch_id), partitions)
            place.put_in_place()
        except Exception as error:  # noqa: BLE001 - shown, and the fragment continues as it was
            place.settle()
            if state_partitions(query.checkpoint) != partitions:  # else it was decided before the error came
                known = error if isinstance(error, DrivetrainError) else translated(error)
                self._why = str(known)
        self._took_ms = int((time.monotonic() - since_s) * 1000)

    def _end(self, state: ScalingState, why: str | None) -> None:
        paused_ms = int((time.monotonic() - self._since_s) * 1000) if self._since_s else 0
        ended = state.ended(self._took_ms, paused_ms, why)
        if why is None:
            try:
                self._scalings.note(ended)
            except DrivetrainError as error:
                self._versions.notices.append(f"the scaling is done, and not in the list: {error}")
        self._versions.notices.append(ended.in_words)
        self.state = ended
        self._reserved.release()


def _continue(_query: FragmentQuery) -> None:
    """Does nothing before the next query starts."""


def _require_useful(plan: Plan, stateful: str, partitions: int) -> None:
    """Raise UserError for a number of partitions of which some would always be empty."""
    most, why = MOST_PARTITIONS, "each has files of its own, which every batch writes"
    operation = plan.graph.nodes[stateful].operation
    if operation.runs[0] == "task":
        most, why = BUCKETS, f"the keys of {stateful} are in {BUCKETS} groups, which stay together"
        if isinstance(operation, Process) and operation.persistent is None and operation.keyed is None:
            most, why = operation.parallelism, f"{stateful} has {operation.parallelism} instances"
    if not 1 <= partitions <= most:
        raise UserError(
            "the state cannot be divided into so many partitions",
            where=stateful,
            expected=f"1 to {most}: {why}",
            got=str(partitions),
            remedy="give a number that fits",
        )
