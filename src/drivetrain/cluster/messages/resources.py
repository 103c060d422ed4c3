"""Application master and leading master: slots for executors."""

from __future__ import annotations

from drivetrain.actor import ActorRef, Message
from drivetrain.cluster.messages.applications import Priority
from drivetrain.cluster.messages.numbers import Count, DurationMs, Slots


class RequestSlots(Message, frozen=True, tag="cluster.request-slots"):
    """Asks for `slots` of one worker; told, not asked. Answered by `SlotsAllocated` or `SlotsRefused`, told
    to `requester`. Sent again with the same `request_id` it is the same request.

    `policy` is the placement policy's name (`spread`, `pack`, `locality`, or a registered one), `hosts` are
    the preferred hosts or worker names, for locality; `worker` demands that very worker.
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
    """Slots are held on a worker: launch there, naming `allocation_id`, within a minute, or they are free."""

    request_id: str
    allocation_id: str
    worker_id: str
    worker_name: str
    host: str
    worker: ActorRef
    slots: Slots


class SlotsRefused(Message, frozen=True, tag="cluster.slots-refused"):
    """There were none in time, or never can be: `code` is `no-slots`, `too-many-slots` or `stale-epoch`."""

    request_id: str
    code: str
    why: str


class CancelRequest(Message, frozen=True, tag="cluster.cancel-request"):
    """The request is not needed any more; slots that it got are free. Told."""

    request_id: str
    app_id: str
