"""Where the time of real batches goes: the sink, the Python function and the state that take long are named.

What is slow is so by construction, not by the speed of the machine.
"""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from harness import Harness, at, events
from pyspark.sql import SparkSession

from drivetrain import Application, agg, sinks, windows
from drivetrain.core.diagnosis.causes import Part, cause_of
from drivetrain.core.job.fragment_figures import FragmentFigures
from drivetrain.core.job.run_progress import FragmentProgressed, ProgressEvent, QuietListener

SCHEMA = "ts timestamp, key int"


class Noting(QuietListener):
    """Keeps the figures of each batch, and checks that counters never fall."""

    def __init__(self) -> None:
        self.seen: dict[str, list[FragmentFigures]] = {}

    def on_event(self, event: ProgressEvent) -> None:
        if isinstance(event, FragmentProgressed):
            known = self.seen.setdefault(event.fragment, [])
            event.figures.check(known[-1] if known else None)
            known.append(event.figures)


class SlowSink:
    """Takes five times as long as all that happened since it was last called."""

    def __init__(self) -> None:
        self.ended_s = time.monotonic()

    def __call__(self, batch: pa.Table, _id: int) -> None:
        time.sleep(5 * (time.monotonic() - self.ended_s) + 0.1)
        self.ended_s = time.monotonic()


@pytest.mark.nightly("test_the_page_names_the_sink_that_is_slow")
def test_a_slow_sink_is_the_cause_and_latency_counts_from_the_newest_timestamp(drive: Harness) -> None:
    now_ms = int(time.time() * 1000)
    rows = [(at(now_ms - 3_600_000 + i), i) for i in range(30)]
    app, noting, sink = Application("slow-sink"), Noting(), SlowSink()
    events(app, rows, SCHEMA).sink(sinks.batches(sink), name="to-db")
    sink.ended_s = time.monotonic()
    result = drive.run(app, listener=noting, run__max_batch_rows="15")

    (fragment,) = result.fragments
    figures = fragment.figures
    cause = cause_of(figures)
    assert cause is not None
    assert (cause.part, cause.sink) == (Part.SINK, "to-db")
    assert figures.last.sinks_ms["to-db"] == figures.last.phases.sink_ms
    assert figures.last.phases.together_ms >= fragment.batch_ms
    assert figures.counters.batches == result.batches
    assert figures.counters.phases.sink_ms >= figures.last.phases.sink_ms
    assert figures.latency_batches >= 1
    assert figures.latency_p50_ms is not None
    assert figures.latency_p50_ms > 3_500_000
    assert figures.state_rows is None


def sleeping(message: Any) -> int:
    time.sleep(8 if message.key == 29 else 0)
    return int(message.key)


@pytest.mark.nightly("the slow sink, below")
def test_a_slow_python_function_is_the_cause(drive: Harness) -> None:
    app, noting = Application("slow-function"), Noting()
    rows = [(at(i), i) for i in range(30)]
    drive.sink(events(app, rows, SCHEMA).map(sleeping, returns=int))
    result = drive.run(app, listener=noting, run__max_batch_rows="15")

    assert len(drive.rows()) == 30
    figures = result.fragments[0].figures
    slowest = max(noting.seen[result.fragments[0].fragment], key=lambda told: told.last.python_ms)
    assert slowest.last.python_longest_ms >= 8_000
    assert slowest.last.python_tasks >= 1
    cause = cause_of(slowest)
    assert cause is not None
    assert cause.part is Part.PYTHON
    assert figures.counters.python_ms >= 8_000
    assert result.accumulators == {}


@pytest.mark.nightly("test_scaling reads the size of a state; others measure batches")
def test_a_state_is_measured_in_rows_bytes_and_time(drive: Harness) -> None:
    app, noting = Application("large-state"), Noting()
    keys = 20_000
    stream = events(app, [(at(i), i) for i in range(keys)], SCHEMA)
    drive.sink(stream.group_by("key").window(windows.tumbling("1 h")).aggregate(n=agg.count()))
    result = drive.run(app, listener=noting, run__max_batch_rows=str(keys // 2))

    (figures,) = [
        max(told, key=lambda one: one.state_rows or 0)
        for told in noting.seen.values()
        if any(one.state_rows for one in told)
    ]
    assert (figures.state_rows or 0) >= keys // 2
    assert (figures.state_bytes or 0) > keys
    assert figures.last.state_ms > 0
    assert sum(fragment.figures.counters.state_ms for fragment in result.fragments) > 0


def test_a_state_whose_rows_are_not_counted_has_a_size_in_bytes(drive: Harness, spark: SparkSession) -> None:
    app, noting = Application("uncounted-state"), Noting()
    stream = events(app, [(at(i), i) for i in range(100)], SCHEMA)
    drive.sink(stream.group_by("key").window(windows.tumbling("1 h")).aggregate(n=agg.count()))
    counting = "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows"
    try:
        uncounted = {f"spark.conf.{counting}": "false"}
        drive.run(app, listener=noting, run__max_batch_rows="50", **uncounted)
    finally:
        spark.conf.unset(counting)
    (seen,) = noting.seen.values()
    with_state = [figures for figures in seen if figures.state_bytes is not None]
    assert with_state
    assert all(figures.state_rows is None for figures in with_state)
