"""Checks the invariants of the kernel's modules over a whole system.

Problem: a broken invariant becomes visible late and elsewhere; a test must find it at once.

Design: `check_cells` looks at the current state only, from outside; between two callbacks of the loop every
invariant holds. Each is reported with the module that states it and its number there.

Called by `ActorSystem.check`, which tests call at their end and at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.actor.cell import RESTARTING, RUNNING
from drivetrain.actor.mailbox import KERNEL_ENTRIES
from drivetrain.actor.watch import check_remote_watches, check_watches
from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.system_views import KernelView


def check_cells(system: KernelView, cells: list[Cell]) -> None:
    """Verify all cells of `system` and what they share; raises `InternalError` naming what is broken."""
    for cell in cells:
        check_cell(cell)
    system.dispatcher.check()
    system.carriers.check()
    check_remote_watches(system.remote_watches, cells)
    if len({cell.uid for cell in cells}) != len(cells):
        raise InternalError("system invariant 1: a uid is used twice", where=system.name)


def check_cell(cell: Cell) -> None:
    """Verify one cell against its neighbours; raises `InternalError`."""
    where = str(cell.path)
    if cell.parent is not None and not cell.is_stopped:
        if (cell.parent.children or {}).get(cell.name) is not cell:
            raise InternalError("cell invariant 1: the parent does not know this child", where=where)
        if not cell.parent.is_active and not cell.is_ending:
            raise InternalError("lifecycle invariant 3: it outlives its parent's instance", where=where)
    if cell.is_open != (cell.phase is RUNNING and cell.work is None):
        raise InternalError("lifecycle invariant 4: open and closed at once", where=where)
    if cell.is_open and cell.queue and not cell.scheduled:
        raise InternalError("turns invariant 3: messages wait and no turn comes", where=where)
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


def check_mailbox(cell: Cell) -> None:
    """Verify the invariants of one cell's mailbox; raises `InternalError`."""
    entries = [*(cell.queue or ()), *(cell.stashed or ())]
    ordinary = sum(not isinstance(entry, KERNEL_ENTRIES) for entry in entries)
    where = str(cell.path)
    if cell.is_ending and entries:
        raise InternalError("mailbox invariant 1: a stopping actor has messages", where=where)
    if ordinary > cell.capacity + 1:
        raise InternalError(
            f"mailbox invariant 2: {ordinary} messages, capacity {cell.capacity}", where=where
        )
    expected = 0 if cell.is_ending else cell.capacity - len(cell.stashed or ())
    if cell.limit != expected:
        raise InternalError(f"mailbox invariant 2: limit {cell.limit}, expected {expected}", where=where)
