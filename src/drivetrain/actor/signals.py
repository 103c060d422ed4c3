"""The mailbox entries that the kernel handles itself, in their turn.

Design: for each class of entry, a function that returns the message for the actor, or None when there is
none. An exception in it is a failure of the actor.

Called by cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from drivetrain.actor import lifecycle
from drivetrain.actor.dead_letters import DeadLetterReason
from drivetrain.actor.kernel_messages import PoisonPill, Terminated
from drivetrain.actor.mailbox import FailureSignal
from drivetrain.actor.message import Message
from drivetrain.actor.timers import TimerSignal
from drivetrain.actor.watch import take_terminated

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell


def _take_poison(cell: Cell, message: Any) -> None:
    if cell.is_guardian:
        # Any holder of a reference may stop an actor; only its owner stops the system.
        cell.system.dead_letters.put(message, cell.sender, cell.ref.path, DeadLetterReason.UNHANDLED)
    else:
        lifecycle.stop(cell, interrupt=False)


def _take_terminated(cell: Cell, message: Any) -> Message | None:
    return take_terminated(cell, message)


def _take_timer(cell: Cell, signal: Any) -> Message | None:
    return None if cell.timers is None else cell.timers.take(signal)


def _take_failure(_cell: Cell, signal: Any) -> Message | None:
    raise signal.error


# The entries that the kernel handles itself: each function returns the message for the actor, or None.
SIGNALS: Final[dict[type, Callable[[Cell, Any], Message | None]]] = {
    PoisonPill: _take_poison,
    Terminated: _take_terminated,
    TimerSignal: _take_timer,
    FailureSignal: _take_failure,
}
