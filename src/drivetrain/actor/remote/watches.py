"""The open watches on actors of other systems, by system.

Called by `Remote`, which sends a `Watch` for each again with every new session.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from drivetrain.actor.path import Address

if TYPE_CHECKING:
    from drivetrain.actor.reference import ActorRef


class OpenWatches:
    """Pairs of target and watcher, in the order of opening."""

    def __init__(self) -> None:
        self._by_address: Final[dict[Address, dict[tuple[ActorRef, ActorRef], None]]] = {}

    def open(self, target: ActorRef, watcher: ActorRef) -> None:
        """Record a watch."""
        self._by_address.setdefault(target.path.address, {})[target, watcher] = None

    def close(self, target: ActorRef, watcher: ActorRef) -> bool:
        """Forget a watch; returns whether it was open."""
        address = target.path.address
        pairs = self._by_address.get(address, {})
        if (target, watcher) not in pairs:
            return False
        del pairs[target, watcher]
        if not pairs:
            del self._by_address[address]
        return True

    def end(self, address: Address) -> None:
        """Forget all watches on a system."""
        self._by_address.pop(address, None)

    def of(self, address: Address) -> Iterator[tuple[ActorRef, ActorRef]]:
        """The watches on a system: target and watcher."""
        return iter(list(self._by_address.get(address, ())))

    def is_watching(self, address: Address) -> bool:
        """Whether any actor of that system is watched."""
        return address in self._by_address
