"""Size limits of an application's record in the registry.

Problem. A record travels whole, from master to master and to clients. A record that does not fit a message
could never be written to a majority: every leader in turn would fail on it. And users provide texts: a
traceback may hold a whole data set.

Design. A submission that is too large is refused immediately; reports of a running or ending application are
cut, because an end must always be recorded. The limits are shares of the largest message.

Called by `core.cluster.applications`, masters and application masters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

_KIB: Final = 1024
_SHARE: Final = 8
TEXT_CHARACTERS: Final = 4_000


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """The limits of the specification, the result, and the restart strategies' state, in bytes."""

    spec_bytes: int = 256 * _KIB
    result_bytes: int = 256 * _KIB
    restarts_bytes: int = 64 * _KIB

    @classmethod
    def within(cls, frame_limit_bytes: int) -> Self:
        """The limits for messages of at most this many bytes."""
        most = frame_limit_bytes // _SHARE
        return cls(
            min(cls().spec_bytes, most), min(cls().result_bytes, most), min(cls().restarts_bytes, most)
        )


def cut(text: str | None, most_characters: int = TEXT_CHARACTERS) -> str | None:
    """The text, without its middle if it is longer: its beginning shows what it is about, its end why."""
    if text is None or len(text) <= most_characters:
        return text
    half = most_characters // 2 - 3
    return f"{text[:half]} […] {text[-half:]}"
