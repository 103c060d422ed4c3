"""Dead letters: messages that an application could not process.

Called by `console.handlers.dead_letters`.
"""

from __future__ import annotations

import msgspec


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that `processor` failed on, or a record that a source could not read.

    `message` and `error` (with a traceback) are text of users or about their data: show them as text. Of a
    long message the end is missing, of a long error the beginning; then `is_cut` is true. `file` and `line`
    are the place where a source read it. `timestamp_ms` is the moment of its event, `stored_ms` that of its
    storage.
    """

    fragment: str
    processor: str
    message: str
    error: str
    is_cut: bool
    file: str | None
    line: int | None
    timestamp_ms: int | None
    stored_ms: int


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, the newest first; `next` is the cursor of the next page, null on the last.

    `count` are kept, `dropped` older ones are not any more.
    """

    letters: tuple[DeadLetter, ...]
    next: str | None
    count: int
    dropped: int
