"""The life of an actor: its phases and the transitions between them.

Problem: starting, stopping and restarting take time, since hooks may wait and children must end first, and
meanwhile anything can happen: the parent stops too, a sibling's failure restarts both, a hook fails.

Design: a cell is in one `Phase`; `TRANSITIONS` lists which may follow. An event (`stop`, `restart`) changes
the phase at once, passes it on to the children, and runs no user code. The work of the new phase is done in
the cell's own turn (`turns`), as far as possible each time: it depends on the state, not on how the state
came about, so a turn may come too often but never too late.

Hooks, and when they run:

- `pre_start`, or `post_restart(cause)` instead after a failure: on a new instance, before its first message.
- `pre_restart(cause)`: on the instance to be replaced, after its children have stopped.
- `post_stop`: on the last instance, after its children have stopped.

The last two run exactly for those instances whose first hook succeeded, as with `async with`. A failure in
them is logged; the restart or stop continues.

Invariants:
1. Phases follow `TRANSITIONS`; an event that is not possible raises and changes nothing.
2. A cell that is restarting or stopping leaves its phase only without children and without running work.
3. All children of a cell that restarts or stops are stopping.
4. Only a running cell without running work accepts messages.

Called by cells' turns, `Context`, supervision and the system.
Source: Akka's actor life cycle. Here children always stop with a restart, and a child's failure is decided in
the same step in which it happens, so there is no suspended phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from drivetrain.actor.actor_errors import ActorStateError
from drivetrain.actor.cell import RESTARTING, RUNNING, STARTING, STOPPED, STOPPING, Cell, Phase
from drivetrain.actor.watch import unwatch_all

TRANSITIONS: Final[Mapping[Phase, tuple[Phase, ...]]] = MappingProxyType(
    {
        STARTING: (RUNNING, RESTARTING, STOPPING),
        RUNNING: (RESTARTING, STOPPING),
        RESTARTING: (STARTING, STOPPING),
        STOPPING: (STOPPED,),
        STOPPED: (),
    }
)


def enter(cell: Cell, phase: Phase) -> None:
    """Move the cell to `phase`; raises `ActorStateError` when that cannot follow."""
    if phase not in TRANSITIONS[cell.phase]:
        raise ActorStateError(
            f"an actor that is {cell.phase.value} cannot become {phase.value}", where=str(cell.path)
        )
    cell.phase = phase
    cell.is_open = phase is RUNNING and cell.work is None


def stop(cell: Cell, *, interrupt: bool) -> None:
    """Begin to stop the cell and everything below it; no effect when it is stopping already.

    Waiting messages become dead letters. With `interrupt` a handler that waits for something is
    cancelled; without, it is finished first (for actors that stop themselves).
    """
    if cell.phase is STOPPED:
        return
    if cell.phase is not STOPPING:
        _leave(cell, STOPPING)
        cell.close_mailbox()
    if interrupt:
        cell.interrupt()


def restart(cell: Cell, cause: BaseException, delay_ms: int) -> None:
    """Begin to replace the actor's instance, the new one starting no sooner than in `delay_ms`.

    Waiting messages stay, stashed ones come first again. Timers, watches and children of the old
    instance end. For a cell that is stopping nothing changes.
    """
    if cell.phase in (STOPPING, STOPPED):
        return
    if cell.phase is not RESTARTING:
        cell.restart_cause = cause
        _leave(cell, RESTARTING)
        cell.unstash()
        cell.interrupt()
    loop = cell.system.loop
    due_s = loop.time() + delay_ms / 1000
    if delay_ms > 0 and (cell.restart_timer is None or cell.restart_timer.when() < due_s):
        if cell.restart_timer is not None:
            cell.restart_timer.cancel()
        cell.restart_timer = loop.call_at(due_s, _restart_due, cell, context=cell.system.async_context)


def started(cell: Cell) -> None:
    """Record that the first hook of the instance has succeeded."""
    cell.started = True
    if cell.phase is STARTING:
        cell.restart_cause = None
        enter(cell, RUNNING)


def _leave(cell: Cell, phase: Phase) -> None:
    """End what belongs to the current instance, except its running work; its children stop."""
    enter(cell, phase)
    if cell.restart_timer is not None:
        cell.restart_timer.cancel()
        cell.restart_timer = None
    if cell.timers is not None:
        cell.timers.cancel_all()
        cell.timers = None
    if cell.pipes is not None:
        pipes, cell.pipes = cell.pipes, None
        for pipe in pipes:
            pipe.cancel()
    unwatch_all(cell)
    if cell.children:
        for child in list(cell.children.values()):
            stop(child, interrupt=True)
    cell.schedule()


def _restart_due(cell: Cell) -> None:
    cell.restart_timer = None
    cell.schedule()
