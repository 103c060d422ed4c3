"""The watches between this system and others, by the other's address.

Problem: a system can die as a whole. All watches to and from it must then be found without visiting every
cell.

Design: two indexes of pairs of references, a remote one and a local one. `watch` defines what a watch means
and who is notified.

Called by `watch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from drivetrain.actor.path import Address
    from drivetrain.actor.reference import ActorRef

_Index: TypeAlias = "dict[Address, dict[ActorRef, dict[ActorRef, None]]]"
"""The remote reference's address -> the remote reference -> the local ones."""
_Pairs: TypeAlias = "set[tuple[ActorRef, ActorRef]]"


class RemoteWatches:
    """The open watches of one system that cross its border."""

    __slots__ = ("_inbound", "_outbound")

    def __init__(self) -> None:
        self._outbound: Final[_Index] = {}
        self._inbound: Final[_Index] = {}

    @property
    def open(self) -> int:
        """How many watches from here to other systems are open."""
        return sum(len(watchers) for targets in self._outbound.values() for watchers in targets.values())

    @property
    def outbound(self) -> _Pairs:
        """The pairs (remote target, local watcher)."""
        return _pairs(self._outbound)

    @property
    def inbound(self) -> _Pairs:
        """The pairs (remote watcher, local target)."""
        return _pairs(self._inbound)

    def add_outbound(self, target: ActorRef, watcher: ActorRef) -> None:
        """The local `watcher` watches `target`."""
        _add(self._outbound, target, watcher)

    def remove_outbound(self, target: ActorRef, watcher: ActorRef) -> bool:
        """End it; returns whether it was open."""
        return _remove(self._outbound, target, watcher)

    def add_inbound(self, watcher: ActorRef, target: ActorRef) -> None:
        """The local `target` is watched by `watcher`."""
        _add(self._inbound, watcher, target)

    def remove_inbound(self, watcher: ActorRef, target: ActorRef) -> bool:
        """End it; returns whether it was open."""
        return _remove(self._inbound, watcher, target)

    def end_address(
        self, address: Address
    ) -> tuple[list[tuple[ActorRef, ActorRef]], list[tuple[ActorRef, ActorRef]]]:
        """Drop all watches of a dead system; returns the pairs that were open, outbound and inbound."""
        return _drop(self._outbound, address), _drop(self._inbound, address)


def _add(index: _Index, remote: ActorRef, local: ActorRef) -> None:
    index.setdefault(remote.path.address, {}).setdefault(remote, {})[local] = None


def _remove(index: _Index, remote: ActorRef, local: ActorRef) -> bool:
    address = remote.path.address
    by_remote = index.get(address, {})
    ours = by_remote.get(remote, {})
    if local not in ours:
        return False
    del ours[local]
    if not ours:
        del by_remote[remote]
        if not by_remote:
            del index[address]
    return True


def _drop(index: _Index, address: Address) -> list[tuple[ActorRef, ActorRef]]:
    return [(remote, local) for remote, ours in index.pop(address, {}).items() for local in ours]


def _pairs(index: _Index) -> _Pairs:
    return {
        (remote, local)
        for by_remote in index.values()
        for remote, ours in by_remote.items()
        for local in ours
    }
