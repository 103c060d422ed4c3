"""The invariants that the modules of the kernel state, checked over a whole system.

Problem: a broken invariant shows itself late and elsewhere; a test wants to see it at once.

Design: `check_system` looks at the present state only, from outside; between two callbacks of the loop every
invariant holds. Each is reported with the module that states it and its number there.

Called by `ActorSystem.check`, which tests call at their end and whenever they like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.actor.lifecycle import RESTARTING, RUNNING
from drivetrain.actor.mailbox import check_mailbox
from drivetrain.actor.watch import check_watches
from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.system import ActorSystem


def check_system(system: ActorSystem) -> None:
    """Verify every part of `system`; raises `InternalError` naming the first invariant that is broken."""
    cells = list(system.cells())
    for cell in cells:
        check_cell(cell)
    system.dispatcher.check()
    system.carriers.check()
    system.remote_watches.check(cells)
    system.asks.check()
    system.purgatory.check()
    if len({cell.uid for cell in cells}) != len(cells):
        raise InternalError("system invariant 1: a uid is used twice", where=system.name)
    if system.is_terminated and system.root.is_stopped and (system.asks.open or system.carriers.total):
        raise InternalError("system invariant 2: something outlived the system", where=system.name)


def check_cell(cell: Cell) -> None:
    """Verify one cell against its neighbours; raises `InternalError`."""
    where = str(cell.path)
    if cell.parent is not None and not cell.is_stopped:
        if (cell.parent.children or {}).get(cell.name) is not cell:
            raise InternalError("cell invariant 4: the parent does not know this child", where=where)
        if not cell.parent.is_active and not cell.is_ending:
            raise InternalError("lifecycle invariant 3: it outlives its parent's instance", where=where)
    if cell.is_open != (cell.phase is RUNNING and cell.work is None):
        raise InternalError("lifecycle invariant 4: open and closed at once", where=where)
    if cell.is_open and cell.queue and not cell.scheduled:
        raise InternalError("cell invariant 3: messages wait and no turn comes", where=where)
    holds = (cell.children, cell.work, cell.actor, cell.watchers, cell.watching, cell.timers, cell.pipes)
    if cell.is_stopped and any(part is not None for part in holds):
        raise InternalError("lifecycle invariant 2: it has stopped and still holds on", where=where)
    if cell.phase is RUNNING and (not cell.started or cell.actor is None):
        raise InternalError("lifecycle invariant 1: it runs without having started", where=where)
    if cell.restart_timer is not None and cell.phase is not RESTARTING:
        raise InternalError("lifecycle invariant 1: a restart is due in the wrong phase", where=where)
    check_mailbox(cell)
    check_watches(cell)
    if cell.timers is not None:
        cell.timers.check()
    if cell.supervisor is not None:
        cell.supervisor.check()
