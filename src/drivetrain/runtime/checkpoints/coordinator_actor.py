"""The checkpoint coordinator as an actor: it receives events, persists transactions, answers waiters.

Problem: see `core.checkpoint.coordinator`. How a transaction is persisted and how fragments are reached
differs between an embedded run and an application master; the order of steps does not.

Design: a thin shell, which performs the core's effects in order. `persist` is called in a thread and returns
when the transaction is durable; only then is the next effect performed. `tell` takes the others, on the
actor's loop. A coordinator that cannot persist is replaced by a new one, which begins at the persisted state.
Any process that can reach the actor may ask `RequestCheckpoint`: the answer follows the commit of a
transaction that began after the request.

It sleeps while there is nothing to decide and no checkpoint is requested, unless checkpoints are periodic and
a fragment with sources has run since the last one: so an application without checkpoints, or an idle one,
pays nothing.

Invariants:

1. Nothing is sent before it is persisted.
2. Every `RequestCheckpoint` is answered once: with the record, or with the reason why there is none in time.
3. After `CheckpointsStopped` nothing is persisted or sent any more.

Imports neither pyspark nor pyarrow: application masters are small. Called by `run_checkpoints` and by the
cluster's application master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from drivetrain.actor import Actor, ActorRef, Message
from drivetrain.config.catalog import checkpoint as keys
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointFigures
from drivetrain.core.checkpoint.coordinator import (
    CheckpointCoordinator,
    CheckpointPolicy,
    CheckpointRequested,
    Completed,
    Effect,
    Emit,
    Event,
    ParticipantsChanged,
    Persist,
    StopRequested,
    TimePassed,
)
from drivetrain.core.checkpoint.transaction import (
    BatchesRan,
    CheckpointRecord,
    ParticipantEvent,
    Phase,
    Transaction,
)
from drivetrain.core.waiting.waiting_operations import DelayedOperation
from drivetrain.errors import DiskFullError, OutputError, PeerViolationError, UnavailableError

if TYPE_CHECKING:
    from drivetrain.config import Config
    from drivetrain.runtime.running_config import RunningConfig


_LONGEST_TICK_MS: Final = 1000
"""A shorter interval is noticed after that time."""


class CheckpointEvent(Message, frozen=True, tag="dt.local.checkpoint.event"):
    """An event that a fragment reports to the coordinator."""

    event: ParticipantEvent


class SetParticipants(Message, frozen=True, tag="dt.local.checkpoint.fragments"):
    """These fragments take part in checkpoints from now on."""

    fragments: frozenset[str]


class RequestCheckpoint(Message, frozen=True, tag="checkpoint.want"):
    """Take a checkpoint now, within `timeout_ms`. Answered with `CheckpointMade`."""

    timeout_ms: int


class CheckpointMade(Message, frozen=True, tag="checkpoint.made"):
    """The record of a checkpoint that began after the request; None, with the reason, if there is none."""

    record: CheckpointRecord | None
    reason: str = ""


class StopCheckpoints(Message, frozen=True, tag="dt.local.checkpoint.stop"):
    """Commit what is decided, and begin or decide nothing else. Then answered with `CheckpointsStopped`."""


class CheckpointsStopped(Message, frozen=True, tag="dt.local.checkpoint.stopped"):
    """No checkpoint is being published, and none will be."""


class _Tick(Message, frozen=True, tag="dt.local.checkpoint.tick"):
    """Time has passed."""


@dataclass(frozen=True)
class CheckpointHost:
    """The functions that the process which runs the actor provides.

    `saved` returns the persisted transaction, `persist` stores one (both are called in a thread), `tell`
    takes `Emit` and `Completed`, `figures` takes the figures for users.
    """

    saved: Callable[[], Transaction | None]
    persist: Callable[[Transaction], None]
    tell: Callable[[Emit | Completed], None]
    figures: Callable[[CheckpointFigures], None]
    failed: Callable[[BaseException], None] = field(default=lambda error: None)


class CheckpointActor(Actor):
    """The checkpoints of an application of these fragments."""

    def __init__(
        self,
        fragments: Iterable[str],
        host: CheckpointHost,
        config: Config | RunningConfig,
        *,
        periodic: bool,
    ) -> None:
        self._fragments = frozenset(fragments)
        self._host: Final = host
        self._config: Final = config
        self._is_periodic: Final = periodic
        self._policy = self._wanted_policy()

    def pre_start(self) -> None:
        """Begin, in recovery, where the last one stopped."""
        self._core: CheckpointCoordinator | None = None
        self._wanted_round = 0
        self._has_news = True
        self._last_error = ""
        self._stoppers: list[ActorRef] = []  # whoever waits for `CheckpointsStopped`
        self._key = ("checkpoint", str(self.context.me.path))
        self._newest: CheckpointRecord | None = None
        self._start_ticks()

    def post_stop(self) -> None:
        """Answer all waiters."""
        self._end_waits()

    def _end_waits(self) -> None:
        for wait in self.context.system.purgatory.cancel_for_key(self._key):
            wait.force_complete()

    async def receive(self, message: Message) -> None:
        """Handle one message."""
        match message:
            case CheckpointEvent(event):
                await self._handle(event)
            case _Tick():
                core = await self._coordinator()
                self._look_at_config(core)
                if self._is_awake(core) and (self._has_news or not self._is_decided(core)):
                    await self._step(core, TimePassed())
            case SetParticipants(fragments) if fragments != self._fragments:
                self._fragments = fragments
                if self._core is not None:
                    await self._step(self._core, ParticipantsChanged(fragments))
            case SetParticipants():
                pass
            case RequestCheckpoint(timeout_ms):
                await self._want(timeout_ms)
            case StopCheckpoints():
                core = await self._coordinator()
                if self.context.sender is not None:
                    self._stoppers.append(self.context.sender)
                await self._step(core, StopRequested())
            case _:
                self.context.unhandled(message)

    def _wanted_policy(self) -> CheckpointPolicy:
        return CheckpointPolicy(self._config[keys.INTERVAL], self._config[keys.TIMEOUT], self._is_periodic)

    def _start_ticks(self) -> None:
        tick_ms = min(_LONGEST_TICK_MS, max(10, self._policy.interval_ms // 10))
        self.context.timers.start_periodic("tick", _Tick(), interval_ms=tick_ms)

    def _look_at_config(self, core: CheckpointCoordinator) -> None:
        """Take up another interval or timeout."""
        wanted = self._wanted_policy()
        if wanted != self._policy:
            self._policy = core.policy = wanted
            self._start_ticks()

    async def _coordinator(self) -> CheckpointCoordinator:
        if self._core is None:
            saved = await self.context.blocking(self._host.saved)
            self._core = CheckpointCoordinator(self._fragments, self._policy, saved)
            self._has_history = saved is not None
            self._newest = self._core.record
            if self._wanted_round:
                self._core.step(CheckpointRequested(), self._now_ms())
            if self._stoppers:
                self._core.step(StopRequested(), self._now_ms())
        return self._core

    def _is_awake(self, core: CheckpointCoordinator) -> bool:
        if self._is_periodic or self._wanted_round or self._stoppers:
            return True
        return self._has_history and not self._is_decided(core)

    def _is_decided(self, core: CheckpointCoordinator) -> bool:
        return not core.recovering and core.transaction.phase is Phase.COMMITTED

    async def _handle(self, event: ParticipantEvent) -> None:
        if isinstance(event, BatchesRan):
            self._has_news = True
            return
        core = await self._coordinator()
        try:
            await self._step(core, event)
        except PeerViolationError as error:
            # An answer to a coordinator that was ahead of the persisted state: nothing depends on it.
            self._host.failed(error)

    async def _step(self, core: CheckpointCoordinator, event: Event) -> None:
        before = core.history.failed
        effects = core.step(event, self._now_ms())
        try:
            for effect in effects:
                await self._perform(effect)
        except (OutputError, DiskFullError, UnavailableError) as error:
            self._core = None  # it is ahead of the persisted state, from which a new one continues
            self._has_news = True
            if self._last_error != str(error):
                self._last_error = str(error)
                self._host.failed(error)
            return
        if core.has_settled:
            self._end_waits()
            while self._stoppers:
                self._stoppers.pop().tell(CheckpointsStopped(), self.context.me)
        if core.history.failed != before:
            self._has_news = True  # what the failed transaction would have saved is not saved
        if effects or core.history.failed != before:
            self._host.figures(core.figures(self._now_ms()))

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case Persist(transaction):
                self._has_history = True
                if transaction.phase is Phase.PREPARING:
                    self._has_news = False
                await self.context.blocking(self._host.persist, transaction)
                self._last_error = ""
            case Completed(record):
                self._newest = record
                self._host.tell(effect)
                if record.round >= self._wanted_round:
                    self._wanted_round = 0
                self.context.system.purgatory.check_and_complete(self._key)
            case Emit():
                self._host.tell(effect)

    async def _want(self, timeout_ms: int) -> None:
        sender = self.context.sender
        if sender is None:
            return
        core = await self._coordinator()
        self._wanted_round = core.transaction.round + 1
        wait = _Waiting(self, core, self._wanted_round, timeout_ms, sender)
        self.context.system.purgatory.try_complete_else_watch(wait, [self._key])
        await self._step(core, CheckpointRequested())
        await self._step(core, TimePassed())

    @property
    def newest(self) -> CheckpointRecord | None:
        """The record of the newest transaction that is committed everywhere."""
        return self._newest

    def _now_ms(self) -> int:
        return int(self.context.system.loop.time() * 1000)


class _Waiting(DelayedOperation):
    def __init__(
        self,
        actor: CheckpointActor,
        core: CheckpointCoordinator,
        round: int,
        timeout_ms: int,
        asker: ActorRef,
    ) -> None:
        super().__init__(timeout_ms)
        self._actor = actor
        self._core = core
        self._round = round
        self._asker = asker
        self._me = actor.context.me

    def _is_made(self) -> bool:
        newest = self._actor.newest
        return newest is not None and newest.round >= self._round

    def try_complete(self) -> bool:
        return self._is_made() and self.force_complete()

    def on_complete(self) -> None:
        if self._is_made():
            self._asker.tell(CheckpointMade(self._actor.newest), self._me)
            return
        self._asker.tell(CheckpointMade(None, self._why_not()), self._me)

    def _why_not(self) -> str:
        failures = self._core.history.failures
        if self._core.has_settled:
            return "the application is stopping"
        return (
            failures[-1].reason if failures else f"no answer from {', '.join(sorted(self._core.waits_for))}"
        )
