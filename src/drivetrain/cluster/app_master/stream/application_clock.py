"""The clock of an application in a cluster: connects its executors, the clock service and the registry.

Problem: executors report how far their fragments are; a majority of the masters must know the resulting clock
before anyone else sees it, so that the next application master does not continue with a smaller one.

Design: the clock service is a child of the application master (`runtime.clock_actor`). It gets the executors'
reports; a clock that it wants persisted goes into the next report to the leader, and counts once the leader
has accepted that report. Requests to wait for a time are forwarded to it. This object keeps the last clock
that it announced.

Invariants:

1. `clock_ms` is in the registry.
2. After a report to the leader, only the clock that the report contained counts as persisted.

Called by `running_job`, and by `stream_app_master` for the registry and followers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from drivetrain.actor import Context, Message
from drivetrain.core.clock.clock_service import (
    AnnounceClock,
    AnnounceStalls,
    ClockedFragment,
    ClockPersisted,
    Effect,
    FragmentReported,
    FragmentRestarted,
    FragmentsChanged,
    PersistClock,
    Stall,
)
from drivetrain.runtime.clock_actor import ClockActor, ClockEvent

if TYPE_CHECKING:
    from drivetrain.cluster.messages.executing import ExecutorReport
    from drivetrain.config import Config
    from drivetrain.core.job.job_events import Vertex


class ClockUpdate(Message, frozen=True, tag="dt.local.app.clock-news"):
    """An effect of the clock service, for the application master to perform."""

    effect: Effect


class ApplicationClock:
    """The clock of the fragments `vertices`; `start_ms` is the registry's clock, None if it has none."""

    def __init__(
        self, context: Context, vertices: Sequence[Vertex], config: Config, start_ms: int | None
    ) -> None:
        self._context: Final = context
        self.clock_ms: int | None = start_ms
        """The application's clock."""
        self._wanted_ms: int | None = None
        self._in_report_ms: int | None = None
        self._stalls: dict[str, tuple[Stall, float]] = {}
        fragments = _clocked(vertices)
        me = context.me
        self._actor: Final = context.spawn(
            lambda: ClockActor(
                fragments, lambda: self.clock_ms, lambda effect: me.tell(ClockUpdate(effect)), config
            ),
            "clock",
        )

    # ---- events

    def take_report(self, report: ExecutorReport) -> None:
        """Pass an executor's report on its fragments' clocks to the clock service."""
        for one in report.fragments:
            event = FragmentReported(one.fragment, one.attempt, one.settled_clock_ms, one.waiting_for)
            self._actor.tell(ClockEvent(event))

    def restarted(self, fragment: str, attempt: int) -> None:
        """An attempt is deployed, so that earlier ones no longer count."""
        self._actor.tell(ClockEvent(FragmentRestarted(fragment, attempt)))

    def changed(self, vertices: Sequence[Vertex]) -> None:
        """The application consists of these fragments now, in topological order."""
        self._actor.tell(ClockEvent(FragmentsChanged(_clocked(vertices))))

    def take(self, effect: Effect) -> bool:
        """Perform an effect of the clock service; returns whether to report to the leader now."""
        match effect:
            case PersistClock(clock_ms):
                self._wanted_ms = clock_ms
                return True
            case AnnounceClock(clock_ms):
                self.clock_ms = clock_ms
            case AnnounceStalls(stalls):
                now_s = self._context.system.loop.time()
                self._stalls = {stall.fragment: (stall, now_s) for stall in stalls}
        return False

    def to_report(self) -> int | None:
        """The clock for the report to the leader that is being made."""
        self._in_report_ms = self.clock_ms if self._wanted_ms is None else self._wanted_ms
        return self._in_report_ms

    def reported(self) -> bool:
        """The registry has the last report; returns whether a newer clock must be reported."""
        if self._in_report_ms is not None:
            self._actor.tell(ClockEvent(ClockPersisted(self._in_report_ms)))
        return self._wanted_ms is not None and self._wanted_ms != self._in_report_ms

    def forward(self) -> None:
        """Forward a request to wait for a time: the clock service answers it."""
        self._context.forward(self._actor)

    # ---- queries

    def stall(self, fragment: str) -> tuple[int, str | None]:
        """How long, in ms, the fragment's clock has not moved, and what it waits for; (0, None): it moves."""
        stall, reported_s = self._stalls.get(fragment, (None, 0.0))
        if stall is None:
            return 0, None
        return stall.stalled_ms + int(self._context.system.loop.time() - reported_s) * 1000, stall.waiting_for


def _clocked(vertices: Sequence[Vertex]) -> tuple[ClockedFragment, ...]:
    return tuple(ClockedFragment(v.fragment, tuple(v.producers)) for v in vertices)
