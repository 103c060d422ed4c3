"""The positions of a channel's subscribers, and the first entries that they may read again.

    positions/<subscriber>            the number of the entry that the subscriber reads next
    needs/<subscriber>                the first entry that it may read again, if there is such a reason

Each file is written only by its subscriber, and replaced in one step. A power cut may leave an empty one:
then the subscriber counts as one that has read nothing, so nothing it needs is deleted.

Called by `store`.
"""

from __future__ import annotations

from drivetrain.core.channel.channel_log import SubscriberId
from drivetrain.runtime.channel.files import ChannelFiles

POSITIONS = "positions"
NEEDS = "needs"


class SubscriberPositions:
    """The positions of all subscribers of one channel."""

    def __init__(self, files: ChannelFiles) -> None:
        self.files = files
        self._subscribed: set[str] = set()
        self._needed: dict[str, int | None] = {}

    def positions(self) -> dict[SubscriberId, int]:
        """The position of every subscriber that has recorded one: the entry that it reads next."""
        found: dict[SubscriberId, int] = {}
        for name in self.files.names(POSITIONS):
            if not name.startswith("."):
                text = self.files.read(f"{POSITIONS}/{name}").to_pybytes()
                # A power cut may leave an empty file; a subscriber without a position keeps all entries.
                found[SubscriberId(name)] = int(text) if text else 0
        return found

    def record_position(self, subscriber: str, position: int) -> None:
        """Record that `subscriber` has read the entries below `position`."""
        if subscriber not in self._subscribed:
            # Only this subscriber knows that an earlier process of it, which left half-written files, is
            # dead.
            for name in self.files.names(POSITIONS):
                if name.startswith(f".{subscriber}.") and name.endswith(".tmp"):
                    self.files.delete(f"{POSITIONS}/{name}")
            self._subscribed.add(subscriber)
        self.files.replace(f"{POSITIONS}/{subscriber}", str(position).encode())

    def position_of(self, subscriber: str) -> int:
        """The position that a subscriber has recorded, 0 if none."""
        return self.positions().get(SubscriberId(subscriber), 0)

    def record_need(self, subscriber: str, entry: int | None) -> None:
        """Record that `subscriber` may read again from `entry` on, or reads nothing again (None)."""
        if subscriber in self._needed and self._needed[subscriber] == entry:
            return
        if entry is not None:
            self.files.replace(f"{NEEDS}/{subscriber}", str(entry).encode())
        elif subscriber in self.files.names(NEEDS):
            self.files.delete(f"{NEEDS}/{subscriber}")
        self._needed[subscriber] = entry

    def held(self, spare: int = 1) -> dict[SubscriberId, int]:
        """The first entry that must be kept for each subscriber, because it has not read it or may read it
        again.

        `spare` entries before that are kept too: their clock is the one with which the next batch began.
        """
        found = self.positions()
        for name in self.files.names(NEEDS):
            if name in found:
                text = self.files.read(f"{NEEDS}/{name}").to_pybytes()
                found[SubscriberId(name)] = min(found[SubscriberId(name)], int(text) if text else 0)
        return {subscriber: max(0, position - spare) for subscriber, position in found.items()}

    def forget_subscriber(self, subscriber: str) -> None:
        """Forget a subscriber that is gone for good."""
        self.files.delete(f"{POSITIONS}/{subscriber}")
