"""The loop of an embedded run: drives its fragments, reports news to the listener, ends or stops.

Problem: one thread drives all fragments of an application, its checkpoints and requests to it. It
must not block, or a fragment waits for another; and between two effects it must behave as in a
simulation, which has no threads.

Design: `step` checks everything once, and returns the outcome when the run is over. A requested stop goes
through three steps, each of which may take a while: the running batches finish, a checkpoint that is being
made is published, and all queries are stopped.

Invariants:

1. A run has finished only when every fragment has, and all their results are published.
2. Each change of a fragment is reported once, in order.

Called by `embedded`, in its thread.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping

from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.job.run_progress import (
    CheckpointsProgressed,
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    RunListener,
    RunOutcome,
)
from drivetrain.runtime.checkpoints.savepoint_requests import SavepointRequests
from drivetrain.spark.batch.fragment_query import FragmentQuery
from drivetrain.spark.run.fragment_driver import DRAIN_S, FragmentDriver
from drivetrain.spark.run.live_changes import LiveChanges
from drivetrain.spark.run.outside_repairs import OutsideRepairs
from drivetrain.spark.run.run_checkpoints import RunCheckpoints
from drivetrain.spark.run.run_clock import RunClock
from drivetrain.spark.run.stopped_producers import StoppedProducers

SETTLE_MS = 10_000
"""How long the end of a run waits until its last checkpoint is published, and until its clock is on disk."""
LOOK_MS = 500
"""How often a fragment's progress is reported between batches: it may be blocked, with a growing lag."""


class EmbeddedLoop:
    """Drives the fragments of an application (`drivers` by id, in topological order).

    `notices` are repairs' notices that the listener has not received yet.
    """

    def __init__(
        self,
        listener: RunListener,
        clock: RunClock,
        checkpoints: RunCheckpoints,
        savepoints: SavepointRequests,
        notices: deque[str],
        drivers: Mapping[str, FragmentDriver],
        changes: LiveChanges,
        repairs: OutsideRepairs,
        producers: StoppedProducers,
    ) -> None:
        self.drivers = drivers
        self._listener = listener
        self.clock = clock
        self.checkpoints = checkpoints
        self.changes = changes
        self.repairs = repairs
        self.producers = producers
        self._savepoints = savepoints
        self._notices = notices
        self._now_ms = 0
        self._drained_by_ms: int | None = None  # set when the run is asked to stop
        self._settled_by_ms: int | None = None  # set when no batch runs any more
        self._reported_checkpoints: CheckpointFigures | None = None
        self._reported: dict[str, tuple[int, FragmentState | None]] = {}  # batch and state, as last reported
        self._shown: dict[
            str, tuple[int, FragmentProgressed]
        ] = {}  # when the progress was last read, and what was reported

    def start(self) -> None:
        """Start the queries, in topological order."""
        self.changes.resume()
        for driver in list(self.drivers.values()):
            self._tell_state(driver.query)
            try:
                driver.start()
            except Exception as error:
                if not self.changes.goes_back(driver, error):
                    raise
            self._tell_state(driver.query)

    def step(self, now_ms: int) -> RunOutcome | None:
        """Check everything once; returns how the run has ended, None while it continues.

        `now_ms` is of a monotonic clock. Raises errors that end the application.
        """
        self._now_ms = now_ms
        self.checkpoints.require_own()
        if self._drained_by_ms is not None:
            return RunOutcome.STOPPED if self._has_stopped(self._drained_by_ms) else None
        for driver in list(self.drivers.values()):
            if driver.fragment in self.drivers:  # a trial that ended just now may have removed it
                self._look_after(driver)
        self.changes.step()
        self.repairs.look()
        self.producers.look()
        is_over = all(driver.is_finished for driver in self.drivers.values()) and not self.changes.is_busy
        self._savepoints.look()
        if is_over and self.checkpoints.is_all_published() and not self._savepoints.is_busy:
            self._tell_checkpoints()
            return RunOutcome.FINISHED
        self._tell_checkpoints()
        self._report_left()
        self._tell_notices()
        if self._listener.stop_requested():
            self._begin_stop()
        return None

    def _look_after(self, driver: FragmentDriver) -> None:
        """Drive a fragment one step, and report news; raises an error that ends it."""
        try:
            driver.step(self._tell)
        except BaseException as error:
            if self.changes.goes_back(driver, error):
                return
            driver.query.state = FragmentState.FAILED
            self._tell_state(driver.query)
            raise
        query = driver.query
        self.clock.report(
            driver.fragment, driver.queries_before, query.settled_clock_ms, driver.waiting_for()
        )
        self._tell_state(query)

    # -- stopping --------------------------------------------------------------------------------------

    def _begin_stop(self) -> None:
        """Let every running batch finish, and begin no other."""
        self.changes.close()
        for driver in self.drivers.values():
            driver.drain()
            self._tell_state(driver.query)
        self._drained_by_ms = self._now_ms + int(DRAIN_S * 1000)

    def _has_stopped(self, drained_by_ms: int) -> bool:
        """Whether everything has stopped; unfinished batches run again later."""
        is_draining = any(driver.is_draining for driver in self.drivers.values())
        if is_draining and self._now_ms < drained_by_ms:
            return False
        # So that a savepoint can be made of the newest checkpoint: not of one that is still being published.
        if self._settled_by_ms is None:
            self._settled_by_ms = self._now_ms + SETTLE_MS
        if not self.checkpoints.have_stopped() and self._now_ms < self._settled_by_ms:
            return False
        for driver in self.drivers.values():
            driver.stop()
            self._tell_state(driver.query)
        return True

    # -- reporting -------------------------------------------------------------------------------------

    def _tell(self, query: FragmentQuery) -> None:
        self._tell_state(query)
        id = query.fragment.id
        batch, state = self._reported.get(id, (-1, None))
        looked_ms, before = self._shown.get(id, (self._now_ms, None))
        if query.batch_id == batch and (before is None or self._now_ms - looked_ms < LOOK_MS):
            return
        stalled_ms, waiting_for = self.clock.stall(id)
        progress = dataclasses.replace(query.progressed(), stalled_ms=stalled_ms, waiting_for=waiting_for)
        self._reported[id] = (query.batch_id, state)
        self._shown[id] = (self._now_ms, progress)
        if progress == before:
            return
        self._listener.on_event(progress)
        fraction = self._fraction()
        if fraction is not None:
            self._listener.on_event(InputProgressed(fraction))

    def _tell_state(self, query: FragmentQuery) -> None:
        batch, state = self._reported.get(query.fragment.id, (-1, None))
        if state is not query.state:
            self._reported[query.fragment.id] = (batch, query.state)
            self._listener.on_event(FragmentStateChanged(query.fragment.id, query.state))

    def _report_left(self) -> None:
        """Report the fragments that are gone since the last step."""
        for id in self._reported.keys() - self.drivers.keys():
            del self._reported[id]
            self._shown.pop(id, None)
            left = FragmentStateChanged(id, FragmentState.STOPPED, "it has left the application")
            self._listener.on_event(left)

    def _tell_checkpoints(self) -> None:
        figures = self.checkpoints.figures
        if figures is not None and figures is not self._reported_checkpoints:
            self._reported_checkpoints = figures
            self._listener.on_event(CheckpointsProgressed(figures))

    def _tell_notices(self) -> None:
        for notices in (
            self.clock.notices,
            self.checkpoints.notices,
            self._notices,
            self.changes.versions.notices,
            self.changes.outside_notices,
            self.producers.notices,
        ):
            while notices:
                self._listener.on_event(NoticeGiven(notices.popleft()))

    def _fraction(self) -> float | None:
        done = total = 0
        for query in (driver.query for driver in self.drivers.values()):
            for source in query.trunk.sources:
                position = query.inputs.position(source)
                if position.total is None:
                    return None
                done, total = done + position.done, total + position.total
        return min(1.0, done / total) if total else None
