"""Looking actors up by their path.

Design: a path of this system is followed from the root; for any other one, whoever is there is asked to name
itself.

Called by the system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drivetrain.actor.actor_errors import ActorNotFoundError, AskTimeoutError, LookupTimeoutError
from drivetrain.actor.kernel_messages import Identified, Identify
from drivetrain.actor.path import SCHEME, ActorPath
from drivetrain.actor.remote_reference import RemoteRef
from drivetrain.actor.tree import find_cell
from drivetrain.config.catalog import actor as keys

if TYPE_CHECKING:
    from drivetrain.actor.cell import Cell
    from drivetrain.actor.reference import ActorRef
    from drivetrain.actor.system_views import KernelView


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
