"""A message that came from another system, as a guard judges it.

A guard is a function of `RemoteSettings`: it is given each message that a peer sent and that is one (known
class, right fields), before anybody here gets it, and says why it must not arrive, or None. The peer's
address is proven by its key: in a guard's eyes the name of its system says who it is.

Called by `Remote`; the guard of a cluster is `drivetrain.cluster.access.permissions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from drivetrain.actor.message import Message
from drivetrain.actor.path import ActorPath, Address


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message of `peer` for `target`, here; `sender` is where an answer goes, perhaps to a third system."""

    peer: Address
    target: ActorPath
    sender: ActorPath | None
    message: Message


Guard: TypeAlias = Callable[[Arrival], str | None]
"""Says why a message must not arrive; None when it may."""
