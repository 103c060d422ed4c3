"""What a query's batches measured, joined with Spark's reports; Python code, measured in workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.job.fragment_figures import NO_FIGURES
from drivetrain.spark.batch.query_figures import BlockedTime, CompletedBatch, QueryFigures
from drivetrain.spark.batch.user_counters import PythonWork
from drivetrain.spark.compile.python_work import MeasuredBuckets, MeasuredStage, measured
from drivetrain.spark.measure.batch_times import BatchTimes, Phase


def report(batch: int, **durations: int) -> Any:
    operator = SimpleNamespace(
        numRowsTotal=7,
        memoryUsedBytes=100,
        allUpdatesTimeMs=5,
        allRemovalsTimeMs=1,
        commitTimeMs=2,
        customMetrics={"rocksdbSstFileSize": 20},
        numShufflePartitions=4,
    )
    known = {"triggerExecution": 100, "addBatch": 60, "walCommit": 10, "queryPlanning": 5, **durations}
    return SimpleNamespace(batchId=batch, durationMs=known, stateOperators=[operator])


def ran(
    batch: int, *, ended_ms: int = 1_000, newest_ms: int | None = None, took: bool = True
) -> CompletedBatch:
    clock = iter(range(0, 10**12, 20_000_000))
    times = BatchTimes(lambda: next(clock))
    with times.spending(Phase.SINK, "db"):
        pass
    return CompletedBatch(batch, ended_ms, newest_ms, took, times, PythonWork(40, 30, 2))


def test_spark_and_the_steps_of_the_batch_are_joined_by_its_number() -> None:
    figures = QueryFigures(2, lambda: BlockedTime({"a--b": 9}, 4))
    figures.ran(ran(0))
    figures.reported(report(0), 50)
    told = figures.look(0, None, ["read/1"])
    assert told.last.phases.sink_ms == 20
    assert told.last.phases.log_ms == 10
    assert told.last.phases.together_ms == 100
    assert told.last.sinks_ms == {"db": 20}
    assert (told.last.python_ms, told.last.python_longest_ms, told.last.python_tasks) == (40, 30, 2)
    assert (told.last.state_ms, told.state_rows, told.state_bytes) == (8, 7, 120)
    assert told.state_partitions == 4
    assert told.counters.blocked_ms == {"a--b": 9}
    assert told.blocked_now_ms == 4
    assert told.silent_partitions == ("read/1",)
    figures.reported(report(1), 0)  # of which nothing was measured here
    assert figures.look(1, None, []).counters.batches == 2
    told.check()


def test_another_query_of_the_attempt_goes_on_counting() -> None:
    first = QueryFigures(2, lambda: BlockedTime({"a--b": 9}))
    first.reported(report(0), 50)
    second = QueryFigures(2, lambda: BlockedTime({"a--b": 1, "a--c": 2}))
    second.go_on(first.look(0, None, []))
    second.reported(report(1), 50)
    told = second.look(1, None, [])
    told.check(first.look(0, None, []))
    assert told.counters.batches == 2
    assert told.counters.blocked_ms == {"a--b": 10, "a--c": 2}


def test_latency_is_from_the_newest_timestamp_to_when_the_outputs_have_the_batch() -> None:
    figures = QueryFigures(1, BlockedTime)
    figures.ran(ran(0, ended_ms=5_000, newest_ms=4_000))
    figures.ran(ran(1, ended_ms=6_000, newest_ms=3_000))
    figures.ran(ran(2, ended_ms=9_000, newest_ms=1, took=False))
    told = figures.look(2, 77, [])
    assert (told.latency_p50_ms, told.latency_p99_ms, told.latency_batches) == (1_000, 3_000, 2)


def test_of_channels_only_the_newest_batch_has_a_latency() -> None:
    figures = QueryFigures(1, BlockedTime)
    figures.ran(ran(0, ended_ms=5_000))
    figures.ran(ran(1, ended_ms=6_000))
    told = figures.look(1, 4_500, [])
    assert (told.latency_p50_ms, told.latency_batches) == (1_500, 1)
    assert QueryFigures(1, BlockedTime).look(-1, None, []) == NO_FIGURES


def test_results_that_a_checkpoint_publishes_are_shown_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.spark.batch.query_figures.time.time", lambda: 20.0)
    figures = QueryFigures(1, BlockedTime)
    figures.publishes_later = lambda: True
    for batch in range(3):
        figures.ran(ran(batch, ended_ms=5_000, newest_ms=4_000 + batch))
    assert figures.look(2, None, []).latency_batches == 0
    figures.published(1)
    told = figures.look(2, None, [])
    assert (told.latency_p50_ms, told.latency_p99_ms, told.latency_batches) == (15_999, 16_000, 2)


def test_alignment_is_of_the_last_checkpoint_and_adds_up() -> None:
    figures = QueryFigures(1, BlockedTime)
    figures.aligned(7, 30)
    figures.aligned(8, 12)
    told = figures.look(-1, None, [])
    assert (told.alignment_txid, told.alignment_ms, told.counters.aligning_ms) == (8, 12, 42)


def test_the_input_that_python_code_waits_for_is_not_its_time() -> None:
    now = 0

    def source() -> Iterator[int]:
        nonlocal now
        for n in range(3):
            now += 1_000
            yield n

    def stage(numbers: Iterator[int]) -> Iterator[int]:
        nonlocal now
        for n in numbers:
            now += 10
            yield n * 2
        now += 1

    spent: list[int] = []
    assert list(measured(stage, source(), spent.append, lambda: now)) == [0, 2, 4]
    assert spent == [31]


@given(st.lists(st.integers()), st.integers(0, 5))
def test_a_measured_function_gives_what_it_gives_and_raises_what_it_raises(
    numbers: list[int], fails_at: int
) -> None:
    def stage(given_numbers: Iterator[int]) -> Iterator[int]:
        for n, number in enumerate(given_numbers):
            if n == fails_at:
                raise ValueError("mine")
            yield number + 1

    def outcome(made: Iterator[int]) -> tuple[list[int], bool]:
        taken: list[int] = []
        try:
            taken.extend(made)
        except ValueError:
            return taken, True
        return taken, False

    spent: list[int] = []
    assert outcome(measured(stage, iter(numbers), spent.append)) == outcome(stage(iter(numbers)))
    assert len(spent) == 1


def test_a_measured_stage_can_be_sent_and_counts_nothing_where_nobody_counts() -> None:
    sent = pickle.loads(pickle.dumps(MeasuredStage(iter)))
    assert list(sent([1, 2])) == [1, 2]


def test_rows_that_spark_does_not_count_are_unknown() -> None:
    figures = QueryFigures(2, BlockedTime, counts_rows=False)
    figures.ran(ran(0))
    figures.reported(report(0), 50)
    told = figures.look(0, None, [])
    assert (told.state_rows, told.state_bytes) == (None, 120)


def test_a_state_that_has_timed_out_is_given_a_list() -> None:
    def function(key: int, frames: Iterator[int], state: object) -> Iterator[int]:
        yield key + sum(frames)

    assert list(MeasuredBuckets(function)(1, [2, 3], None)) == [6]
    assert list(MeasuredBuckets(function)(1, [], None)) == [1]
