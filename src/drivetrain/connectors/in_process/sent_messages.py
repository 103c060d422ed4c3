"""Messages that a test sends while the application runs.

Problem: a test must decide which messages an application gets, in which batches, and when the input ends, and
a batch that runs again after an injected crash must get the same messages.

Design: the kit writes what a test sends to a channel, an entry for each call, and this source reads the
channel as Spark reads every channel. Its columns are those of the source that it stands for.

Called by `connectors.registry`; declared by `drivetrain.testing.rewiring`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from drivetrain.api.sources import CustomSource
from drivetrain.connectors.schema import to_struct
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.columns import PUNCT, TS, WM
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.source import read_channel
from drivetrain.spark.connector.connector import Connector
from drivetrain.spark.connector.source import OpenedSource, Position, SourceContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class SentMessages(CustomSource):
    """The messages in the channel at `uri`, with the columns `schema` (DDL).

    It ends when an entry of the channel has the final clock; `is_bounded` is whether the source that it
    replaces has an end.
    """

    uri: str
    schema: str
    is_bounded: bool

    @property
    def bounded(self) -> bool:
        """Whether the source that it stands for has an end."""
        return self.is_bounded

    @property
    def name(self) -> str:
        """What is read, for plans and errors."""
        return "messages of a test"


class OpenedMessages(OpenedSource):
    """The stream of what was sent."""

    reader = "test"
    how_read = "sent by a test"

    def __init__(self, df: DataFrame, bounded: bool, store: ChannelStore) -> None:
        self.df = df
        self.bounded = bounded
        self._store = store
        self._counted = (0, 0)  # a number of entries, and the messages in them

    def position(self, offset: str | None) -> Position:
        """How many messages were taken."""
        known = json.loads(offset) if offset else {"entry": 0, "clock": 0}
        done, finished = self._messages_until(known["entry"]), known["clock"] >= FINAL_CLOCK_MS
        return Position(done, done if finished else None, finished)

    def _messages_until(self, entry: int) -> int:
        known, messages = self._counted
        if entry < known:  # of a batch that runs again
            known, messages = 0, 0
        for later in self._store.entries(known, entry):
            messages += sum(segment.rows for segment in later.segments)
        self._counted = (entry, messages)
        return messages


class SentMessagesConnector(Connector):
    """What tests send."""

    sources = (SentMessages,)

    def open_source(self, source: SentMessages, context: SourceContext, *, has_end_row: bool) -> OpenedSource:
        """The stream of the channel, without its clock: event times are assigned as by any plain source."""
        data = to_struct(source.schema, context.source_id)
        df = read_channel(context.spark, source.uri, data)
        messages = df.where(~F.col(PUNCT)).drop(WM, PUNCT, TS)
        return OpenedMessages(messages, source.bounded, ChannelStore(source.uri))
