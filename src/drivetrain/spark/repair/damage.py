"""Damaged entries of channels, and those at the beginning of a channel.

Called by `repair`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from drivetrain.core.channel.channel_log import NO_BATCH, Entry, Segment, TrimmedError
from drivetrain.core.clock.time_bounds import NO_CLOCK_MS
from drivetrain.runtime.channel.beginning import ChannelBeginning
from drivetrain.runtime.channel.segments import MessageLossError, verified
from drivetrain.runtime.channel.store import ChannelStore


@dataclass(frozen=True)
class Damage:
    """An entry that cannot be read whole: `bad` of its segments, or the entry itself (None)."""

    number: int
    entry: Entry | None
    bad: tuple[Segment, ...]
    defect: str


def rebuilt_up_to_the_beginning(store: ChannelStore, numbers: Iterable[int]) -> dict[int, Entry]:
    """The lost ones among the entries with which a channel begins, rebuilt without messages.

    These entries (with messages from before the channel, and the first of its own) belong to no batch of
    its producer, so their neighbours do not show what was in them.
    """
    begins, made = ChannelBeginning(store.uri).read(), dict[int, Entry]()
    if begins is None or not begins.former:
        return made
    for number in numbers:
        if number <= begins.former:
            is_beginning = number == begins.former and begins.after is not None
            batch = begins.after if is_beginning and begins.after is not None else NO_BATCH
            clock_ms = made[number - 1].clock_ms if number - 1 in made else _clock_ms(store, number - 1)
            made[number] = Entry(number, store.fragment, 0, batch, (), clock_ms)
    return made


def _clock_ms(store: ChannelStore, number: int) -> int:
    try:
        return store.read_entry(number).clock_ms if number >= 0 else NO_CLOCK_MS
    except (TrimmedError, MessageLossError):
        return NO_CLOCK_MS


def unreadable(store: ChannelStore, segment: Segment) -> str | None:
    """The damage of a segment file; None if the file can be read."""
    try:
        verified(store.files, segment)
    except MessageLossError as error:
        return error.got or error.what
    return None
