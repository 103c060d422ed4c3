"""The associations of one system, by place.

Problem: every message looks up its association, by an address with one incarnation of the system there; and
peers can name any number of addresses.

Design: associations are kept by place. The association of each address is cached in a table, which is cleared
when it is full, and whenever an association is removed.

Invariants:
1. There is one association per place.
2. At most `MOST_PLACES` associations are created for outgoing messages; those with peers that have proved
   their names are not limited by it.
3. Pruning takes time in proportion to the number of places.

Called by `Remote`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from drivetrain.actor.path import ANY_INCARNATION, Address
from drivetrain.actor.remote.association import Association

MOST_PLACES: Final = 4096
_MOST_ADDRESSES: Final = 4096


class Associations:
    """Associations by place; `make` creates one."""

    def __init__(self, make: Callable[[Address], Association]) -> None:
        self._make: Final = make
        self._associations: Final[dict[Address, Association]] = {}
        self._by_address: Final[dict[Address, Association]] = {}

    def __len__(self) -> int:
        return len(self._associations)

    def __iter__(self) -> Iterator[Association]:
        return iter(self._associations.values())

    def get(self, address: Address) -> Association | None:
        """The association with the place of this address, or None; creates nothing."""
        return self._by_address.get(address) or self._associations.get(_place_of(address))

    def find(self, address: Address) -> Association:
        """The association with the place of this address, created if there is none."""
        association = self._by_address.get(address)
        if association is None:
            place = _place_of(address)
            association = self._associations.get(place)
            if association is None:
                association = self._associations[place] = self._make(place)
            if len(self._by_address) >= _MOST_ADDRESSES:
                self._by_address.clear()
            self._by_address[address] = association
        return association

    def has_room_for(self, address: Address) -> bool:
        """Whether a message may go to this address: there is an association, or one more is allowed."""
        if len(self._associations) < MOST_PLACES or self.get(address) is not None:
            return True
        self.prune()
        return len(self._associations) < MOST_PLACES

    def prune(self) -> None:
        """Remove the places that were unused since the last call, and have nothing to send."""
        unused = [place for place, association in self._associations.items() if association.is_unused()]
        for place in unused:
            del self._associations[place]
        if unused:
            self._by_address.clear()


def _place_of(address: Address) -> Address:
    return Address(address.system, address.host, address.port, ANY_INCARNATION)
