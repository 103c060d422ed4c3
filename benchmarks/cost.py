"""What a job costs in CPU seconds: a fixed part, and a part for each million units.

Wall-clock time on a quiet machine flatters whoever uses more cores. So the CPU seconds of the whole process
tree count first: measured on the usual data and on `GROWN` times as much, because a fixed part (planning,
compiling, the end of a query) hides what a message costs. How long the job takes beside a process that keeps
a core busy says what it costs where nobody has a core to spare.

Called by `measure`, for jobs that grow.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

GROWN = 4
"""How many times the usual data the second run has."""

COLUMNS = (
    ("cpu_s", "CPU s"),
    ("cpu_fixed_s", "fixed CPU s"),
    ("cpu_per_million_s", "CPU s per million"),
    ("busy_s", "seconds beside a busy process"),
)


def apart(cpu_s: float, grown_cpu_s: float, units: int, grown_units: int) -> dict[str, float]:
    """The fixed part and the part per million units of two runs, as figures.

    >>> apart(8.0, 20.0, 1_000_000, 4_000_000)
    {'cpu_per_million_s': 4.0, 'cpu_fixed_s': 4.0}
    """
    per_unit_s = (grown_cpu_s - cpu_s) / (grown_units - units)
    return {"cpu_per_million_s": per_unit_s * 1e6, "cpu_fixed_s": cpu_s - per_unit_s * units}


def over(medians: Mapping[str, Mapping[str, float]], ours: str) -> dict[str, float]:
    """The CPU seconds of `ours` for a million units over those of each peer (below 1: ours costs less)."""
    key = "cpu_per_million_s"
    own = medians.get(ours, {}).get(key)
    peers = {name: figures[key] for name, figures in medians.items() if name != ours and key in figures}
    return {} if own is None else {name: own / theirs for name, theirs in peers.items() if theirs > 0}


@contextmanager
def busy_process() -> Iterator[None]:
    """Keep one core busy meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
