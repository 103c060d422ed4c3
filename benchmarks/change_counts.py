"""What happens between two results when a branch is swapped: calls into Java, jobs, durable writes, CPU time.

Unlike times, the counts are the same on a busy machine. A thousand messages a second pass a filter; the
change is another filter. Counted is what the thread of the batches does from one result to the next: usually,
and from the last result of the version before to the first of the new one, and to the second, which may still
be on trial. CPU time is that of the thread in Python, and that of all of Java, which compiles meanwhile, too.
The last column is how long Java took to compile code that Spark generated.

    python -m benchmarks.change_counts [--changes 10]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import counted_results, peers
from benchmarks.counted_results import COLUMNS, RESULTS
from benchmarks.java_calls import counted_calls
from drivetrain import Application, sinks, sources, start

COLD = 2
BETWEEN = 8


def application(version: int) -> Application:
    app = Application("counted")
    read = app.read(sources.generate(rate_per_s=1000, every="10 s", columns={"n": "id"}), name="read")
    changed = read.filter(f"n >= -{version}", name="large")
    changed.sink(sinks.batches(lambda _table, _id: counted_results.RESULTS.note(version)), name="shown")
    return app


def firsts(changes: int) -> list[int]:
    """The first results of the versions that count."""
    found = [at for at in range(1, len(RESULTS.seen)) if RESULTS.seen[at][0] != RESULTS.seen[at - 1][0]]
    return found[-changes:]


def row(name: str, counted: Sequence[tuple[float, ...]]) -> str:
    """A line of the report: medians."""
    return f"{name:24}" + "".join(
        f"{statistics.median(column):>14.1f}" for column in zip(*counted, strict=True)
    )


def main() -> int:
    """Run it; prints the report."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--changes", type=int, default=10)
    changes = parser.parse_args().changes
    with tempfile.TemporaryDirectory() as work, counted_calls() as RESULTS.calls:
        RESULTS.count_fsyncs()
        with start(application(1), peers.config(Path(work))) as running:
            for version in range(2, changes + COLD + 2):
                RESULTS.wait_for_more(BETWEEN, running)
                running.update(application(version), "2 min")
            RESULTS.wait_for_more(BETWEEN, running)
    at = firsts(changes)
    print(f"{'':24}" + "".join(f"{name:>14}" for name in COLUMNS))
    print(row("usual", [RESULTS.between(n) for first in at for n in range(first + 3, first + BETWEEN - 3)]))
    print(row("first of a version", [RESULTS.between(first) for first in at]))
    print(row("second of a version", [RESULTS.between(first + 1) for first in at]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
