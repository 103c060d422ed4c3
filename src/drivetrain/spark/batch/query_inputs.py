"""How far a query has read its inputs: sources by their offsets, channels by their entries.

Spark identifies inputs by their place in the plan, Drivetrain by their ids; this module translates.

Called by `fragment_query`, and by other modules through it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from drivetrain.core.channel.channel_log import TrimmedError
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.connector.source import Position
from drivetrain.spark.prepare.trunk import Trunk
from drivetrain.spark.session.offset_log import committed, entries_after

MESSAGE_BYTES: Final = 100
"""The assumed size of a message whose real size is unknown."""


class QueryInputs:
    """The inputs of the query of `fragment`, whose Spark checkpoint is `checkpoint`."""

    def __init__(
        self, fragment: str, trunk: Trunk, readers: Mapping[str, ChannelStore], checkpoint: Path
    ) -> None:
        self.offsets: list[str | None] = []
        """The end offset of each input in the last batch that ran, in the order of `trunk.inputs`."""
        self.logs: Final = {**readers, **{id: stored.store for id, stored in trunk.stored.items()}}
        """The logs among the inputs: channels, and sources that are stored at their end."""
        self._fragment: Final = fragment
        self._trunk: Final = trunk
        self._readers: Final = readers
        self._checkpoint: Final = checkpoint

    def by_id(self, offsets: Sequence[str | None]) -> Iterator[tuple[str, str | None]]:
        """Each input with an id, with its offset."""
        for id, offset in zip(self._trunk.inputs, offsets, strict=False):
            if id is not None:
                yield id, offset

    def offset(self, id: str) -> str | None:
        """The end offset of the last batch in an input."""
        index = self._trunk.inputs.index(id)
        return self.offsets[index] if index < len(self.offsets) else None

    def entry(self, channel: str) -> int | None:
        """The next entry of a channel; None before the first batch."""
        offset = self.offset(channel)
        return int(json.loads(offset)["entry"]) if offset else None

    def position(self, source: str) -> Position:
        """How far the batches that ran have taken a source."""
        return self._trunk.sources[source].position(self.offset(source))

    def end_with(self, offsets: Sequence[str | None]) -> bool:
        """Whether a batch with these end offsets takes the end of every input."""
        for id, offset in self.by_id(offsets):
            if id in self._readers:
                if not offset or json.loads(offset)["clock"] < FINAL_CLOCK_MS:
                    return False
            elif not self._trunk.sources[id].position(offset).finished:
                return False
        return True

    def has_read_all(self, id: str) -> bool:
        """Whether everything of an input has been taken, and nothing will follow.

        A producer, in any process, has finished when its channel has the final clock. Entries after
        that have no messages: barriers, and the same clock again from a restarted producer.
        Entries that were taken are not read: they may be lost by now, and their producer gone.
        """
        if id not in self._readers:
            return self.position(id).finished
        offset = self.offset(id)
        return offset is not None and bool(json.loads(offset)["clock"] >= FINAL_CLOCK_MS)

    @property
    def are_read(self) -> bool:
        """Whether `has_read_all` holds for all inputs."""
        return all(self.has_read_all(id) for id in self._trunk.inputs if id is not None)

    def taken(self, after: Sequence[str | None]) -> dict[str, int]:
        """How much a batch with these end offsets takes of each input with an id, in the input's unit."""
        found = {}
        befores = self.offsets or [None] * len(after)
        for id, start, end in zip(self._trunk.inputs, befores, after, strict=False):
            if id is None or end is None:
                continue
            if id in self.logs:
                found[id] = _bytes(self.logs[id], start, end)
            else:
                position = self._trunk.sources[id].position
                found[id] = max(0, position(end).done - position(start).done)
        return found

    def bytes_of(self, taken: Mapping[str, int]) -> int:
        """About how many bytes `taken` stands for: an estimate for sources that count messages."""
        sources = self._trunk.sources
        counted = {id for id in taken if id not in self.logs and sources[id].unit == "rows"}
        return sum(n * (MESSAGE_BYTES if id in counted else 1) for id, n in taken.items())

    def unread(self) -> dict[str, int]:
        """The first entry that no committed batch has taken, by the id of channels and stored sources."""
        taken = entries_after(self._checkpoint, committed(self._checkpoint), self._trunk.inputs)
        return {id: taken.get(id, store.position_of(self._fragment)) for id, store in self.logs.items()}


def _bytes(log: ChannelStore, start: str | None, end: str) -> int:
    try:
        first = json.loads(start)["entry"] if start else log.start()
        return sum(entry.bytes for entry in log.entries(first, json.loads(end)["entry"]))
    except (MessageLossError, TrimmedError):
        return 0  # the reader of these entries reports a loss, or has read them
