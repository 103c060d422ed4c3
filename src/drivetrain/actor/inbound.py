"""Messages that arrive from other systems, and undeliverable ones that return.

Design: the kernel's own messages (`Watch`, `Unwatch`, `Terminated`, `Identify`) are handled here,
immediately; everything else goes to a mailbox or an ask. No peer's message can raise here: an undeliverable
one becomes a dead letter, and its asker, if any, receives a failure.

Called by the system.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from drivetrain.actor.absent_references import RemoteRef
from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.kernel_messages import (
    Identified,
    Identify,
    Terminated,
    TerminationCause,
    Unwatch,
    Watch,
)
from drivetrain.actor.path import ActorPath
from drivetrain.actor.provider import Envelope, UndeliverableReason
from drivetrain.actor.tree import find_cell
from drivetrain.actor.watch import add_watcher, remote_terminated, remove_watcher

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.system_views import SystemView

_REASONS: Final[Mapping[UndeliverableReason, DeadLetterReason]] = MappingProxyType(
    {
        UndeliverableReason.UNREACHABLE: DeadLetterReason.UNREACHABLE,
        UndeliverableReason.STALE: DeadLetterReason.STALE,
        UndeliverableReason.QUEUE_FULL: DeadLetterReason.MAILBOX_FULL,
        UndeliverableReason.STOPPED: DeadLetterReason.UNREACHABLE,
    }
)

_KERNEL: Final[frozenset[type]] = frozenset({Watch, Unwatch, Terminated, Identify})


def deliver(system: SystemView, root: Cell, envelope: Envelope) -> None:
    """Deliver a message from another system to the actors below `root`."""
    target, message = envelope.target, envelope.message
    sender = None if envelope.sender is None else system.reference(envelope.sender)
    if type(message) in _KERNEL:
        _handle(system, root, target, message, sender)
    elif target.address != system.address:
        system.dead_letters.put(message, sender, target, DeadLetterReason.STALE)
    else:
        system.reference(target).tell(message, sender)


def return_undelivered(system: SystemView, envelope: Envelope, reason: UndeliverableReason) -> None:
    """Make a dead letter of an unsent message; the kernel's own requests are repeated elsewhere."""
    if isinstance(envelope.message, Watch | Unwatch):
        return
    sender = None if envelope.sender is None else system.reference(envelope.sender)
    system.dead_letters.put(envelope.message, sender, envelope.target, _REASONS[reason])


def _handle(
    system: SystemView, root: Cell, target: ActorPath, message: object, sender: ActorRef | None
) -> None:
    cell = find_cell(root, target) if target.address.matches(system.address) else None
    match message:
        case Identify():
            if sender is not None:
                sender.tell(Identified(None if cell is None else cell.ref))
        case Watch(watcher):
            if not isinstance(watcher, RemoteRef):
                return
            if cell is None:
                watcher.tell(Terminated(system.reference(target), TerminationCause.NEVER_EXISTED))
            else:
                add_watcher(cell, watcher)
        case Unwatch(watcher):
            if cell is not None and isinstance(watcher, RemoteRef):
                remove_watcher(cell, watcher)
        case Terminated():
            if cell is not None:
                remote_terminated(cell, message)
