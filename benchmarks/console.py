"""What an open dashboard costs: a run beside which pages are open, and a page of a large cluster.

*throughput*: the same run with a console and open pages, and without, in turn. The pages are streams of its
snapshots (two, or `--readers`), and Prometheus, which asks every five seconds. Every tenth reader is slow: it
takes what has come once in five seconds. Time counts from the first batch to the end, as the run has noted
it; the figure is messages per second with pages over without, the median over rounds. Goal: 0.98 with two.

*a page's data*: a real console asks a client in its own process, which answers at once for 100 applications,
one of them with 1,000 fragments. Median and longest time of requests over HTTP on loopback. Goal: under 200
ms.

    python -m benchmarks.console [--quick] [--rounds N] [--only throughput|page] [--readers N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from drivetrain.cluster.messages.applications import (
    ApplicationSpec,
    ApplicationState,
    ApplicationSummary,
    ApplicationView,
    MasterView,
    WorkerView,
)
from drivetrain.config import Config
from drivetrain.console import server
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.job.history import History
from drivetrain.core.job.job_status import FragmentView, JobState, JobStatus, moment_of
from drivetrain.runtime.last_run import read_last_run

APPLICATIONS = 100
FRAGMENTS = 1_000
SMALL = 10
"""The fragments of the other applications."""
GOAL = 0.98
PAGE_GOAL_MS = 200.0
SLOW_S = 5.0
"""How often a slow reader takes what has come."""
PROGRAM = """
from drivetrain import Application, agg, sinks, sources, windows

app = Application("load")
read = app.read(sources.generate(rows={rows}, every="1 ms", columns={{"key": "id % 100"}}))
hourly = read.group_by("key").window(windows.tumbling("1 min")).aggregate(n=agg.count(), step="counts")
hourly.sink(sinks.none(), name="out")
"""


def main() -> int:
    """Measure what is asked for; the exit status says whether the goals were met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little data")
    parser.add_argument("--rounds", type=int, default=5, help="runs with pages, and as many without")
    parser.add_argument("--only", choices=("throughput", "page"))
    parser.add_argument("--readers", type=int, default=2, help="streams of snapshots that are open")
    given = parser.parse_args()
    met = True
    if given.only in (None, "page"):
        met &= page(requests=20 if given.quick else 200)
    if given.only in (None, "throughput"):
        rows = 2_000_000 if given.quick else 100_000_000
        met &= throughput(rows, 1 if given.quick else given.rounds, given.readers)
    return 0 if met or given.quick else 1


# -- a run with open pages ------------------------------------------------------------------------------


def throughput(rows: int, rounds: int, readers: int) -> bool:
    """Run with pages and without, in turn."""
    with_pages, without = [], []
    for _ in range(rounds):
        without.append(_run(rows))
        with_pages.append(_run(rows, readers))
    ratio = statistics.median(with_pages) / statistics.median(without)
    print(
        f"throughput   {statistics.median(without):12,.0f} messages/s without a console\n"
        f"             {statistics.median(with_pages):12,.0f} messages/s with {readers} readers: {ratio:.3f} "
        f"of it (goal {GOAL}), {rounds} rounds"
    )
    return ratio >= GOAL


def _run(rows: int, readers: int = 0) -> float:
    """Messages per second of a run, with a console if it has readers."""
    with tempfile.TemporaryDirectory() as place:
        file, log = Path(place, "load.py"), Path(place, "log")
        file.write_text(PROGRAM.format(rows=rows))
        arguments = ["run", str(file), *(["--console", "--set", "console.port=0"] if readers else [])]
        with open(log, "wb") as written:
            process = subprocess.Popen(
                [sys.executable, "-m", "drivetrain.cli", *arguments],
                cwd=place,
                stdout=written,
                stderr=written,
            )
        over, unread = threading.Event(), list[str]()
        arguments_of_look = (log, over, readers, unread)
        looking = threading.Thread(target=_look, args=arguments_of_look) if readers else None
        if looking is not None:
            looking.start()
        status = process.wait()
        over.set()
        if looking is not None:
            looking.join()
        if status or unread:
            raise SystemExit("\n".join([*unread, log.read_text()]))
        (home,) = Path(place, ".drivetrain").glob("load-*")
        last = read_last_run(home)
        if last is None:
            raise SystemExit("the run has left no end")
        return rows / ((last.status.now_ms - last.status.started_ms) / 1000)


def _look(log: Path, over: threading.Event, readers: int, unread: list[str]) -> None:
    """Open pages of the run, and ask for metrics, until it is over."""
    while (found := re.search(r"console: (http\S+)\?token=(\S+)", log.read_text())) is None:
        if over.wait(0.1):
            return
    headers = {"Authorization": f"Bearer {found[2]}"}
    reading = threading.Thread(
        target=lambda: unread.extend(asyncio.run(_read_all(found[1], headers, over, readers)))
    )
    reading.start()
    with httpx.Client(base_url=found[1], headers=headers, trust_env=False) as http:
        while not over.wait(5):
            with contextlib.suppress(httpx.TransportError):
                http.get("metrics")
    reading.join()


async def _read_all(address: str, headers: dict[str, str], over: threading.Event, readers: int) -> list[str]:
    """Read streams until the run is over; returns what was wrong.

    What they take is thrown away, which costs nearly nothing.
    """
    paces_s = [SLOW_S if number % 10 == 9 else 0.0 for number in range(readers)]
    taken = await asyncio.gather(*(_read(address, headers, over, pace_s) for pace_s in paces_s))
    return [] if all(taken) else [f"{taken.count(0)} of {readers} readers got nothing"]


async def _read(address: str, headers: dict[str, str], over: threading.Event, pace_s: float) -> int:
    """Read one stream, again after it has ended; how many bytes came."""
    url, taken = httpx.URL(address), 0
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"GET {url.path}api/v1/events?app=load HTTP/1.1\r\nHost: {url.netloc.decode()}\r\n{lines}\r\n"
    while not over.is_set():
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(url.host, url.port)
            writer.write(request.encode())
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    content = await asyncio.wait_for(reader.read(65_536), 1)
                    if not content or (not taken and not content.startswith(b"HTTP/1.1 200")):
                        break
                    taken += len(content)
                await asyncio.sleep(pace_s)
            writer.close()
        await asyncio.sleep(0.5)
    return taken


# -- a large cluster ------------------------------------------------------------------------------------


class LargeCluster:
    """Answers at once what the console asks the client of a cluster; all figures grow with each look."""

    def __init__(self) -> None:
        self.system = self
        self.looks = 0
        self._began_ms = time.time_ns() // 1_000_000

    async def masters(self) -> tuple[MasterView, ...]:
        """One, which leads."""
        return (MasterView("127.0.0.1:7070", True, 1, 0),)

    async def workers(self) -> tuple[WorkerView, ...]:
        """As many as applications."""
        return tuple(
            WorkerView(f"w{n}", f"worker-{n}", f"host-{n}", 8, 2, self._began_ms) for n in range(APPLICATIONS)
        )

    async def applications(self) -> tuple[ApplicationSummary, ...]:
        """All of them, the newest first."""
        return tuple(
            ApplicationSummary(
                f"app{n}-{n}", f"app{n}", ApplicationState.ACTIVE, 1, self._began_ms, clock_ms=self.looks
            )
            for n in range(APPLICATIONS, 0, -1)
        )

    async def application(self, app: str) -> ApplicationView:
        """One of them."""
        name = app.partition("-")[0]
        spec = ApplicationSpec(name, "0" * 64, f"{name}.py")
        return ApplicationView(app, spec, ApplicationState.ACTIVE, 1, self._began_ms, clock_ms=self.looks)

    async def job_status(self, view: ApplicationView) -> JobStatus:
        """The status; `app1-1` is the large one."""
        self.looks += 1
        count = FRAGMENTS if view.app_id == "app1-1" else SMALL
        return status(view.app_id, count, self._began_ms, self.looks)

    async def history(self, view: ApplicationView) -> History:
        """One moment, which is now."""
        return History((moment_of(await self.job_status(view)),))

    async def close(self) -> None:
        """There is nothing to close."""


def status(app_id: str, fragments: int, began_ms: int, looks: int) -> JobStatus:
    """The status of an application whose fragments stand in a row, after so many looks."""
    return JobStatus(
        app_id,
        1,
        JobState.RUNNING,
        began_ms,
        began_ms + looks * 1_000,
        clock_ms=looks,
        fragments=tuple(
            FragmentView(
                f"f{n}",
                "running",
                1,
                executor="e1",
                worker="worker-1",
                batch_id=looks,
                rows_total=looks * 100 + n,
                rows_per_s=100.0,
                batch_ms=250,
                lag_rows=n,
                clock_ms=looks,
                channels=(ChannelProgress(f"f{n - 1}--f{n}", f"f{n - 1}", f"f{n}", lag_rows=n),) if n else (),
            )
            for n in range(fragments)
        ),
        counts={f"p{n}": (looks * 100, looks * 100, 0, 0) for n in range(fragments)},
    )


@contextlib.contextmanager
def _console(directory: Path) -> Iterator[httpx.Client]:
    """A console of the large cluster, in a thread."""
    made: dict[str, Any] = {}
    ready = threading.Event()

    async def client(_: Config) -> LargeCluster:
        return LargeCluster()

    def say(address: Any) -> None:
        made["address"] = address
        ready.set()

    async def serve() -> None:
        made["stop"], made["loop"] = asyncio.Event(), asyncio.get_running_loop()
        sets = {"cluster.masters": "127.0.0.1:1", "console.port": "0", "console.directory": str(directory)}
        await server.serve(Config.load(sets=sets), made["stop"], say)

    put_in: Any = server
    put_in.open_client, put_in.Client = client, lambda system, masters, timeout_ms: system
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    headers = {"Authorization": f"Bearer {made['address'].token}"}
    base = f"{made['address'].address}api/v1/"
    try:
        with httpx.Client(base_url=base, headers=headers, trust_env=False, timeout=60) as http:
            yield http
    finally:
        made["loop"].call_soon_threadsafe(made["stop"].set)
        thread.join()


def page(requests: int) -> bool:
    """Time what the pages of a large cluster ask for."""
    met = True
    with tempfile.TemporaryDirectory() as place, _console(Path(place)) as http:
        for path in ("applications?limit=500", "cluster", "applications/app1-1", "applications/app2-2"):
            http.get(path)
            took_ms, cpu_s = [], time.process_time()
            for _ in range(requests):
                began_s = time.perf_counter()
                answer = http.get(path)
                took_ms.append((time.perf_counter() - began_s) * 1000)
                answer.raise_for_status()
            cpu_ms = (time.process_time() - cpu_s) * 1000 / requests
            median = statistics.median(took_ms)
            met &= median < PAGE_GOAL_MS
            print(
                f"page         {path:24} {median:7.1f} ms, longest {max(took_ms):7.1f} ms, of that CPU "
                f"{cpu_ms:6.1f} ms, {len(answer.content) / 1000:6,.0f} kB (goal < {PAGE_GOAL_MS:g} ms)"
            )
    return met


if __name__ == "__main__":
    sys.exit(main())
