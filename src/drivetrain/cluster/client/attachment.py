"""The view that an attached client has of its application, and the client's next actions: a pure core.

Problem: an application outlives its application master, the leader and the client's connections. A client
that watches it receives, in any order, the registry's view, statuses of one application master or another,
and failures to reach either. From these it must show progress that never goes back, follow the current
application master, and end once, with the right outcome.

Design: `step(event, now_ms)` takes an event and returns what to do. The registry decides when an application
is over. If it cannot be asked, or does not show the end for `GRACE_MS` after the application master sent its
final status, that status decides: it is sent only after the outputs are complete.

Invariants:
1. At most one `ReportEnd`, and nothing after it.
2. The epoch of what is shown never decreases.
3. One application master is followed at a time: that of the highest epoch seen.
4. Each notice is given once per occasion, however often the event repeats.

Called by `client.Client.follow`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from drivetrain.actor import ActorRef
from drivetrain.cluster.messages.applications import ApplicationState, ApplicationView
from drivetrain.cluster.messages.following import JobState, JobStatus
from drivetrain.errors import InternalError, PeerViolationError

GRACE_MS: Final = 10_000
"""How long the registry may take to show the end after the application master's final status."""

SILENCE_MS: Final = 3_000
"""After so long without a status, the client asks the application master again to follow it."""

_FINAL: Final = {
    JobState.FINISHED: ApplicationState.SUCCEEDED,
    JobState.FAILED: ApplicationState.FAILED,
    JobState.CANCELED: ApplicationState.KILLED,
}


@dataclass(frozen=True, slots=True)
class ViewReceived:
    """The registry's view of the application, from the leader at the address `leader`."""

    view: ApplicationView
    leader: str | None = None


@dataclass(frozen=True, slots=True)
class LeaderUnreachable:
    """The leader could not be asked."""


@dataclass(frozen=True, slots=True)
class StatusReceived:
    """An application master sent its status."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class AppMasterLost:
    """An application master has terminated, or is out of reach."""

    app_master: ActorRef


@dataclass(frozen=True, slots=True)
class FollowAppMaster:
    """Follow and watch this application master and no other; idempotent."""

    app_master: ActorRef


@dataclass(frozen=True, slots=True)
class ShowStatus:
    """Show this status."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class ShowNotice:
    """Show a notice to the user."""

    text: str


@dataclass(frozen=True, slots=True)
class ReportEnd:
    """The application is over: its state, the reason, and its last status, None if none arrived."""

    app_id: str
    state: ApplicationState
    why: str | None = None
    status: JobStatus | None = None


Event: TypeAlias = ViewReceived | LeaderUnreachable | StatusReceived | AppMasterLost
Effect: TypeAlias = FollowAppMaster | ShowStatus | ShowNotice | ReportEnd


class Attachment:
    """The state of one attached client; `app_id` is the application's."""

    def __init__(self, app_id: str) -> None:
        self.app_id: Final = app_id
        self._epoch = 0
        self._followed: ActorRef | None = None
        self._was_lost = False
        self._followed_epoch = 0
        self._leader_is_missing = False
        self._leader: str | None = None
        self._waits_for: str | None = None
        self._status: JobStatus | None = None
        self._last_status_ms = 0
        self._final_ms: int | None = None
        self._ended = False

    @property
    def has_ended(self) -> bool:
        """Whether `ReportEnd` was returned."""
        return self._ended

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event; returns what to do, in order. Raises InternalError after the end."""
        if self._ended:
            raise InternalError("attachment invariant 1: an event came after the end", where=self.app_id)
        match event:
            case ViewReceived(view, leader):
                return self._leader_seen(leader) + self._view_seen(view, now_ms)
            case LeaderUnreachable():
                return self._leader_missing(now_ms)
            case StatusReceived(status):
                return self._status_received(status, now_ms)
            case AppMasterLost(app_master):
                return self._app_master_lost(app_master)

    def check(self) -> None:
        """Verify the invariants that state can violate; raises InternalError."""
        if self._status is not None and self._status.epoch > self._epoch:
            raise InternalError("attachment invariant 2: a status is newer than the epoch", where=self.app_id)
        if self._followed_epoch > self._epoch:
            raise InternalError("attachment invariant 3: followed beyond the epoch", where=self.app_id)

    def _view_seen(self, view: ApplicationView, now_ms: int) -> list[Effect]:
        if view.epoch < self._epoch:
            return []  # from a registry that is older than what was seen
        self._reach(view.epoch)
        if view.state.is_over:
            return [self._end(view.state, view.why, status_of(view))]
        effects = self._waiting(view)
        if view.app_master is None:
            pass
        elif view.epoch > self._followed_epoch or view.app_master != self._followed:
            if self._followed_epoch and view.epoch > self._followed_epoch:
                where = f" on {view.worker}" if view.worker else ""
                effects.append(ShowNotice(f"application master {view.epoch} has taken over{where}"))
            self._followed, self._followed_epoch = view.app_master, view.epoch
            self._was_lost, self._last_status_ms = False, now_ms
            effects.append(FollowAppMaster(view.app_master))
        elif now_ms - self._last_status_ms >= SILENCE_MS:
            # The status may be lost with its connection, or the application master was only frozen.
            self._last_status_ms = now_ms
            effects.append(FollowAppMaster(view.app_master))
        return effects + self._overdue(now_ms)

    def _leader_seen(self, leader: str | None) -> list[Effect]:
        was_missing, before = self._leader_is_missing, self._leader
        self._leader_is_missing, self._leader = False, leader
        if was_missing or (before is not None and leader != before):
            return [ShowNotice(f"the master {leader} leads now" if leader else "a master leads again")]
        return []

    def _waiting(self, view: ApplicationView) -> list[Effect]:
        why = (view.why or "").strip().partition("\n")[0]  # the end of a log may follow
        waits_for = why if why and view.state is ApplicationState.PENDING else None
        if waits_for == self._waits_for:
            return []
        self._waits_for = waits_for
        return [] if waits_for is None else [ShowNotice(f"waiting: {waits_for}")]

    def _leader_missing(self, now_ms: int) -> list[Effect]:
        effects = self._overdue(now_ms)
        if effects or self._leader_is_missing:
            return effects
        self._leader_is_missing = True
        return [ShowNotice("no master leads right now; the application keeps running")]

    def _status_received(self, status: JobStatus, now_ms: int) -> list[Effect]:
        if status.epoch < self._epoch or status.app_id != self.app_id:
            return []
        self._reach(status.epoch)
        is_new = status != self._status
        self._status, self._last_status_ms = status, now_ms
        self._was_lost = False
        if status.state in _FINAL and self._final_ms is None:
            self._final_ms = now_ms
        return [ShowStatus(status)] if is_new else []

    def _app_master_lost(self, app_master: ActorRef) -> list[Effect]:
        is_expected = self._status is not None and self._status.state in _FINAL
        if app_master != self._followed or self._was_lost or is_expected:
            return []
        self._was_lost = True
        return [ShowNotice(f"application master {self._followed_epoch} is gone; waiting for its successor")]

    def _overdue(self, now_ms: int) -> list[Effect]:
        status = self._status
        if status is None or self._final_ms is None or now_ms - self._final_ms < GRACE_MS:
            return []
        why = None if status.error is None else status.error.what
        return [
            ShowNotice("the registry does not answer; showing the final status of the application master"),
            self._end(_FINAL[status.state], why, status),
        ]

    def _reach(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._final_ms = None  # the final status of an earlier application master is not the end
            self._status = None

    def _end(self, state: ApplicationState, why: str | None, status: JobStatus | None) -> ReportEnd:
        self._ended = True
        return ReportEnd(self.app_id, state, why, status if status is not None else self._status)


def status_of(view: ApplicationView) -> JobStatus | None:
    """The final status in the registry, None when there is none; raises PeerViolationError."""
    if view.result is None:
        return None
    try:
        return msgspec.msgpack.decode(view.result, type=JobStatus)
    except msgspec.MsgspecError as error:
        raise PeerViolationError(
            "the result in the registry cannot be read",
            where=view.app_id,
            got=str(error),
            remedy="use the version of Drivetrain that the application ran with",
        ) from error
