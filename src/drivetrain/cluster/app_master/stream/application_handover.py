"""The handover between two versions of an application in a cluster, as its application master sees it.

Design: each attempt decides when its fragment runs the new version alone (`executor.attempt_handover`), and
records that in the fragment's directory before it does. The application master takes the same steps for all
fragments: from these records when it begins, and then from reports. So it knows when the handover is over,
and the users see how far it is.

Called by `applied_versions`. Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from drivetrain.core.change.change_state import ChangeUnderwayError, refused_by_handover
from drivetrain.core.change.handover import Event as HandoverEvent
from drivetrain.core.change.handover import (
    FragmentCommitted,
    FragmentInputEnded,
    Handover,
    HandoverBegun,
    HandoverStages,
    ReportHandoverEnd,
)
from drivetrain.core.job.fragment_execution import ExecutionState

if TYPE_CHECKING:
    from drivetrain.cluster.app_master.stream.stored_versions import VersionsState
    from drivetrain.cluster.messages.changing import VersionReport
    from drivetrain.core.change.change_state import ChangeState
    from drivetrain.core.job.job import Job


class ApplicationHandover:
    """The handover of the fragments of `job`, if one is under way; `is_over` is called with it at its end."""

    def __init__(self, job: Job, is_over: Callable[[Handover], None]) -> None:
        self._job: Final = job
        self._is_over: Final = is_over
        self._stages: Final = HandoverStages()
        self._clocks: dict[str, int | None] = {}
        self._ended = 0  # the newest version whose handover is over; attempts may have yet to record that

    @property
    def handover(self) -> Handover | None:
        """The handover that is under way."""
        return self._stages.handover

    def apply(self, state_read: VersionsState) -> None:
        """The files have been read: begin the handover to the version in force, or end another one."""
        known, found = self._stages.handover, state_read.handover
        if known is not None and known.number == state_read.state.version:
            return  # reports show its progress
        self._stages.withdraw()
        self._clocks = {}
        if found is not None and found.number != self._ended:
            self._take(HandoverBegun(found, state_read.alone))

    def seen(self, seen: VersionReport) -> None:
        """The report of a fragment's current attempt."""
        handover = self._stages.handover
        if handover is None or seen.number != handover.number or seen.fragment not in handover.touched:
            return
        if seen.before != handover.before:
            self._take(FragmentInputEnded(seen.fragment))  # it runs the new version alone
            return
        self._clocks[seen.fragment] = seen.clock_ms
        self._take(FragmentCommitted(seen.fragment, seen.clock_ms, seen.has_committed))

    def look(self) -> None:
        """Notice fragments that have read all their input."""
        for fragment in self._stages.both:
            execution = self._job.execution(fragment)
            if execution is not None and execution.state is ExecutionState.FINISHED:
                self._take(FragmentInputEnded(fragment))

    def shown(self, state: ChangeState) -> ChangeState:
        """The state of a change, with the progress of the handover."""
        handover = self._stages.handover
        if handover is None or handover.number != state.version:
            return state
        both = self._stages.both
        clocks = [self._clocks.get(fragment) for fragment in both]
        known = [ms for ms in clocks if ms is not None]
        clock_ms = min(known) if known and len(known) == len(clocks) else None
        return msgspec.structs.replace(state, at_ms=handover.at_ms, both=both, clock_ms=clock_ms)

    def refusal(self, number: int) -> ChangeUnderwayError | None:
        """Why no change can begin, unless it goes back to the version before; `number` is the one that it
        goes back to, or 0."""
        handover = self._stages.handover
        if handover is None or number == handover.before:
            return None
        return refused_by_handover(handover, self._stages.both)

    def _take(self, event: HandoverEvent) -> None:
        for effect in self._stages.step(event):
            if isinstance(effect, ReportHandoverEnd):
                self._ended = effect.handover.number
                self._is_over(effect.handover)
