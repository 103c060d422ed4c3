"""A message from another system, as a guard sees it.

A guard is a function of `RemoteSettings`: it receives each valid message (known class, right fields) of a
peer before it is delivered, and returns the reason to refuse it, or None. The peer's address is proven by its
key, so a guard can rely on the name of its system.

Called by `Remote`; the guard of a cluster is `drivetrain.cluster.access.permissions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from drivetrain.actor.message import Message
from drivetrain.actor.path import ActorPath, Address


@dataclass(frozen=True, slots=True)
class InboundMessage:
    """A message of `peer` for `target`, here; `sender` is where an answer goes, perhaps to a third system."""

    peer: Address
    target: ActorPath
    sender: ActorPath | None
    message: Message


Guard: TypeAlias = Callable[[InboundMessage], str | None]
"""Returns the reason to refuse a message; None to accept it."""
