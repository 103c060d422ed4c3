"""Connects a fragment's query to flow control, for both ends of its channels.

Problem: a query appends, reads, trims, waits and ends in many places. The flow book needs a report of each,
and the query needs the losses that the book detects.

Design: one object per query, between the query and the process's `FlowBook`. It also adds the flow figures to
the progress of a channel.

Invariants:

1. Both ends are in the book before the query's first batch.
2. A loss that was detected by comparing counts stops the query: as `MessageLossError` while none of it is
   committed, which can be repaired; as `UntakenError` when a batch was committed without messages that it
   should have taken, which only the user can resolve.

Called by `fragment_query`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import msgspec

from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.plan.delivery import AT_MOST_ONCE
from drivetrain.core.plan.plan import Fragment, Plan
from drivetrain.errors import DrivetrainError, UserError
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.query_figures import BlockedTime
from drivetrain.spark.batch.query_progress import QueryProgress
from drivetrain.spark.flow.flow_book import FlowBook
from drivetrain.spark.flow.outside_readers import OutsideReaders


class UntakenError(UserError):
    """Spark has committed a batch that took fewer messages than its channel held for it."""

    code = "messages-untaken"
    exit_code = 4


class QueryFlow:
    """The channels of one query, by id: `stores` those that it writes, `readers` those that it reads."""

    def __init__(
        self,
        plan: Plan,
        fragment: Fragment,
        stores: Mapping[str, ChannelStore],
        readers: Mapping[str, ChannelStore],
        book: FlowBook,
        progress: QueryProgress,
    ) -> None:
        self._plan = plan
        self._stores = stores
        self._readers = readers
        self._book = book
        self._progress = progress
        self._counts = _reads_all(plan, fragment)
        self._read = dict.fromkeys(readers, 0)
        self.outside = OutsideReaders(book.keep_bytes, book.notices.append)
        """The channels that other applications read."""

    @property
    def _inside(self) -> list[str]:
        """The channels that fragments of this application read."""
        return [id for id in list(self._stores) if id not in self.outside]

    def switch_to(self, plan: Plan, fragment: Fragment) -> None:
        """Another version of the branches runs from now on; `adds` and `drops` change its channels."""
        self._plan, self._counts = plan, _reads_all(plan, fragment)

    def adds(self, id: str, store: ChannelStore) -> None:
        """The running query writes a channel from its next batch on."""
        channel = self._plan.channel(id)
        if channel in self._plan.subscriptions:
            self.outside.adds(self._plan, channel, store)
        else:
            self._book.produces(channel, store)

    def drops(self, id: str) -> None:
        """The running query does not write a channel any more."""
        self.outside.drops(id)
        self._book.drops(id)

    def begin(self, unread: Mapping[str, int]) -> None:
        """The query is about to start, at these entries of what it reads."""
        for id, store in list(self._stores.items()):
            self.adds(id, store)
        trusts = self._plan.delivery == AT_MOST_ONCE
        for id, store in self._readers.items():
            self._read[id] = unread[id]
            self._book.subscribes(self._plan.channel(id), store, unread[id], trusts=trusts)
        self._progress.on_taken = self._taken
        self._progress.notes.append(self._note)

    def wait_room(self, given_up: Callable[[], bool]) -> None:
        """Wait, before a batch, until every subscriber has space for it, or `given_up()` is true.

        Raises ChannelFullError if a channel keeps too much and is configured to fail then.
        """
        self.outside.wait_room(given_up, self._blocked)
        self._book.wait_room(self._inside, given_up, self._blocked)

    def blocked(self) -> BlockedTime:
        """How long batches have waited for space; from any thread."""
        found = {id: self._book.blocked_ms(id) for id in self._inside}
        outside, now_ms = self.outside.blocked_ms()
        return BlockedTime(
            {**{id: total for id, (total, _) in found.items() if total}, **outside},
            max([now_ms, *(now for _, now in found.values())]),
        )

    def appended(self, *, last: bool = False) -> None:
        """Entries may have been appended to the channels that the query writes; `last` when none follow."""
        for id in self._inside:  # another thread may add or drop one
            self._book.appended(id, last=last)

    def trimmed(self) -> None:
        """Entries may have been deleted from the channels that the query writes."""
        for id in self._inside:
            self._book.trimmed(id)
        self.outside.look()

    def loss(self) -> DrivetrainError | None:
        """The first loss in the channels that the query reads, if any."""
        for id in self._readers:
            loss = self._book.loss(id)
            if loss is None:
                continue
            if loss.start >= self._read[id]:
                return MessageLossError(
                    "the channel does not contain the messages that its producer sent",
                    where=f"channel {id}, entries {loss.start} to {loss.end - 1}",
                    expected=loss.expected,
                    got=loss.got,
                    remedy="run it again, which repairs them if possible; --fresh starts over",
                )
            return UntakenError(
                "a batch was committed that took fewer messages than it should have",
                where=f"channel {id}, entries {loss.start} to {loss.end - 1}",
                expected=loss.expected,
                got=loss.got,
                remedy="the channel still holds them, and later results lack them: replay from their time "
                "(--replay-from), or start over with --fresh",
            )
        return None

    def _taken(self, channel: str, start: str | None, end: str | None, messages: int) -> None:
        """Spark has committed a batch between these offsets of a channel, with so many messages."""
        began, ended = json.loads(start or "null"), json.loads(end or "null")
        first = self._read[channel] if began is None else int(began["entry"])
        after = first if ended is None else int(ended["entry"])
        self._read[channel] = max(self._read[channel], after)
        # A plan that asks for no row at all (a filter that is never true) does not read its input.
        known = messages if self._counts and messages else None
        self._book.taken(channel, first, after, known)

    def _blocked(self, subscriber: str | None) -> None:
        self._progress.blocked_by = subscriber

    def _note(self, channel: ChannelProgress) -> ChannelProgress:
        unacknowledged = self._book.unacknowledged(channel.channel)
        if unacknowledged is None:
            # Its producer runs in another process. It knows at most the entries that were committed here.
            return msgspec.structs.replace(
                channel,
                unacknowledged_rows=channel.lag_rows,
                unacknowledged_bytes=channel.lag_bytes,
                window_rows=self._book.window.rows,
                window_bytes=self._book.window.bytes,
            )
        return msgspec.structs.replace(
            channel,
            unacknowledged_rows=unacknowledged.messages,
            unacknowledged_bytes=unacknowledged.bytes,
            window_rows=unacknowledged.window_messages,
            window_bytes=unacknowledged.window_bytes,
            blocked_ms=unacknowledged.blocked_ms,
        )


def _reads_all(plan: Plan, fragment: Fragment) -> bool:
    """Whether a query reads every message of a batch: with state it does; without, an output may read only
    some."""
    operations = [plan.graph.nodes[id].operation for id in fragment.branches]
    return fragment.stateful is not None or not any(operation.may_skip_messages for operation in operations)
