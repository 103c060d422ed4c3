"""The clock service at 1,000 fragments: how long one report takes, and one look for stalls.

    python -m benchmarks.clock [--quick] [--fragments N]

Fragments are layers of a graph, ten wide, each reading from three of the layer above. Every report moves the
clock of the fragment that holds the application's, which is the dearest: the smallest changes each time. The
peer is the same by a full scan.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from drivetrain.core.clock.clock_service import (
    ClockedFragment,
    ClockPersisted,
    ClockService,
    FragmentReported,
    FragmentsChanged,
    PersistClock,
)

WIDTH = 10
GOAL_MS = 1.0


def graph(count: int, seed: int = 7) -> tuple[ClockedFragment, ...]:
    """Layers of fragments, each behind three of the layer above."""
    rng = random.Random(seed)
    found: list[ClockedFragment] = []
    for number in range(count):
        layer = number // WIDTH
        above = range((layer - 1) * WIDTH, layer * WIDTH) if layer else range(0)
        ups = rng.sample(above, 3) if layer else []
        found.append(ClockedFragment(f"f{number}", tuple(f"f{up}" for up in ups)))
    return tuple(found)


def reports(service: ClockService, names: list[str], rounds: int) -> list[float]:
    """Milliseconds of each report, effects performed: fragment after fragment moves on by one."""
    times = []
    for clock_ms in range(1, rounds + 1):
        for name in names:
            began = time.perf_counter_ns()
            effects = service.step(FragmentReported(name, 0, clock_ms), clock_ms)
            for effect in effects:
                if isinstance(effect, PersistClock):
                    service.step(ClockPersisted(effect.clock_ms), clock_ms)
            times.append((time.perf_counter_ns() - began) / 1e6)
    return times


def scans(names: list[str], rounds: int) -> list[float]:
    """The same by looking at all clocks after each report."""
    clocks, told, times = dict.fromkeys(names, 0), 0, []
    for clock_ms in range(1, rounds + 1):
        for name in names:
            began = time.perf_counter_ns()
            clocks[name] = clock_ms
            told = max(told, min(clocks.values()))
            times.append((time.perf_counter_ns() - began) / 1e6)
    assert told == rounds
    return times


def timed(function: Callable[[], object], rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        function()
        times.append((time.perf_counter_ns() - began) / 1e6)
    return times


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fragments", type=int, default=1_000)
    given = parser.parse_args()
    rounds = 3 if given.quick else 50
    fragments = graph(given.fragments)
    names = [fragment.id for fragment in fragments]
    service = ClockService(0, None, persist_ms=1, stall_ms=60_000)
    service.step(FragmentsChanged(fragments), 0)
    ours = reports(service, names, rounds)
    assert service.clock_ms == rounds
    looks = timed(lambda: service.stalls(1_000_000), rounds)
    assert len(service.stalls(1_000_000)) == given.fragments
    print(f"{given.fragments:,} fragments, {len(ours):,} reports; milliseconds")
    for name, times in (
        ("a report", ours),
        ("a report, by a full scan", scans(names, rounds)),
        ("a look for stalls, when all stall", looks),
    ):
        ordered = sorted(times)
        worst = ordered[min(len(ordered) - 1, int(len(ordered) * 0.999))]
        print(f"  {name:36} median {statistics.median(times):.4f}  99.9 % {worst:.4f}")
    reached = statistics.median(ours) < GOAL_MS
    print(f"goal: a report below {GOAL_MS:g} ms: {'reached' if reached else 'missed'}")
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
