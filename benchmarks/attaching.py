"""How soon an attached fragment gives results, and what the rest of the application loses meanwhile.

    python -m benchmarks.attaching [--quick]

A generator passes a filter; windows of ten seconds of event time are attached to it while it runs, in a
fragment of their own, and removed again. Their first window is not whole, so the first result is that of the
second one.

- *with room*: 20,000 messages a second, which leaves most of two cores free.
- *without room*: more messages than the application can take, so the new fragment competes for the cores.

Reported are the seconds from the call of `attach` to the first result, and the messages per second that pass
the filter from the call until two seconds after that result, as a share of the ten seconds before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import arrivals, peers
from drivetrain import Application, Stream, agg, sinks, sources, start, windows

RATES = {"with room": 20_000, "without room": 3_000_000}
ONE_OF = 100
"""The filter keeps one message of so many, so that counting them costs little."""
BEFORE_S = 10.0
AFTER_S = 2.0
PATIENCE_S = 120.0
GOAL_SHARE = 0.9


@dataclass
class Attached:
    """The figures of one fragment that was attached."""

    first_s: float
    share: float


def application(rate_per_s: int) -> Application:
    app = Application("attaching")
    read = app.read(sources.generate(rate_per_s=rate_per_s, every="1 ms", columns={"n": "id"}), name="read")
    kept = read.filter(f"n % {ONE_OF} = 0", name="kept")
    kept.sink(sinks.batches(lambda table, _id: arrivals.MAPPED.note(table.num_rows)), name="counted")
    return app


def windowed(read: Stream) -> None:
    counted = read.window(windows.tumbling("10 s")).aggregate(n=agg.count(), step="windowed")
    counted.sink(sinks.batches(lambda table, _id: arrivals.WINDOWED.note(table.num_rows)), name="shown")


def per_s(began_s: float, ended_s: float) -> float:
    """Messages that passed the filter per second, from the first batch of a span to its last."""
    batches = [(at, rows) for at, rows in arrivals.MAPPED.batches() if began_s <= at <= ended_s]
    if len(batches) < 2:
        raise RuntimeError("too few batches came out to measure a rate")
    return ONE_OF * sum(rows for _, rows in batches[1:]) / (batches[-1][0] - batches[0][0])


def measured(rate_per_s: int, times: int, work: Path) -> list[Attached]:
    """Attach and remove the windows so often; the first time does not count."""
    found: list[Attached] = []
    running = start(application(rate_per_s), peers.config(work))
    try:
        arrivals.MAPPED.wait_for_more(20)
        for _ in range(times + 1):
            time.sleep(BEFORE_S)
            seen, began_s = len(arrivals.WINDOWED.seen), time.perf_counter()
            running.attach(windowed, to="read", timeout="2 min")
            while not any(rows for _, rows in arrivals.WINDOWED.batches()[seen:]):
                if time.perf_counter() > began_s + PATIENCE_S:
                    raise TimeoutError(f"no result within {PATIENCE_S:.0f} s")
                time.sleep(0.01)
            first_s = next(at for at, rows in arrivals.WINDOWED.batches()[seen:] if rows) - began_s
            time.sleep(AFTER_S)
            before = per_s(began_s - BEFORE_S, began_s)
            found.append(Attached(first_s, per_s(began_s, time.perf_counter()) / before))
            running.remove("windowed", timeout="2 min", discard=True)
    finally:
        running.stop()
        running.wait("2 min")
    return found[1:]


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="attach once")
    times = 1 if parser.parse_args().quick else 5
    print(f"{'':14}{'first result, s':>16}{'worst':>8}{'rest, share':>13}{'worst':>8}")
    shares = {}
    for name, rate_per_s in RATES.items():
        with tempfile.TemporaryDirectory() as work:
            found = measured(rate_per_s, times, Path(work))
        first_s, share = [one.first_s for one in found], [one.share for one in found]
        shares[name] = statistics.median(share)
        line = f"{statistics.median(first_s):16.1f}{max(first_s):8.1f}{shares[name]:13.2f}{min(share):8.2f}"
        print(f"{name:14}{line}", flush=True)
    print(f"goal with room: {GOAL_SHARE} of the messages before")
    return 0 if shares["with room"] >= GOAL_SHARE else 1


if __name__ == "__main__":
    raise SystemExit(main())
