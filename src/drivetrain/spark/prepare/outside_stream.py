"""The stream of another application as an input: its channel, read where that application keeps it.

Problem: the channel belongs to another application, which writes it, trims it and may delete it. This one
reads it like a channel of its own, with its clock.

Design: the engine treats it as a source with a source-end store, except that this application stores nothing
itself. A note, made when this application subscribed, has the channel's place and columns.

Invariants:

1. Nothing but positions and plans of batches is written to the other application's directory.

Called by `spark.prepare.fragment`, and for its progress by `micro_batch_query`.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from drivetrain.api.types import schema_of
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS, known_clock
from drivetrain.errors import UserError
from drivetrain.runtime.channel.outside_reader import OutsideReader
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.runtime.subscription_check import require_in_force
from drivetrain.runtime.subscription_note import SubscriptionNote, read_note
from drivetrain.spark.channel.backlog import ChannelWatch
from drivetrain.spark.connector.source import OpenedSource, Position
from drivetrain.spark.prepare.stored_sources import StoredInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from drivetrain.api.connectors.application_stream import ApplicationStream
    from drivetrain.runtime.run_directory import RunDirectory


CHECK_S: Final = 2.0
"""How often the other application's version in force is read while no batch runs."""


class OutsideStream(OpenedSource):
    """The stream of the channel of `store`, which another application writes."""

    reader = "application"
    how_read = "a channel of the other application"
    limited_by = "bytes"
    bounded = False

    def __init__(self, df: DataFrame, store: ChannelStore, id: str, note: SubscriptionNote | None) -> None:
        self.df = df
        self._id: Final = id
        self._note: Final = note
        self._checked_s = time.monotonic()
        self._store: Final = store
        self._outside: Final = OutsideReader(store)
        self._taken, self._clock_ms = 0, NO_CLOCK_MS
        self._progress: ChannelProgress | None = None
        self._watch: ChannelWatch | None = None
        if note is not None:
            name = note.channel.rpartition("/")[2]
            self._watch = ChannelWatch(name, f"{note.app_id}/{note.stream}", id, ChannelStore(note.channel))

    def position(self, offset: str | None) -> Position:
        """How many entries were taken; it is finished when the other application's input has ended.

        Raises StartedOverError when the other application does not keep its stream for this one any more.
        """
        taken = json.loads(offset) if offset else {"entry": 0, "clock": NO_CLOCK_MS}
        self._taken, self._clock_ms = int(taken["entry"]), int(taken["clock"])
        is_finished = self._clock_ms >= FINAL_CLOCK_MS
        if not is_finished and time.monotonic() - self._checked_s >= CHECK_S:
            self._checked_s = time.monotonic()
            self._require_in_force()
        return Position(self._taken, self._taken if is_finished else None, is_finished)

    def progress(self) -> ChannelProgress | None:
        """The channel from this side, as of the last look that could read it; None: it is not known."""
        with suppress(MessageLossError, OSError):  # it is being repaired, or is going to be deleted
            if self._watch is not None:
                self._progress = self._watch.look(self._taken, known_clock(self._clock_ms))
        return self._progress

    def check(self, _offset: str | None) -> None:
        """Raise StartedOverError like `position`; called before each batch."""
        self._require_in_force()

    def _require_in_force(self) -> None:
        if self._note is not None:
            require_in_force(self._note, self._id)

    def lost(self) -> int:
        """How many messages the other application has dropped because this one was too slow."""
        return self._outside.dropped().messages


class _NotStoredHere:
    """Stands for the threads that store a source, and for its retention: here the other application does
    both."""

    def start(self) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""

    def trim(self, _store: ChannelStore) -> None:
        """Does nothing: the other application trims its channel."""


@dataclass(frozen=True)
class StreamPlace:
    """Where the stream of another application is read, under which name, and with which columns."""

    id: str
    channel: str
    schema: StructType
    note: SubscriptionNote | None = None


def stream_of(source: ApplicationStream, rundir: RunDirectory, id: str) -> StreamPlace:
    """Where the source `id` is read; a channel without messages before it has subscribed, as in a plan.

    Raises UserError when its columns are not known yet.
    """
    note = read_note(rundir.source(id))
    if note is not None:
        return StreamPlace(note.id, note.channel, StructType.fromJson(note.schema), note)
    if source.schema is None:
        raise UserError(
            "the columns of another application's stream are not known yet",
            where=id,
            remedy="declare them with schema=, or run the application: it subscribes first",
        )
    return StreamPlace(id, rundir.channel(id), StructType.fromDDL(schema_of(source.schema)))


def outside(df: DataFrame, place: StreamPlace, id: str) -> StoredInput:
    """The stream of the source `id`, read as `df`, in the form of a source that is stored at its end."""
    store = ChannelStore(place.channel)
    nobody = _NotStoredHere()
    return StoredInput(OutsideStream(df, store, id, place.note), nobody, store, nobody)
