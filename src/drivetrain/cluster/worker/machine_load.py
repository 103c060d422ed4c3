"""Reads this machine's load: the share of its cores in use, and the free memory.

Called by the worker for its reports.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

_STAT: Final = Path("/proc/stat")
_MEMORY: Final = Path("/proc/meminfo")
_IDLE: Final = (3, 4)  # the fields idle and iowait


class Load(NamedTuple):
    """`cpu` from 0 to 1 over all cores since the last reading; `memory_free` in bytes."""

    cpu: float
    memory_free: int


class Machine:
    """Reads the load of the machine."""

    def __init__(self) -> None:
        self._busy = self._all = 0

    def read(self) -> Load:
        """The load since the last call; a few microseconds, so it may be called on the event loop."""
        return Load(self._cpu(), _memory_free())

    def _cpu(self) -> float:
        if not _STAT.exists():
            return min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        ticks = [int(field) for field in _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        total = sum(ticks)
        busy = total - sum(ticks[index] for index in _IDLE)
        share = (busy - self._busy) / max(1, total - self._all)
        self._busy, self._all = busy, total
        return min(1.0, max(0.0, share))


def _memory_free() -> int:
    if not _MEMORY.exists():
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _MEMORY.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
