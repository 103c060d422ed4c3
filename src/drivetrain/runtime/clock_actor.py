"""The clock service as an actor: it receives reports, announces the persisted clock, answers waiters.

Problem: see `core.clock.clock_service`. Reports, persistence and display differ between an embedded run and
an application master; waiting for a time, naming stalls and the order of steps do not.

Design: a thin shell. Events of the core arrive wrapped in `ClockEvent`; effects go to `tell`, which the
creator of the actor provides: `PersistClock` must be answered with `ClockPersisted`, the others are
announcements. Any process that can reach the actor may ask `WaitForClock`, which waits in the system's
purgatory until the clock has reached that time or the timeout is over.

Invariants:

1. Every `WaitForClock` is answered once: when its clock has been announced, when its time is over, or when
   the actor stops. The answer contains whether the clock has been reached.
2. After a failure the actor starts again with the persisted clock that `start` returns; reports are repeated.

Imports neither pyspark nor pyarrow: application masters are small. Called by `run_clock` and by the cluster's
application master.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from drivetrain.actor import Actor, ActorRef, Message
from drivetrain.config.catalog import clock as keys
from drivetrain.core.clock.clock_service import (
    AnnounceClock,
    ClockedFragment,
    ClockRequested,
    ClockService,
    Effect,
    Event,
    FragmentsChanged,
    TimePassed,
)
from drivetrain.core.waiting.waiting_operations import DelayedOperation

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.core.plan.plan import Plan

TICK_MS: Final = 250


class ClockEvent(Message, frozen=True, tag="dt.local.clock.event"):
    """An event for the core."""

    event: Event


class WaitForClock(Message, frozen=True, tag="clock.wait"):
    """Wait until the application's clock is at `clock_ms`, for `timeout_ms` at most. Answered with
    `ClockReply`."""

    clock_ms: int
    timeout_ms: int


class SettleClock(Message, frozen=True, tag="dt.local.clock.settle"):
    """Wait, for `timeout_ms` at most, until what the fragments have reported so far is persisted and
    announced. Answered with `ClockReply`."""

    timeout_ms: int


class ClockReply(Message, frozen=True, tag="clock.seen"):
    """The application's clock (None: it has none yet), and whether the requested one was reached."""

    clock_ms: int | None
    is_reached: bool


class _Tick(Message, frozen=True, tag="dt.local.clock.tick"):
    """Time has passed."""


def clocked_fragments(plan: Plan) -> tuple[ClockedFragment, ...]:
    """The fragments of a plan, each with the fragments that write its input."""
    reads: dict[str, list[str]] = {fragment.id: [] for fragment in plan.fragments}
    for channel in plan.channels:
        reads[channel.consumer_fragment].append(channel.producer_fragment)
    return tuple(ClockedFragment(id, tuple(dict.fromkeys(up))) for id, up in reads.items())


class ClockActor(Actor):
    """The clock of an application that consists of `fragments`, in topological order.

    `start` returns the persisted clock, if any, `tell` takes effects of the core, on the actor's loop.
    """

    def __init__(
        self,
        fragments: Sequence[ClockedFragment],
        start: Callable[[], int | None],
        tell: Callable[[Effect], None],
        config: Config,
    ) -> None:
        self._fragments = tuple(fragments)
        self._start: Final = start
        self._tell: Final = tell
        self._config: Final = config

    def pre_start(self) -> None:
        """Begin at the persisted clock."""
        self.service = ClockService(
            self._now_ms(),
            self._start(),
            persist_ms=self._config[keys.PERSIST_INTERVAL],
            stall_ms=self._config[keys.STALL_TIMEOUT],
        )
        self._key = ("clock", str(self.context.me.path))
        self._step(FragmentsChanged(self._fragments))
        self.context.timers.start_periodic("tick", _Tick(), interval_ms=TICK_MS)

    def post_stop(self) -> None:
        """Answer all waiters."""
        for wait in self.context.system.purgatory.cancel_for_key(self._key):
            wait.force_complete()

    def receive(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case ClockEvent(event):
                if isinstance(event, FragmentsChanged):
                    self._fragments = event.fragments  # for the next life of this actor
                self._step(event)
            case _Tick():
                self._step(TimePassed())
            case WaitForClock(clock_ms, timeout_ms):
                self._wait(clock_ms, timeout_ms)
            case SettleClock(timeout_ms):
                lowest_ms = self.service.lowest_ms
                if lowest_ms is None:
                    self.context.reply(ClockReply(self.service.clock_ms, is_reached=True))
                else:
                    self._wait(lowest_ms, timeout_ms)
            case _:
                self.context.unhandled(message)

    def _step(self, event: Event) -> None:
        effects = self.service.step(event, self._now_ms())
        for effect in effects:
            self._tell(effect)
        if any(isinstance(effect, AnnounceClock) for effect in effects):
            self.context.system.purgatory.check_and_complete(self._key)

    def _wait(self, clock_ms: int, timeout_ms: int) -> None:
        sender = self.context.sender
        if sender is None:
            return
        wait = _ClockWait(self.service, clock_ms, timeout_ms, sender, self.context.me)
        self._step(ClockRequested(clock_ms))
        self.context.system.purgatory.try_complete_else_watch(wait, [self._key])

    def _now_ms(self) -> int:
        return int(self.context.system.loop.time() * 1000)


class _ClockWait(DelayedOperation):
    def __init__(
        self, service: ClockService, clock_ms: int, timeout_ms: int, asker: ActorRef, me: ActorRef
    ) -> None:
        super().__init__(timeout_ms)
        self._service = service
        self._clock_ms = clock_ms
        self._asker = asker
        self._me = me

    @property
    def is_reached(self) -> bool:
        clock_ms = self._service.clock_ms
        return clock_ms is not None and clock_ms >= self._clock_ms

    def try_complete(self) -> bool:
        return self.is_reached and self.force_complete()

    def on_complete(self) -> None:
        self._asker.tell(ClockReply(self._service.clock_ms, self.is_reached), self._me)
