"""Late messages: samples of those that came after the clock had passed their windows, or their own time.

Called by `console.handlers.late_messages`.
"""

from __future__ import annotations

import msgspec


class LateMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came too late for `processor`.

    `message` are its columns as JSON text, of users' data: show it as text. If it is long, the end is missing
    (`is_cut`). `timestamp_ms` is the moment of its event, `clock_ms` the clock before its batch, `stored_ms`
    when the sample was stored.
    """

    fragment: str
    processor: str
    message: str
    is_cut: bool
    timestamp_ms: int
    clock_ms: int
    batch: int
    stored_ms: int


class LateMessages(msgspec.Struct, frozen=True, kw_only=True):
    """A page of samples of late messages, the newest first; `next` is the cursor of the next page, null on
    the last.

    `late` counts all late messages by processor in this epoch, null while no application master answers. Of
    those only samples are kept.
    """

    samples: tuple[LateMessage, ...]
    next: str | None
    late: dict[str, int] | None
