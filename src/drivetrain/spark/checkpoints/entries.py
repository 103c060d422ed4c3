"""The last entries that a fragment took from its channels, kept in its snapshot.

Problem: an application that starts elsewhere from a snapshot has no channels. It needs one entry of each, the
last that the fragment has taken: with it producer and consumer agree on numbers, batches and the clock. The
channel itself deletes the entry as soon as the running application does not need it.

Design: a file in the fragment's directory, written between two batches, just before the directory is saved.

Invariants:

1. In a snapshot, the entry of each channel is the one before the snapshot's position in it.

Called by `participation` (writes) and `from_savepoint` (reads).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from drivetrain.core.channel.channel_log import Entry
from drivetrain.runtime.channel.store import ChannelStore

_FILE: Final = "entries.json"


def note_entries(directory: Path, positions: Mapping[str, int], readers: Mapping[str, ChannelStore]) -> None:
    """Store the entry before each position, by channel; raises what reading an entry raises."""
    if readers:
        found = {id: readers[id].entry(position - 1) for id, position in positions.items() if position > 0}
        (directory / _FILE).write_bytes(msgspec.json.encode(found))


def noted_entries(directory: Path) -> dict[str, Entry]:
    """The entries by channel; none in a fragment that reads no channel, or has read nothing."""
    try:
        content = (directory / _FILE).read_bytes()
    except FileNotFoundError:
        return {}
    return msgspec.json.decode(content, type=dict[str, Entry])
