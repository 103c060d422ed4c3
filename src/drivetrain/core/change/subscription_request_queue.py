"""Which of the subscriptions that other applications ask for an application begins, ends or refuses.

Problem: a reader and the application that it wants to read start, die and restart independently. A reader
that is gone must not get a subscription, which the application would keep messages for, for ever; and one
that is slow to note its subscription must not get a second one.

Design: a reader chooses the key of its subscription, and asks again and again, counting (`beat`). The desk is
shown all requests, and the subscriptions in force, every now and then. It begins the subscription of a reader
that has counted on since the desk has first seen its request: so it lives. No clocks are compared. Whether a
request is fulfilled is read from the subscriptions in force alone, so it does not matter which process asked
for the change, or whether its answer arrived.

Invariants:

1. One change is under way at a time.
2. No subscription begins for a reader that has not asked again since the desk has seen its request.
3. A request that is fulfilled, or was refused, changes nothing.

Called by `cluster.app_master.stream.application_subscriptions`, and, for the requests, by
`runtime.subscription_requests`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from drivetrain.core.change.graph_version import SubscriptionRecord
from drivetrain.errors import InternalError

PATIENCE: Final = 5
"""How many looks pass until a change is tried again that could not be made at that time."""


class WantedSubscription(msgspec.Struct, frozen=True):
    """What a reader asks for: the subscription `of`, or, with `ends`, that it ends.

    `beat` grows with each time that the reader asks.
    """

    of: SubscriptionRecord
    beat: int = 0
    ends: bool = False

    @property
    def name(self) -> tuple[str, str]:
        """The processor of the subscription and its key: no two subscriptions have both."""
        return self.of.id, self.of.key

    def is_same(self, other: SubscriptionRecord) -> bool:
        """Whether another subscription of this source is the same but for its key."""
        return msgspec.structs.replace(other, key=self.of.key) == self.of


# ---- events


@dataclass(frozen=True, slots=True)
class RequestsRead:
    """The requests, the subscriptions in force, and the names of requests that were refused."""

    wanted: tuple[WantedSubscription, ...]
    in_force: tuple[SubscriptionRecord, ...]
    refused: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class ChangeApplied:
    """The change that the desk asked for is in force."""


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The change that the desk asked for was refused; `for_good` if it will always be."""

    for_good: bool


Event: TypeAlias = RequestsRead | ChangeApplied | ChangeRefused


# ---- effects


@dataclass(frozen=True, slots=True)
class RequestChange:
    """Begin or end this subscription, by a version of the graph."""

    wanted: WantedSubscription


@dataclass(frozen=True, slots=True)
class ReportRefusal:
    """The reader is to learn why its request was refused."""

    wanted: WantedSubscription


@dataclass(frozen=True, slots=True)
class DropRequest:
    """This subscription has ended, or there was none: the request can go."""

    wanted: WantedSubscription


Effect: TypeAlias = RequestChange | ReportRefusal | DropRequest


class SubscriptionRequestQueue:
    """The requests of one application's readers, as one of its application masters sees them."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], int] = {}  # by name, the beat with which it was seen first
        self._under_way: WantedSubscription | None = None
        self._pauses: dict[tuple[str, str], int] = {}  # how many looks pass until it is tried again

    @property
    def under_way(self) -> WantedSubscription | None:
        """The request whose change was asked for; None: no change is under way."""
        return self._under_way

    def step(self, event: Event) -> list[Effect]:
        """Take an event; returns what to do. Raises InternalError for an answer that nobody asked for."""
        match event:
            case RequestsRead():
                return self._looked(event)
            case ChangeApplied():
                self._ended()
            case ChangeRefused(for_good):
                wanted = self._ended()
                if for_good:
                    return [ReportRefusal(wanted)]
                self._pauses[wanted.name] = PATIENCE
        return []

    def _ended(self) -> WantedSubscription:
        wanted, self._under_way = self._under_way, None
        if wanted is None:
            raise InternalError("wanted subscriptions invariant 1: a change has ended that was not begun")
        return wanted

    def _looked(self, seen: RequestsRead) -> list[Effect]:
        names = {wanted.name for wanted in seen.wanted}
        self._first = {name: beat for name, beat in self._first.items() if name in names}
        self._pauses = {name: left - 1 for name, left in self._pauses.items() if name in names and left > 1}
        if self._under_way is not None:
            return []
        effects: list[Effect] = []
        in_force = {(record.id, record.key) for record in seen.in_force}
        for wanted in sorted(seen.wanted, key=lambda one: one.name):
            if wanted.ends and wanted.name not in in_force:
                effects.append(DropRequest(wanted))
            elif self._is_due(wanted, in_force, seen.refused) and self._under_way is None:
                self._under_way = wanted
                effects.append(RequestChange(wanted))
        return effects

    def _is_due(
        self,
        wanted: WantedSubscription,
        in_force: Collection[tuple[str, str]],
        refused: Collection[tuple[str, str]],
    ) -> bool:
        if wanted.name in refused or wanted.name in self._pauses:
            return False
        if wanted.ends:
            return True
        first = self._first.setdefault(wanted.name, wanted.beat)
        return wanted.name not in in_force and wanted.beat != first

    def check(self, seen: Iterable[WantedSubscription]) -> None:
        """Verify invariants 1 and 2 against the requests that were shown last."""
        wanted = self._under_way
        if wanted is None or wanted.ends:
            return
        beats = {one.name: one.beat for one in seen}
        if beats.get(wanted.name, wanted.beat) < wanted.beat:
            raise InternalError(f"wanted subscriptions invariant 2: {wanted} counts back")
