"""What a console keeps over days: its memory, and the file with the history of figures, hour by hour.

    python -m benchmarks.console_day [--quick] [--days 30]

The console's own watch and recorder run on the simulator's loop, so a day passes as fast as they can work:
they look and record as often as they do on a real day, and the file is a real one. The cluster answers at
once, and all figures change each second. Applications end and others begin, one every two hours, as the
cluster of a team does. From 9 to 17 o'clock a page is open that follows the application of 10 fragments; at
other times nobody looks.

The goals: memory at the end of a day as at the end of the second hour of the page, within 1 MB; rows of the
file no more than `FINE_MS` and `COARSE_MS` allow.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import resource
import sqlite3
import sys
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from benchmarks.console import status
from drivetrain.cluster.client import UnknownApplicationError
from drivetrain.cluster.messages.applications import (
    ApplicationSpec,
    ApplicationState,
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.console.past import recorder as recording
from drivetrain.console.past.history_file import COARSE_MS, COARSE_STEP_MS, FINE_MS
from drivetrain.console.watching import cluster_watch as watching
from drivetrain.core.job.history import SPAN_MS, STEP_MS, History, Moment
from drivetrain.core.job.job_status import JobStatus, moment_of
from drivetrain.simulator.loop import SimulatedLoop

BEGAN_MS: Final = 1_790_000_000_000
HOUR_S: Final = 3_600
RENEWED_S: Final = 2 * HOUR_S
"""After so long an application ends, and the next one begins."""
PAGE_HOURS: Final = range(9, 17)


class RenewingCluster:
    """A cluster at a virtual time: the application `lasting-0`, and others that live for a while."""

    def __init__(self, loop: SimulatedLoop, applications: int, fragments: int) -> None:
        self._loop, self._began_s = loop, loop.time()
        self._applications, self._fragments = applications, fragments
        self._moments: dict[str, deque[Moment]] = {}

    def now_ms(self) -> int:
        """The wall clock."""
        return BEGAN_MS + int((self._loop.time() - self._began_s) * 1000)

    def _ids(self) -> list[str]:
        first = int(self._loop.time() - self._began_s) // RENEWED_S
        for ended in self._moments.keys() - {"lasting-0", *(f"short-{first + n + 1}" for n in range(9))}:
            del self._moments[ended]
        return ["lasting-0", *(f"short-{first + n + 1}" for n in range(self._applications - 1))]

    async def masters(self) -> tuple[MasterView, ...]:
        """One, which leads."""
        return (MasterView("127.0.0.1:7070", True, 1, 0),)

    async def workers(self) -> tuple[WorkerView, ...]:
        """One for each application."""
        return tuple(
            WorkerView(f"w{n}", f"worker-{n}", f"host-{n}", 8, 2, BEGAN_MS) for n in range(self._applications)
        )

    async def applications(self) -> tuple[ApplicationSummary, ...]:
        """Those that run now; those that have ended are forgotten."""
        now_ms = self.now_ms()
        return tuple(
            ApplicationSummary(id, id.split("-")[0], ApplicationState.ACTIVE, 1, BEGAN_MS, clock_ms=now_ms)
            for id in self._ids()
        )

    async def application(self, app: str) -> ApplicationView:
        """One that runs."""
        if app not in self._ids():
            raise UnknownApplicationError("no such application", where=app)
        spec = ApplicationSpec(app.split("-")[0], "0" * 64, "app.py")
        return ApplicationView(app, spec, ApplicationState.ACTIVE, 1, BEGAN_MS, clock_ms=self.now_ms())

    async def job_status(self, view: ApplicationView) -> JobStatus:
        """All figures grow each second."""
        return self._status(view.app_id, self.now_ms())

    async def history(self, view: ApplicationView) -> History:
        """The last quarter of an hour, as an application master keeps it."""
        last = self.now_ms() - self.now_ms() % STEP_MS
        first = max(BEGAN_MS, last - SPAN_MS)
        return History(
            tuple(moment_of(self._status(view.app_id, at)) for at in range(first, last + 1, STEP_MS))
        )

    def _status(self, app_id: str, at_ms: int) -> JobStatus:
        return status(
            app_id, self._fragments if app_id == "lasting-0" else 2, BEGAN_MS, (at_ms - BEGAN_MS) // 1000
        )


@dataclass(frozen=True)
class Held:
    """What the console holds after so many hours: bytes of Python's objects, of the process, of the file;
    rows and entries by name."""

    hour: int
    python: int
    process: int
    file: int
    rows: int
    entries: dict[str, int]


def simulated(
    place: Path, hours: int, applications: int, fragments: int, pages: Container[int]
) -> Iterator[Held]:
    """Let the console watch and record for so many virtual hours; what it holds after each.

    A page is open in those hours of a day that `pages` has.
    """
    loop = SimulatedLoop(random.Random(0), until_s=hours * HOUR_S + 60)
    cluster: Any = RenewingCluster(loop, applications, fragments)
    clock = SimpleNamespace(monotonic=loop.time, time_ns=lambda: cluster.now_ms() * 1_000_000)
    with contextlib.ExitStack() as stack:
        for module in (recording, watching):
            real = module.time
            stack.callback(setattr, module, "time", real)
            module.time = clock  # type: ignore[assignment, attr-defined] # the clock of the loop
        recorder = recording.Recorder(cluster, place)
        watch = watching.Watch(cluster, recorder)
        loop.run_until_complete(recorder.open())
        for hour in range(hours):
            loop.run_until_complete(_an_hour(watch, ["lasting-0"] if hour % 24 in pages else None))
            gc.collect()
            yield _held(hour + 1, place / recording.FILE, recorder, watch)
        loop.run_until_complete(watch.close())
        loop.run_until_complete(recorder.close())


async def _an_hour(watch: Any, followed: list[str] | None) -> None:
    if followed is None:
        await asyncio.sleep(HOUR_S)
        return
    async with watch.listening(followed):
        end, number = asyncio.get_running_loop().time() + HOUR_S, 0
        while asyncio.get_running_loop().time() < end:
            await watch.wait_after(number, 5.0)
            number = watch.board.newest


def _held(hour: int, file: Path, recorder: Any, watch: Any) -> Held:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        (rows,) = db.execute("SELECT count(*) FROM moment").fetchone()
    size = sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if sys.platform == "linux" else 0
    traced = tracemalloc.get_traced_memory()[0]
    entries = {
        "notes": len(watch.board._notes),
        "watched": len(watch._watched),
        "missing": len(watch._missing),
        "noted": len(recorder._noted_s),
    }
    return Held(hour, traced, pages * os.sysconf("SC_PAGE_SIZE"), size, rows, entries)


def most_rows(applications: int, hours: int) -> int:
    """How many rows there may be: fine ones of 26 hours, coarse ones of 30 days, some of those that ended."""
    fine = min(FINE_MS, hours * HOUR_S * 1000) // STEP_MS + SPAN_MS // STEP_MS + 2
    coarse = min(COARSE_MS, hours * HOUR_S * 1000) // COARSE_STEP_MS + SPAN_MS // COARSE_STEP_MS + 2
    return (applications + 1) * (fine + coarse)


def main() -> int:
    """Print what the console holds; the exit status says whether the goals were met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two applications and four hours")
    parser.add_argument("--days", type=int, default=0, help="then so many days of one application")
    given = parser.parse_args()
    hours, applications = (4, 2) if given.quick else (24, 3)
    page_hours = range(1, 3) if given.quick else PAGE_HOURS
    tracemalloc.start()
    met = True
    with tempfile.TemporaryDirectory() as place:
        held = []
        for one in simulated(Path(place), hours, applications, 10, page_hours):
            print(_line(one), flush=True)
            held.append(one)
    grown = held[-1].python - held[page_hours[1]].python
    met &= grown < 1e6 and held[-1].rows <= most_rows(applications, hours)
    print(f"day          {grown / 1e6:+.2f} MB since the second hour of the page (goal < 1 MB)")
    if given.days:
        with tempfile.TemporaryDirectory() as place:
            for one in simulated(Path(place), given.days * 24, 1, 5, ()):
                if one.hour % 24 == 0 or one.hour == 1:
                    print(_line(one))
                met &= one.rows <= most_rows(1, one.hour)
    tracemalloc.stop()
    print(f"largest      {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB of the process")
    return 0 if met or given.quick else 1


def _line(one: Held) -> str:
    entries = ", ".join(f"{count} {name}" for name, count in one.entries.items())
    return (
        f"hour {one.hour:4}    {one.python / 1e6:7.2f} MB of objects, {one.process / 1e6:6.1f} MB in all, "
        f"{one.file / 1e6:7.2f} MB of file, {one.rows:7,} rows; {entries}"
    )


if __name__ == "__main__":
    sys.exit(main())
