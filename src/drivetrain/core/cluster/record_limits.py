"""How large what the registry keeps of an application may be.

Problem. A record travels whole, from master to master and to clients. One that does not fit a message could
never be written to a majority: every leader in turn would fail on it. And texts come from users: a traceback
may hold a whole data set.

Design. What somebody hands in is refused at the door when it is too large; what an application reports on its
way or at its end is cut, since an end must always be taken. The limits are shares of the largest message.

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
    """Of the specification, of the result and of what restart strategies keep, in bytes."""

    spec_bytes: int = 256 * _KIB
    result_bytes: int = 256 * _KIB
    restarts_bytes: int = 64 * _KIB

    @classmethod
    def within(cls, frame_limit_bytes: int) -> Self:
        """The limits where a message may have so many bytes."""
        most = frame_limit_bytes // _SHARE
        return cls(
            min(cls().spec_bytes, most), min(cls().result_bytes, most), min(cls().restarts_bytes, most)
        )


def cut(text: str | None, most_characters: int = TEXT_CHARACTERS) -> str | None:
    """The text, without its middle if it is longer: its beginning says what it is about, its end why."""
    if text is None or len(text) <= most_characters:
        return text
    half = most_characters // 2 - 3
    return f"{text[:half]} […] {text[-half:]}"
