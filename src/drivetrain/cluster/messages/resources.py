"""Application master and leading master: slots for executors."""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import Priority
from drivetrain.cluster.messages.numbers import Count, DurationMs, Slots


class RequestSlots(Message, frozen=True, tag="cluster.request-slots"):
    """Requests `slots` of one worker; sent, not asked.

    `requester` later gets `SlotsAllocated` or `SlotsRefused`. Sent again with the same `request_id`, it is
    the same request.

    `policy` is the placement policy's name (`spread`, `pack`, `locality`, or a registered one), `hosts` are
    the preferred hosts or worker names, for locality; `worker` requires one particular worker.
    """

    request_id: str
    app_id: str
    epoch: Count
    slots: Slots
    requester: ActorRef
    priority: Priority = Priority.NORMAL
    policy: str = "spread"
    hosts: tuple[str, ...] = ()
    worker: str | None = None
    timeout_ms: DurationMs = 120_000


class SlotsAllocated(Message, frozen=True, tag="cluster.slots-allocated"):
    """A worker's slots are reserved: launch there with `allocation_id` within a minute, or lose them."""

    request_id: str
    allocation_id: str
    worker_id: str
    worker_name: str
    host: str
    worker: ActorRef
    slots: Slots


class SlotsRefused(Message, frozen=True, tag="cluster.slots-refused"):
    """No slots became free in time, or never can: `no-slots`, `too-many-slots` or `stale-epoch`."""

    request_id: str
    code: str
    why: str


class CancelRequest(Message, frozen=True, tag="cluster.cancel-request"):
    """Cancels a request; slots allocated to it become free. Sent, not asked."""

    request_id: str
    app_id: str
