"""Log lines about peers' mistakes: limited in number, and safe to print.

Problem: any process that reaches the port determines how often, and partly with which text, we log.

Design: a limited number of lines a minute for each kind of complaint; the others are counted, and the next
line contains their number. Characters that are not printable are replaced.

Invariants:
1. At most `MOST_LINES` lines of one kind are written in any `PERIOD_S` that begins with the first of them.
2. A line has no control characters and at most `LONGEST` characters.

Called by `Remote`, its associations and its unproven connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

MOST_LINES: Final = 10
PERIOD_S: Final = 60.0
LONGEST: Final = 600


def printable(text: str, longest: int = LONGEST) -> str:
    """The text on one line, without control characters, cut after `longest` characters."""
    cut = text if len(text) <= longest else text[:longest] + " [...]"
    return "".join(character if character.isprintable() else "?" for character in cut)


class PeerWarnings:
    """Writes one kind of warning to `log`; `now_s` is a clock that does not go back."""

    def __init__(self, log: logging.Logger, now_s: Callable[[], float]) -> None:
        self._log: Final = log
        self._now_s: Final = now_s
        self._began_s = -PERIOD_S
        self._lines = 0
        self._left_out = 0

    def warn(self, line: str) -> None:
        """Write a line, or only count it once the limit is reached."""
        now_s = self._now_s()
        if now_s - self._began_s >= PERIOD_S:
            self._began_s, self._lines = now_s, 0
        if self._lines >= MOST_LINES:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        more = f" (and {left_out} such lines that were left out)" if left_out else ""
        self._log.warning("%s%s", printable(line), more)
