"""Gives one fragment, while it runs, another number of state partitions.

Problem, stages and invariants: see `core.change.scaling_state`; how a death in the middle is survived:
`runtime.state.divided_state`. An embedded run and an executor do the same to a fragment.

Design: `step` is called again and again by the code that polls the fragment's driver. It drains the
fragment's query; then the next query is made in a thread of its own, as for another trunk, and before that
the state is divided.

What if we die here: the fragment continues with the partitions that it had, or with the new ones.

Called by `scaling` in an embedded run, and by `cluster.executor.attempt_scaling`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from drivetrain.core.change.scaling_state import ScalingStage, ScalingState
from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import DrivetrainError
from drivetrain.runtime.state.divided_state import DividedState
from drivetrain.runtime.state.state_partitions import state_partitions
from drivetrain.spark.session.spark_errors import translated

if TYPE_CHECKING:
    from drivetrain.spark.batch.fragment_query import FragmentQuery
    from drivetrain.spark.batch.query_engine import QueryEngine
    from drivetrain.spark.repair.steps import Steps
    from drivetrain.spark.run.fragment_driver import FragmentDriver


class DividedFragment:
    """The scaling `state`, which has just begun, with Spark as `engine`."""

    def __init__(self, engine: QueryEngine, state: ScalingState) -> None:
        self._engine: Final = engine
        self.state = state
        """The current stage; replaced as a whole, since other threads read it."""
        self._why: str | None = None
        self._took_ms = 0
        self._since_s = 0.0

    def step(self, driver: FragmentDriver | None) -> None:
        """Take the next step, unless it has ended; `driver` is None when the fragment has left."""
        state = self.state
        if state.is_over:
            return
        if driver is None:
            self._end("the fragment has ended")
        elif state.stage is ScalingStage.DIVIDING:
            if not driver.is_recovering:
                self._end(self._why)
        elif driver.is_finished:
            self._end("the fragment has ended")
        else:
            self._drain(driver)

    def _drain(self, driver: FragmentDriver) -> None:
        query = driver.query
        if driver.is_recovering or query.state is FragmentState.STARTING:
            return
        if query.has_failed and not query.has_drained:
            return
        if query.batch_id < query.replay_until:
            return  # the batch from before this query comes first
        if not self._since_s and state_partitions(query.checkpoint) is None:
            return  # it has begun again, and has nothing to divide before its first batch
        self._since_s = self._since_s or time.monotonic()
        driver.drain()
        if not driver.is_draining and query.is_committed():
            self.state = self.state.drained()
            driver.restart(_continue, self.divided)

    def divided(self, query: FragmentQuery) -> Steps[None]:
        """Divide the state of a query that has stopped; the next one continues with the resulting checkpoint.

        Raises DiskFullError and OutputError when the division was decided and cannot be completed: no query
        may start.
        """
        place, since_s, partitions = DividedState(query.directory), time.monotonic(), self.state.after
        try:
            yield from self._engine.divide(place.copy(query.batch_id), partitions)
            place.put_in_place()
        except Exception as error:  # noqa: BLE001 - shown, and the fragment continues as it was
            place.settle()
            if state_partitions(query.checkpoint) != partitions:  # else it was decided before the error
                known = error if isinstance(error, DrivetrainError) else translated(error)
                self._why = str(known)
        self._took_ms = int((time.monotonic() - since_s) * 1000)

    def _end(self, why: str | None) -> None:
        paused_ms = int((time.monotonic() - self._since_s) * 1000) if self._since_s else 0
        self.state = self.state.ended(self._took_ms, paused_ms, why)


def _continue(_query: FragmentQuery) -> None:
    """Does nothing before the next query starts."""
