"""Keys of the channels between fragments."""

from __future__ import annotations

from typing import Final

from drivetrain.config.key import Key
from drivetrain.config.units import choice

SEGMENT_FORMAT: Final = Key(
    "channel.segment-format",
    choice("arrow", "parquet"),
    "arrow",
    "File format of a channel's segments: arrow (Arrow IPC, cheapest to write and read) or parquet "
    "(smaller).",
)

COMPRESSION: Final = Key(
    "channel.compression",
    choice("none", "lz4", "zstd"),
    "lz4",
    "Compression of a channel's segments: none, lz4 (fast) or zstd (smaller).",
)
