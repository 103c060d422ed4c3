"""Keys of channels: how much may wait between two fragments, and how much is kept."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice, duration_ms, integer, size_bytes

WINDOW_BYTES: Final = Key(
    "channel.window-bytes",
    size_bytes(minimum_bytes=1024),
    "256 MiB",
    "Bytes that a subscriber may leave unacknowledged before the producer waits with its next batch.",
)

WINDOW_MESSAGES: Final = Key(
    "channel.window-messages",
    integer(minimum=0),
    0,
    "The same in messages; 0 means that only bytes and batches count.",
)

WINDOW_BATCHES: Final = Key(
    "channel.window-batches",
    integer(minimum=1, maximum=50),
    50,
    "The same in batches of the producer. Losses are repaired from the producer's last 100 batches.",
)

MAX_BYTES: Final = Key(
    "channel.max-bytes",
    size_bytes(),
    "0 B",
    "Bytes that a channel keeps at most while some of them are unread; 0 means no limit.",
)

MAX_AGE: Final = Key(
    "channel.max-age",
    duration_ms(),
    "0 ms",
    "Greatest age of unread messages in a channel; 0 means no limit.",
)

OUTSIDE_BYTES: Final = Key(
    "subscription.keep-bytes",
    size_bytes(),
    "1 GiB",
    "Bytes that are kept unread for each subscription of another application; then the producer waits, or "
    "drops the oldest messages if the subscription says drop_after. 0 means no limit.",
)

WHEN_FULL: Final = Key(
    "channel.when-full",
    choice("block", "fail"),
    "block",
    "What the producer does at channel.max-bytes or channel.max-age: wait, or fail. Nothing is dropped.",
)
