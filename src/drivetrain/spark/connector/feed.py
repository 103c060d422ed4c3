"""The feed of a push source: rows that come once, and are stored before they are processed.

Problem: such sources cannot deliver the same rows again from a position, they block their reader, and some
want to know when they may forget a row.

Design: a feed is opened once, with the number of rows that are already stored, and yields one row after the
other in an ingestion thread. `close` makes a blocked read return where that is possible.

Invariants of an implementation:

1. `open(skip)` yields row number `skip` first if the feed can repeat its rows, else whatever comes next.
2. The end of the iterator is the end of the stream: nothing will ever follow.
3. A feed that acknowledges rows to their sender does it in `acknowledge`, when they are stored.

Called by `spark.channel.ingest_threads`; implemented by connectors.

Source: Apache Gearpump's source-end message store, for sources that cannot replay.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator


class Feed(ABC):
    """A stream of rows that is read once. `ends_on_close`: after `close` the iterator ends without help."""

    ends_on_close: ClassVar[bool]
    wait_ms: ClassVar[int] = 100
    """How long rows may wait for more before they are stored."""

    @abstractmethod
    def open(self, skip: int) -> Iterator[Any]:
        """Yield the rows after the first `skip`, as far as this feed can repeat them."""

    @abstractmethod
    def close(self) -> None:
        """Make a blocked read return, if possible; the iterator may then end or raise."""

    def acknowledge(self, stored: int) -> None:  # noqa: B027 - most feeds do not acknowledge
        """The first `stored` rows, counted with those that `open` skipped, are stored durably.

        Called in the thread that stores rows, often, also with the same number again.
        """

    def release(self) -> None:  # noqa: B027 - most feeds have released everything by then
        """Give up what the feed still holds: no row will be read or stored any more."""
