"""Entries of a channel as the producer's end of flow control knows them.

Called by `flow_book`.
"""

from __future__ import annotations

from drivetrain.core.channel.channel_log import Entry, TrimmedError
from drivetrain.core.flow.flow import REMADE, SentEntry
from drivetrain.runtime.channel.segments import REMADE as REMADE_FOLDER
from drivetrain.runtime.channel.segments import MessageLossError
from drivetrain.runtime.channel.store import ChannelStore


def readable(store: ChannelStore, number: int) -> Entry | None:
    """An entry; None if it is damaged or gone."""
    try:
        return store.entry(number)
    except (MessageLossError, TrimmedError):
        return None


def sent_of(entry: Entry) -> SentEntry:
    """The messages, the bytes and the checksum of an entry."""
    if any(segment.path.startswith(REMADE_FOLDER) for segment in entry.segments):
        return SentEntry(entry.number, entry.rows, entry.bytes, REMADE)
    checksum = sum(segment.crc32 for segment in entry.segments) & 0xFFFFFFFF
    return SentEntry(entry.number, entry.rows, entry.bytes, checksum, entry.barrier is not None)
