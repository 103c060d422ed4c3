"""What a fragment's query has to do with flow control: both ends of its channels, told what happens.

Problem: a query appends, reads, trims, waits and ends at many places; the book of flow control must hear of
each, and the query of what the book has found.

Design: one object a query, between it and the process's `FlowBook`. It also adds to what users see of a
channel.

Invariants:

1. Both ends are in the book before the query's first batch.
2. A loss that was found by comparing notes stops the query: as `MessageLossError` while nothing of it is
   committed, which is mended; as `UntakenError` when a batch was committed without messages that it should
   have taken, which nobody can mend without the user.

Called by `query`.
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
from drivetrain.spark.batch.query_progress import QueryProgress
from drivetrain.spark.flow.flow_book import FlowBook


class UntakenError(UserError):
    """Spark has committed a batch that took fewer messages than its channel held for it."""

    code = "messages-untaken"
    exit_code = 4


class QueryFlow:
    """The channels of one query: `stores` are those that it writes, `readers` those that it reads, by id."""

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
        # State takes every message of a batch. Without it, who looks at some does not read the others.
        operations = [plan.graph.nodes[id].operation for id in fragment.branches]
        self._counts = fragment.stateful is not None or not any(
            operation.may_skip_messages for operation in operations
        )
        self._read = dict.fromkeys(readers, 0)

    def begin(self, unread: Mapping[str, int]) -> None:
        """The query is about to start, at these entries of what it reads."""
        for id, store in self._stores.items():
            self._book.produces(self._plan.channel(id), store)
        trusts = self._plan.delivery == AT_MOST_ONCE
        for id, store in self._readers.items():
            self._read[id] = unread[id]
            self._book.subscribes(self._plan.channel(id), store, unread[id], trusts=trusts)
        self._progress.on_taken = self._taken
        self._progress.notes.append(self._note)

    def wait_room(self, given_up: Callable[[], bool]) -> None:
        """Wait, before a batch, until every subscriber has room for it, or `given_up` says true.

        Raises ChannelFullError when a channel keeps too much and is to fail then.
        """
        self._book.wait_room(self._stores, given_up, self._blocked)

    def appended(self, *, last: bool = False) -> None:
        """Entries may have been appended to what the query writes; `last` when nothing follows."""
        for id in self._stores:
            self._book.appended(id, last=last)

    def trimmed(self) -> None:
        """Entries may have been deleted from what the query writes."""
        for id in self._stores:
            self._book.trimmed(id)

    def loss(self) -> DrivetrainError | None:
        """What was found lost in what the query reads, if anything."""
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
        told = self._book.unacknowledged(channel.channel)
        if told is None:
            # Its producer runs in another process. It has not heard of more than what was committed here.
            return msgspec.structs.replace(
                channel,
                unacknowledged_rows=channel.lag_rows,
                unacknowledged_bytes=channel.lag_bytes,
                window_rows=self._book.window.rows,
                window_bytes=self._book.window.bytes,
            )
        return msgspec.structs.replace(
            channel,
            unacknowledged_rows=told.messages,
            unacknowledged_bytes=told.bytes,
            window_rows=told.window_messages,
            window_bytes=told.window_bytes,
            blocked_ms=told.blocked_ms,
        )
