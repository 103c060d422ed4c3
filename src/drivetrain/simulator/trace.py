"""The trace of a simulation: one line per event, identical for the same seed, byte for byte.

Problem: a failure found by seed 8,731 is worth nothing if the next run of seed 8,731 differs, or if its
course cannot be read.

Design: an append-only text. The network, the disks and the nodes write their own events; the scenario and the
program under test add theirs with `Simulation.record`. A running digest of all lines makes two runs
comparable, and only the last lines are kept unless all are requested.

Invariants:
1. A line depends on the seed and the program only: no addresses, hashes, real time or process ids.
2. The digest covers every line, also those no longer kept.

Called by everything in `drivetrain.simulator`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Final

from drivetrain.simulator.loop import START_S

KEPT_LINES: Final = 2_000


class Trace:
    """The events of one simulation; `keep_all` keeps every line instead of the last `KEPT_LINES`."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._lines: deque[str] = deque(maxlen=None if keep_all else KEPT_LINES)
        self._digest: Final = hashlib.sha256()
        self._count = 0

    def write(self, now_s: float, who: str, what: str) -> None:
        """Add one event of `who` at the virtual time `now_s`; line breaks in `what` become spaces."""
        line = f"{now_s - START_S:13.6f} {who:<12} {' '.join(what.splitlines())}"
        self._lines.append(line)
        self._digest.update(line.encode())
        self._digest.update(b"\n")
        self._count += 1

    def __len__(self) -> int:
        return self._count

    @property
    def digest(self) -> str:
        """SHA-256 over all lines, as hexadecimal digits."""
        return self._digest.hexdigest()

    def lines(self, last: int | None = None) -> Sequence[str]:
        """The lines that are kept, or the last so many of them, in order."""
        kept = list(self._lines)
        return kept if last is None else kept[-last:]

    def text(self) -> str:
        """The lines that are kept, as one text."""
        return "".join(f"{line}\n" for line in self._lines)
