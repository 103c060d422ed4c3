"""The tree of cells: starting and removing children, and finding actors.

Design: a path of this system is followed from the root; for a path of another system, the actor there is
asked for its reference.

Invariant: a name belongs to one child of a parent at a time, also while that child stops.

Called by `Context`, by cells that stop, and by the system.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drivetrain.actor.absent_references import RemoteRef
from drivetrain.actor.actor_errors import (
    ActorNotFoundError,
    AskTimeoutError,
    ContextError,
    InvalidPathError,
    LookupTimeoutError,
    NameTakenError,
    SystemStoppedError,
)
from drivetrain.actor.kernel_messages import Identified, Identify
from drivetrain.actor.path import ANY_UID, SCHEME, ActorPath, is_actor_name
from drivetrain.config.catalog import actor as keys
from drivetrain.core.liveness.supervision import ChildName

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.receiver import Factory
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.system_views import KernelView


def start_child(parent: Cell, factory: Factory, name: str | None, capacity: int | None) -> Cell:
    """Start a child of `parent`, a cell of the same kind; see `Context.spawn`."""
    if not parent.is_active:
        error = SystemStoppedError if parent.is_guardian else ContextError
        raise error("no actor can be started here any more: its parent stops", where=str(parent.path))
    system = parent.system
    uid = system.next_uid()
    if name is None:
        name = f"${uid}"
    elif name.startswith("$") or not is_actor_name(name):
        raise InvalidPathError(
            "not a name for an actor",
            where=str(parent.path),
            expected='letters, digits and _.+=,:@~-, beginning with a letter, digit or "_"',
            got=repr(name),
        )
    if capacity is not None and capacity < 1:
        raise ContextError(
            "a mailbox needs space for at least one message", where=name, got=f"capacity {capacity}"
        )
    if parent.children is None:
        parent.children = {}
    elif name in parent.children:
        raise NameTakenError(
            f"there is a child named {name!r} already",
            where=str(parent.path),
            remedy="wait for its Terminated if it is stopping, or choose another name",
        )
    room = system.mailbox_capacity if capacity is None else capacity
    child = parent.children[name] = type(parent)(system, parent, name, uid, factory, room)
    child.schedule()
    return child


def forget_child(parent: Cell, child: Cell) -> None:
    """Remove a stopped child; its name is free again."""
    assert parent.children is not None
    del parent.children[child.name]
    if parent.supervisor is not None:
        parent.supervisor.forget(ChildName(child.name))
    if not parent.children:
        parent.children = None
        if not parent.is_active:
            parent.schedule()


def find_cell(root: Cell, path: ActorPath) -> Cell | None:
    """Return the living cell at `path`, whatever its address; None if another has its name now."""
    cell = root
    for name in path.names:
        child = (cell.children or {}).get(name)
        if child is None:
            return None
        cell = child
    return cell if path.uid in (ANY_UID, cell.uid) and not cell.is_stopped else None


def cells_below(root: Cell) -> Iterator[Cell]:
    """Yield `root` and every cell below it, parents first."""
    line = [root]
    for cell in line:
        yield cell
        line.extend((cell.children or {}).values())


async def lookup(system: KernelView, root: Cell, path: str, timeout_ms: int | None) -> ActorRef:
    """Find the actor at `path` now, in the tree below `root` or elsewhere; see `ActorSystem.lookup`."""
    parsed = ActorPath.parse(f"{system.address}{path}" if not path.startswith(SCHEME) else path)
    if parsed.address.matches(system.address):
        cell = find_cell(root, parsed)
        found: ActorRef | None = None if cell is None else cell.ref
    else:
        if timeout_ms is None:
            timeout_ms = system.config[keys.LOOKUP_TIMEOUT]
        try:
            answer = await RemoteRef(system, parsed).ask(Identify(), Identified, timeout_ms=timeout_ms)
        except AskTimeoutError as error:
            raise LookupTimeoutError(
                f"the system at this address did not answer within {timeout_ms} ms",
                where=path,
                remedy="check that it runs, and that its host and port are right",
            ) from error
        found = answer.actor
    if found is None:
        raise ActorNotFoundError("there is no actor at this path", where=path)
    return found
