"""Ranges of numbers in messages: a message with a number outside its range does not decode.

Called by the modules of messages. These are annotations only: code that makes messages is trusted.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

LARGEST = 2**53
"""Larger than any count here; the sum of a few still fits 64 bits."""

Count: TypeAlias = Annotated[int, Meta(ge=0, le=LARGEST)]
"""A number of bytes, messages, an offset, an epoch, a term, an attempt."""

Slots: TypeAlias = Annotated[int, Meta(ge=0, le=1_000_000)]
"""Slots of one worker, or for one process."""

DurationMs: TypeAlias = Annotated[int, Meta(ge=0, le=366 * 86_400_000)]
"""A duration in ms: a year at most."""

Figure: TypeAlias = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
"""Any other number that is summed or shown; it may be negative."""

TimeMs: TypeAlias = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
"""A moment, in ms since 1970 or on some other clock."""
