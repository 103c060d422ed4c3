"""The application's clock in an embedded run, shared by its threads.

Problem: fragments are polled in one thread, the clock service is an actor in another, its clock must be on
disk before it is announced, and a program in a third thread wants to wait for a time.

Design: `report` sends the actor the result of a poll, if it is new. Effects come back on the actor's thread:
the clock is written in a thread of the actor system, then announced; stalls are noted. `clock_ms` and `stall`
are plain reads. If a clock cannot be written it is not announced: it stops, the run continues, and `notices`
has the reason.

What if we die here: see `clock_file`. A damaged file is renamed, with a notice: fragments know their clocks
from channels and checkpoints, and the application's follows from them.

Invariants:

1. The clock of `clock_ms` and `wait_clock` is on disk.
2. One clock is written at a time.

Called by `embedded`; `running_application` lets programs wait.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from drivetrain.api.moments import moment_text
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
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.runtime.clock_actor import (
    ClockActor,
    ClockEvent,
    ClockReply,
    SettleClock,
    WaitForClock,
    clocked_fragments,
)

if TYPE_CHECKING:
    import asyncio

    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan
    from drivetrain.runtime.actor_thread import ActorThread
    from drivetrain.runtime.clock_file import ClockFile

_ANSWER_MS: Final = 10_000
"""How much longer than its own timeout a request may take."""


class RunClock:
    """The clock of the application of `plan`, an actor of `thread`, kept in `file`.

    Until its first report it is at `begin_ms`, where the messages of a replay begin.
    """

    def __init__(
        self,
        plan: Plan,
        thread: ActorThread,
        file: ClockFile,
        config: Config,
        begin_ms: int | None = None,
    ) -> None:
        self._thread: Final = thread
        self._file: Final = file
        self.notices: Final[deque[str]] = deque()
        """Notices for the user, oldest first; the reader removes them."""
        known_ms = self._read()
        self.clock_ms: int | None = begin_ms if known_ms is None else known_ms
        """The application's clock as stored on disk; None: it has none yet."""
        self._stalls: dict[str, tuple[Stall, float]] = {}
        self._reported: dict[str, FragmentReported] = {}
        self._is_writing = False
        self._to_write: int | None = None
        self._actor: Final = thread.spawn(
            lambda: ClockActor(clocked_fragments(plan), lambda: self.clock_ms, self._take, config), "clock"
        )

    # -- for the thread that polls ----------------------------------------------------------------------

    def report(self, fragment: str, attempt: int, clock_ms: int | None, waiting_for: str | None) -> None:
        """Report the result of polling an attempt of a fragment."""
        report = FragmentReported(fragment, attempt, clock_ms, waiting_for)
        if self._reported.get(fragment) != report:
            self._reported[fragment] = report
            self._thread.tell(self._actor, ClockEvent(report))

    def changed(self, fragments: tuple[ClockedFragment, ...]) -> None:
        """The application consists of these fragments now, in topological order."""
        known = {fragment.id for fragment in fragments}
        for id in self._reported.keys() - known:
            del self._reported[id]
        self._thread.tell(self._actor, ClockEvent(FragmentsChanged(fragments)))

    def restarted(self, fragment: str, attempt: int) -> None:
        """A fragment starts again from its last committed batch."""
        self._thread.tell(self._actor, ClockEvent(FragmentRestarted(fragment, attempt)))

    def stall(self, fragment: str) -> tuple[int, str | None]:
        """How long the fragment's clock has stalled, in ms, and why; (0, None) while it moves."""
        stall, reported_s = self._stalls.get(fragment, (None, 0.0))
        if stall is None:
            return 0, None
        return stall.stalled_ms + int(time.monotonic() - reported_s) * 1000, stall.waiting_for

    def settle(self, timeout_ms: int) -> int | None:
        """Wait until reported progress is on disk, or for `timeout_ms`; returns the clock at that point."""
        answer = self._thread.ask(
            self._actor, SettleClock(timeout_ms), ClockReply, timeout_ms=timeout_ms + _ANSWER_MS
        )
        return answer.clock_ms

    # -- for any thread -----------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the run is ending: the clock does not move any more."""
        return self._thread.is_closed

    def wait_clock(self, clock_ms: int, timeout_ms: int) -> int:
        """Wait until the clock is at `clock_ms` or later; returns it. Raises UnavailableError when it is not
        there after `timeout_ms`, or when the run ends before."""
        if self.clock_ms is not None and self.clock_ms >= clock_ms:
            return self.clock_ms
        answer = self._thread.ask(
            self._actor, WaitForClock(clock_ms, timeout_ms), ClockReply, timeout_ms=timeout_ms + _ANSWER_MS
        )
        if not answer.is_reached or answer.clock_ms is None:
            raise clock_is_behind(clock_ms, answer.clock_ms, timeout_ms)
        return answer.clock_ms

    # -- effects, on the actor's thread -------------------------------------------------------------------

    def _take(self, effect: Effect) -> None:
        match effect:
            case PersistClock(clock_ms):
                self._to_write = clock_ms
                self._write()
            case AnnounceClock(clock_ms):
                self.clock_ms = clock_ms
            case AnnounceStalls(stalls):
                now_s = time.monotonic()
                self._stalls = {stall.fragment: (stall, now_s) for stall in stalls}

    def _write(self) -> None:
        clock_ms = self._to_write
        if self._is_writing or clock_ms is None:
            return
        self._is_writing, self._to_write = True, None
        writing = self._thread.system.run_blocking(functools.partial(self._file.write, clock_ms))
        writing.add_done_callback(functools.partial(self._written, clock_ms))

    def _written(self, clock_ms: int, writing: asyncio.Future[None]) -> None:
        self._is_writing = False
        if writing.cancelled():
            return
        self._write()
        error = writing.exception()
        if error is None:
            self._actor.tell(ClockEvent(ClockPersisted(clock_ms)))
        elif not self.notices or self.notices[-1] != str(error):
            self.notices.append(str(error))  # the service asks for the write again

    def _read(self) -> int | None:
        try:
            return self._file.read()
        except InputError as error:
            aside = self._file.path.with_suffix(".damaged")
            self._file.path.replace(aside)
            self.notices.append(
                f"{error.what} ({error.where}, set aside as {aside.name}): it is taken from the channels"
            )
            return None


def clock_is_behind(wanted_ms: int, clock_ms: int | None, timeout_ms: int) -> DrivetrainError:
    """The error for a caller that waited in vain for a clock."""
    return UnavailableError(
        f"the application's clock has not reached {moment_text(wanted_ms)}",
        expected=f"within {timeout_ms / 1000:g} s",
        got="no clock yet" if clock_ms is None else moment_text(clock_ms),
        remedy="wait longer; `drivetrain show` names a fragment that stalls, with the reason",
    )
