"""The clock of an application in a cluster: between its application master, its executors and the registry.

Problem: executors say how far their fragments are; the clock that follows must be known to a majority of the
masters before anybody is told, so that the next application master does not tell less.

Design: the clock service is a child of the application master (`runtime.clock_actor`). What executors report
goes to it; what it wants persisted goes into the next report to the leader, and counts when that was taken.
Who waits for a time is passed on to it. The application master keeps what it was told last.

Invariants:

1. `clock_ms` is in the registry.
2. A report to the leader says what was to be persisted when the report was made; nothing later counts with
it.

Called by `running_job`, and by `stream_app_master` for what the registry and followers see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from drivetrain.actor import Context, Message
from drivetrain.core.clock.clock_service import (
    ClockedFragment,
    ClockPersisted,
    Effect,
    FragmentReported,
    FragmentRestarted,
    PersistClock,
    Stall,
    TellClock,
    TellStalls,
)
from drivetrain.runtime.clock_actor import ClockActor, ClockEvent

if TYPE_CHECKING:
    from drivetrain.cluster.messages.executing import ExecutorReport
    from drivetrain.config import Config
    from drivetrain.core.job.job_events import Vertex


class ClockNews(Message, frozen=True, tag="dt.local.app.clock-news"):
    """What the clock service wants done, or known."""

    effect: Effect


class ApplicationClock:
    """The clock of the fragments `vertices`; `start_ms` is what the registry knows, None: nothing yet."""

    def __init__(
        self, context: Context, vertices: Sequence[Vertex], config: Config, start_ms: int | None
    ) -> None:
        self._context: Final = context
        self.clock_ms: int | None = start_ms
        """The application's clock."""
        self._wanted_ms: int | None = None
        self._in_report_ms: int | None = None
        self._stalls: dict[str, tuple[Stall, float]] = {}
        fragments = tuple(ClockedFragment(v.fragment, tuple(v.producers)) for v in vertices)
        me = context.me
        self._actor: Final = context.spawn(
            lambda: ClockActor(
                fragments, lambda: self.clock_ms, lambda effect: me.tell(ClockNews(effect)), config
            ),
            "clock",
        )

    # ---- events

    def take_report(self, report: ExecutorReport) -> None:
        """An executor says how far its fragments are."""
        for told in report.fragments:
            event = FragmentReported(told.fragment, told.attempt, told.settled_clock_ms, told.waiting_for)
            self._actor.tell(ClockEvent(event))

    def restarted(self, fragment: str, attempt: int) -> None:
        """An attempt is deployed: those before it are over."""
        self._actor.tell(ClockEvent(FragmentRestarted(fragment, attempt)))

    def take(self, effect: Effect) -> bool:
        """Take what the clock service says; returns whether the registry is to be told now."""
        match effect:
            case PersistClock(clock_ms):
                self._wanted_ms = clock_ms
                return True
            case TellClock(clock_ms):
                self.clock_ms = clock_ms
            case TellStalls(stalls):
                now_s = self._context.system.loop.time()
                self._stalls = {stall.fragment: (stall, now_s) for stall in stalls}
        return False

    def to_report(self) -> int | None:
        """The clock for a report to the leader that is made now."""
        self._in_report_ms = self.clock_ms if self._wanted_ms is None else self._wanted_ms
        return self._in_report_ms

    def reported(self) -> bool:
        """The registry has the report that was made last; returns whether it is to be told more."""
        if self._in_report_ms is not None:
            self._actor.tell(ClockEvent(ClockPersisted(self._in_report_ms)))
        return self._wanted_ms is not None and self._wanted_ms != self._in_report_ms

    def forward(self) -> None:
        """Somebody waits for a time: the clock service answers."""
        self._context.forward(self._actor)

    # ---- what there is

    def stall(self, fragment: str) -> tuple[int, str | None]:
        """For how long, in ms, the fragment's clock has stood, and for whom it waits; (0, None): it moves."""
        stall, told_s = self._stalls.get(fragment, (None, 0.0))
        if stall is None:
            return 0, None
        return stall.stalled_ms + int(self._context.system.loop.time() - told_s) * 1000, stall.waiting_for
