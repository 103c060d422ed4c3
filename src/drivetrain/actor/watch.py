"""DeathWatch: a notification, exactly once, that an actor has terminated.

Problem: an actor that depends on another must learn of its end however it ends: it stops, its parent stops,
its process is killed, its machine is unreachable. The notification must not come twice, nor after `unwatch`.

Design: a cell keeps the actors it watches (`watching`) and those that watch it (`watchers`). Among cells of
one system both are changed in the same step. For other systems, `RemoteWatches` keeps an index by address and
calls the provider. A `Terminated` waits in the watcher's mailbox like any message, after those that the
watched actor had sent before. In its turn the actor receives it only if the watch is still open, and that
closes the watch.

Invariants:
1. Watcher and watched agree: `t in w.watching` if and only if `w in t.watchers`, or `t` has stopped and a
   `Terminated` waits in the mailbox of `w`.
2. An open watch leads to exactly one `Terminated`, or is closed by `unwatch`, a stop or a restart.
3. The index of remote watches holds exactly the remote entries of all cells (without those whose `Terminated`
   waits already), and nothing of an address that was declared dead.

Called by cells, `Context` and the system.
Source: Akka's DeathWatch; Flink relies on it to find dead workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.actor.absent_references import RemoteRef
from drivetrain.actor.actor_errors import ContextError
from drivetrain.actor.cell import LocalRef
from drivetrain.actor.kernel_messages import Terminated, TerminationCause
from drivetrain.errors import InternalError

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.path import Address
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.remote_watches import RemoteWatches


def watch(cell: Cell, target: ActorRef) -> None:
    """Open a watch; no effect when it is open already. Raises `ContextError` when an actor watches itself."""
    if target == cell.ref:
        raise ContextError("an actor cannot watch itself", where=str(cell.path))
    if not cell.is_active:
        raise ContextError("an actor that stops or restarts cannot watch", where=str(cell.path))
    if cell.watching is None:
        cell.watching = {}
    elif target in cell.watching:
        return
    cell.watching[target] = None
    system = cell.system
    if isinstance(target, LocalRef) and not target.cell.is_stopped:
        add_watcher(target.cell, cell.ref)
    elif not isinstance(target, RemoteRef):
        known = isinstance(target, LocalRef)
        cell.put_signal(
            Terminated(target, TerminationCause.STOPPED if known else TerminationCause.NEVER_EXISTED)
        )
    elif system.provider is None:
        cell.put_signal(Terminated(target, TerminationCause.UNREACHABLE))
    else:
        system.remote_watches.add_outbound(target, cell.ref)
        system.provider.watch(target, cell.ref)


def unwatch(cell: Cell, target: ActorRef) -> None:
    """Close a watch: the actor no longer receives a `Terminated` of `target`. No effect when none is open."""
    if cell.watching is not None and target in cell.watching:
        del cell.watching[target]
        _detach(cell, target)


def unwatch_all(cell: Cell) -> None:
    """Close every watch of a cell that stops or restarts."""
    watching, cell.watching = cell.watching, None
    for target in watching or ():
        _detach(cell, target)


def add_watcher(cell: Cell, watcher: ActorRef) -> None:
    """Record that `watcher`, local or remote, watches this living cell."""
    if cell.watchers is None:
        cell.watchers = {}
    cell.watchers[watcher] = None
    if _is_remote(watcher):
        cell.system.remote_watches.add_inbound(watcher, cell.ref)


def remove_watcher(cell: Cell, watcher: ActorRef) -> None:
    """Record that `watcher` no longer watches this cell."""
    if cell.watchers is not None:
        cell.watchers.pop(watcher, None)
    if _is_remote(watcher):
        cell.system.remote_watches.remove_inbound(watcher, cell.ref)


def notify_watchers(cell: Cell) -> None:
    """Send `Terminated` to every watcher of a cell that has just stopped."""
    watchers, cell.watchers = cell.watchers, None
    for watcher in watchers or ():
        terminated = Terminated(cell.ref)
        if isinstance(watcher, LocalRef):
            watcher.cell.put_signal(terminated)
        else:
            cell.system.remote_watches.remove_inbound(watcher, cell.ref)
            watcher.tell(terminated)


def remote_terminated(cell: Cell, terminated: Terminated) -> None:
    """Handle a `Terminated` from another system; without an open watch it is dropped."""
    system = cell.system
    if system.remote_watches.remove_outbound(terminated.actor, cell.ref):
        if system.provider is not None:
            system.provider.unwatch(terminated.actor, cell.ref)
        cell.put_signal(terminated)


def system_terminated(remote_watches: RemoteWatches, address: Address) -> None:
    """End all watches to and from a dead system, notifying its local watchers."""
    outbound, inbound = remote_watches.end_address(address)
    for watcher, target in inbound:
        if isinstance(target, LocalRef) and target.cell.watchers is not None:
            target.cell.watchers.pop(watcher, None)
    for target, watcher in outbound:
        if isinstance(watcher, LocalRef):
            watcher.cell.put_signal(Terminated(target, TerminationCause.UNREACHABLE))


def take_terminated(cell: Cell, terminated: Terminated) -> Terminated | None:
    """Close the watch when its `Terminated` is handled; None when it was closed before."""
    if cell.watching is None or terminated.actor not in cell.watching:
        return None
    del cell.watching[terminated.actor]
    return terminated


def has_terminated(cell: Cell, target: ActorRef) -> bool:
    """Whether a `Terminated` of `target` waits in the cell's mailbox."""
    entries = (*(cell.queue or ()), *(cell.stashed or ()))
    return any(isinstance(entry, Terminated) and entry.actor == target for entry in entries)


def check_watches(cell: Cell) -> None:
    """Verify invariant 1 for one cell; raises `InternalError`."""
    where = str(cell.path)
    for target in cell.watching or ():
        if isinstance(target, LocalRef) and not target.cell.is_stopped:
            if cell.ref not in (target.cell.watchers or ()):
                raise InternalError(f"watch invariant 1: {target} does not know its watcher", where=where)
        elif not isinstance(target, RemoteRef) and not has_terminated(cell, target):
            raise InternalError(f"watch invariant 1: no message reports the end of {target}", where=where)
    for watcher in cell.watchers or ():
        if isinstance(watcher, LocalRef) and cell.ref not in (watcher.cell.watching or ()):
            raise InternalError(f"watch invariant 1: {watcher} does not watch", where=where)


def check_remote_watches(index: RemoteWatches, cells: list[Cell]) -> None:
    """Verify invariant 3 against all cells; raises `InternalError`."""
    watching = {
        (target, cell.ref): cell for cell in cells for target in cell.watching or () if _is_remote(target)
    }
    watched = {
        (watcher, cell.ref) for cell in cells for watcher in cell.watchers or () if _is_remote(watcher)
    }
    outbound = index.outbound
    for pair, cell in watching.items():
        if pair not in outbound and not has_terminated(cell, pair[0]):
            raise InternalError(f"watch invariant 3: {pair[0]} is not in the index", where=str(cell.path))
    if outbound - watching.keys() or index.inbound != watched:
        raise InternalError("watch invariant 3: the index and the cells disagree")


def _detach(cell: Cell, target: ActorRef) -> None:
    if isinstance(target, LocalRef):
        if not target.cell.is_stopped:
            remove_watcher(target.cell, cell.ref)
    elif cell.system.remote_watches.remove_outbound(target, cell.ref) and cell.system.provider is not None:
        cell.system.provider.unwatch(target, cell.ref)


def _is_remote(ref: ActorRef) -> bool:
    return isinstance(ref, RemoteRef)
