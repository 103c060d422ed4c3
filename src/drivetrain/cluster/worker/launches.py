"""A worker's launches: its slots, the owner of each launch, and the outcome of each.

Problem: messages are lost or duplicated; the owner of a launch may be dead by now, or be a former leader that
does not know that it lost the lead. Slots must be counted once, and no process may run that no owner needs.

Design: one entry for each launch, from `Launch` until all its processes have ended; a `Launcher` runs the
processes, and its results arrive as messages of the worker to itself. The final answers for the latest ended
launches are kept.

Invariants:
1. The slots of all entries are at most those offered. An entry holds its slots from `Launch` until all its
   processes have ended.
2. A launch id is launched once: when it is sent again, the answer is repeated.
3. For an application, nothing is launched with a lower epoch than the highest seen here, and processes with a
   lower one are killed; of applications without processes here, the latest are remembered. An epoch whose
   application master has died counts as lower.
4. Once the worker leaves, nothing is launched.
5. The owner of a launch gets `Launched` and then `ProcessExited`, or `LaunchFailed`, each once per launch and
   again when the launch is sent again.

Called by the `Worker` actor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from drivetrain.actor import ActorRef, Context, Message
from drivetrain.cluster.messages.launching import (
    Launch,
    Launched,
    LaunchFailed,
    ProcessExited,
    ProcessKind,
)
from drivetrain.cluster.messages.registration import HeldSlots
from drivetrain.cluster.worker.launch_requests import LaunchEnvironment, Launcher, LaunchError
from drivetrain.cluster.worker.worker_messages import (
    BackgroundWorkDone,
    LaunchEnded,
    LaunchNotStarted,
    LaunchStarted,
    OwnerExpired,
)
from drivetrain.errors import InternalError

log: Final = logging.getLogger("drivetrain.worker")

OWNERLESS_MS: Final = 20_000
_OWNERLESS_GRACE_MS: Final = 5_000
_REMEMBERED: Final = 1_000


class _Entry:
    """A launch: `pid` once it is started, `ended` if its end was reported before its start."""

    def __init__(self, launch: Launch) -> None:
        self.launch: Final = launch
        self.pid: int | None = None
        self.ended: LaunchEnded | None = None

    @property
    def held(self) -> HeldSlots:
        launch = self.launch
        return HeldSlots(launch.launch_id, launch.app_id, launch.slots, launch.kind.value)


class Launches:
    """The launches on `slots` slots, in the actor whose `context` is given.

    `surroundings` are the worker's values for processes; `changed` is called when the held slots have
    changed.
    """

    def __init__(
        self,
        context: Context,
        launcher: Launcher,
        slots: int,
        surroundings: LaunchEnvironment,
        changed: Callable[[], None],
    ) -> None:
        self._context: Final = context
        self._launcher: Final = launcher
        self._slots: Final = slots
        self._surroundings: Final = surroundings
        self._changed: Final = changed
        self._is_leaving = False
        self._entries: Final[dict[str, _Entry]] = {}
        self._over: Final[dict[str, Message]] = {}
        self._epochs: Final[dict[str, int]] = {}  # the most recently used at the end

    @property
    def held(self) -> tuple[HeldSlots, ...]:
        """The slots that are held, by launch."""
        return tuple(entry.held for entry in self._entries.values())

    @property
    def is_empty(self) -> bool:
        """Whether no process of a launch is left."""
        return not self._entries

    # ---- requests

    def launch(self, launch: Launch) -> None:
        """Start a launch, or repeat the answer to it."""
        known = self._entries.get(launch.launch_id)
        if known is not None:
            if known.pid is not None:
                self._tell_launched(launch.owner, known.launch, known.pid)
            return
        if launch.launch_id in self._over:
            launch.owner.tell(self._over[launch.launch_id], self._context.me)
            return
        refusal = self._refusal(launch)
        if refusal is not None:
            launch.owner.tell(refusal, self._context.me)
            return
        self._fence(launch.app_id, launch.epoch)
        self._entries[launch.launch_id] = _Entry(launch)
        if launch.kind is ProcessKind.EXECUTOR:
            self._context.watch(launch.owner)
        launch_id = launch.launch_id
        self._context.pipe_to_self(
            self._launcher.launch(launch, self._surroundings),
            lambda pid: LaunchStarted(launch_id, pid),
            lambda error: _not_started(launch_id, error),
        )
        self._changed()

    def stop(self, launch_id: str, grace_ms: int) -> None:
        """End a process; unknown ones are ignored."""
        if launch_id in self._entries:
            self._context.pipe_to_self(
                self._launcher.stop(launch_id, grace_ms),
                lambda _: BackgroundWorkDone(None),
                lambda error: BackgroundWorkDone(f"{launch_id} cannot be stopped: {error!r}"),
            )

    def end_epoch(self, app_id: str, epoch: int) -> None:
        """End what is left of an application's epochs up to this one, whose application master is dead."""
        self._fence(app_id, epoch + 1)

    def leave(self, grace_ms: int) -> None:
        """Launch nothing more, and ask every process to finish its batch, hand over, and end."""
        self._is_leaving = True
        for launch_id in self._entries:
            self.stop(launch_id, grace_ms)

    def _refusal(self, launch: Launch) -> LaunchFailed | None:
        if self._is_leaving:
            return LaunchFailed(launch.launch_id, "worker-leaves", "this worker was asked to end")
        if launch.epoch < self._epochs.get(launch.app_id, 0):
            seen = self._epochs[launch.app_id]
            return LaunchFailed(launch.launch_id, "stale-epoch", f"epoch {seen} was seen, not {launch.epoch}")
        free = self._slots - self._used
        # Processes of an older epoch are killed, but hold their slots until they have ended.
        if launch.slots < 0 or launch.slots > free:
            return LaunchFailed(
                launch.launch_id, "no-slots", f"{launch.slots} slots are wanted and {free} are free"
            )
        return None

    def _fence(self, app_id: str, epoch: int) -> None:
        self._epochs[app_id] = max(epoch, self._epochs.pop(app_id, 0))
        running = {entry.launch.app_id for entry in self._entries.values()}
        idle = [each for each in self._epochs if each not in running and each != app_id]
        for each in idle[: max(0, len(self._epochs) - _REMEMBERED)]:
            del self._epochs[each]
        for launch_id, entry in self._entries.items():
            if entry.launch.app_id == app_id and entry.launch.epoch < epoch:
                log.warning("killing %s of %s: epoch %s is over", launch_id, app_id, entry.launch.epoch)
                self.stop(launch_id, 0)

    @property
    def _used(self) -> int:
        return sum(entry.launch.slots for entry in self._entries.values())

    # ---- events

    def take(self, message: LaunchStarted | LaunchNotStarted | LaunchEnded) -> None:
        """Handle the start, failure or end of a launch."""
        entry = self._entries.get(message.launch_id)
        if entry is None:
            return
        launch = entry.launch
        match message:
            case LaunchStarted(_, pid):
                log.info("launched %s of %s, process %s", launch.kind.value, launch.app_id, pid)
                entry.pid = pid
                self._tell_launched(launch.owner, launch, pid)
                if entry.ended is not None:
                    self._is_over(entry, _exited(launch, entry.ended))
            case LaunchNotStarted(launch_id, code, why, remedy):
                log.warning("%s of %s was not launched: %s", launch.kind.value, launch.app_id, why)
                self._is_over(entry, LaunchFailed(launch_id, code, why, remedy))
            case LaunchEnded() if entry.pid is None:
                entry.ended = message
            case LaunchEnded(_, status, _):
                log.info("process %s of %s has ended: %s", entry.pid, launch.app_id, status)
                self._is_over(entry, _exited(launch, message))
                if launch.kind is ProcessKind.APP_MASTER and status != 0:
                    # Its executors here would notice seconds later, by their failure detectors.
                    self.end_epoch(launch.app_id, launch.epoch)

    def owner_gone(self, owner: ActorRef) -> None:
        """An owner has ended, or cannot be reached: give its executors time to end on their own."""
        self._context.timers.start_once(f"ownerless {owner.path}", OwnerExpired(owner), delay_ms=OWNERLESS_MS)

    def end_ownerless(self, owner: ActorRef) -> None:
        """End the remaining executors of an application master that is gone."""
        for launch_id, entry in self._entries.items():
            if entry.launch.owner == owner and entry.launch.kind is ProcessKind.EXECUTOR:
                log.warning("ending %s: its application master is gone", launch_id)
                self.stop(launch_id, _OWNERLESS_GRACE_MS)

    def check(self) -> None:
        """Verify invariant 1; raises InternalError."""
        if self._used > self._slots:
            raise InternalError(
                "worker invariant 1: more slots held than offered", where=self._surroundings.worker_name
            )

    def _tell_launched(self, owner: ActorRef, launch: Launch, pid: int) -> None:
        owner.tell(Launched(launch.launch_id, self._surroundings.worker_id, pid), self._context.me)

    def _is_over(self, entry: _Entry, message: LaunchFailed | ProcessExited) -> None:
        launch = entry.launch
        del self._entries[launch.launch_id]
        self._over[launch.launch_id] = message
        if len(self._over) > _REMEMBERED:
            del self._over[next(iter(self._over))]
        is_owned = any(other.launch.owner == launch.owner for other in self._entries.values())
        if launch.kind is ProcessKind.EXECUTOR and not is_owned:
            self._context.unwatch(launch.owner)
        launch.owner.tell(message, self._context.me)
        self._changed()


def _not_started(launch_id: str, error: Exception) -> LaunchNotStarted:
    if isinstance(error, LaunchError):
        return LaunchNotStarted(launch_id, error.failure_code, error.what, error.remedy)
    return LaunchNotStarted(launch_id, "no-process", repr(error), None)


def _exited(launch: Launch, end: LaunchEnded) -> ProcessExited:
    return ProcessExited(launch.launch_id, launch.kind, launch.app_id, end.status, end.log)
