"""Python state on Spark's keyed state, with a small stand-in for Spark: packing, state, timeouts."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from drivetrain.api import partitioners
from drivetrain.api.expressions.columns import col
from drivetrain.api.operations import Fold, Process
from drivetrain.api.states.folds import FoldMonoid, ReduceMonoid
from drivetrain.api.states.monoids import Monoid
from drivetrain.api.task import Task, TaskContext
from drivetrain.api.types import message_type
from drivetrain.api.windows import Window, everything, session, sliding, tumbling
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.errors import OperatorError
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.compile.keyed import (
    BUCKETS,
    FoldFunction,
    FoldPack,
    TaskFunction,
    TaskPack,
    Unpack,
    bucket_of,
)
from drivetrain.spark.compile.message_payloads import MessageForm, entries_of
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered
from nightly_run import examples

TS_TYPE = pa.timestamp("us", "UTC")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class FakeGroupState:
    """What `FoldFunction` and `TaskFunction` use of Spark's GroupState, for one group.

    Refuses what Spark refuses: a timeout that does not lie after the watermark.
    """

    def __init__(self) -> None:
        self.blob: tuple[bytes] | None = None
        self.watermark_ms = 0
        self.timeout_ms: int | None = None
        self.hasTimedOut = False

    @property
    def exists(self) -> bool:
        return self.blob is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.blob is not None
        return self.blob

    def getCurrentWatermarkMs(self) -> int:
        return watermark_of(self.watermark_ms)

    def update(self, value: tuple[bytes]) -> None:
        self.blob = value

    def remove(self) -> None:
        self.blob = None
        self.timeout_ms = None

    def setTimeoutTimestamp(self, timeout_ms: int) -> None:
        assert timeout_ms > watermark_of(self.watermark_ms), "Spark refuses a timeout that is over"
        self.timeout_ms = timeout_ms


class Bucket:
    """One group: calls the function as Spark does, with data or when the watermark passes the timeout."""

    def __init__(self, function: Any, key: int = 0) -> None:
        self.function = function
        self.key = key
        self.state = FakeGroupState()
        self.results: list[tuple[Any, Any, int]] = []
        self.late = 0

    def batch(self, payloads: list[bytes]) -> None:
        frames = iter([pd.DataFrame({"payload": [p]}) for p in payloads])
        self._call(frames, timed_out=False)

    def clock(self, watermark_ms: int) -> None:
        """Move the watermark; a timeout that it passes fires once."""
        self.state.watermark_ms = watermark_ms
        if self.state.timeout_ms is not None and self.state.timeout_ms < watermark_of(watermark_ms):
            self._call(iter([pd.DataFrame({"payload": []})]), timed_out=True)

    def _call(self, frames: Iterator[pd.DataFrame], *, timed_out: bool) -> None:
        self.state.hasTimedOut = timed_out
        self.state.timeout_ms = None  # Spark forgets a timeout at every call
        for out in self.function((self.key,), frames, self.state):
            for payload, late in zip(out["payload"], out["late"], strict=True):
                self.late += late
                results = cloudpickle.loads(payload) if payload is not None else []
                self.results += [(lead, value, us // 1000) for lead, value, us in results]


class Sorted(Monoid[int, list[int]]):
    def zero(self) -> list[int]:
        return []

    def add(self, state: list[int], message: int) -> list[int]:
        return sorted([*state, message])

    def plus(self, left: list[int], right: list[int]) -> list[int]:
        return sorted([*left, *right])

    def result(self, state: list[int]) -> list[int]:
        return state


def fold(window: Window, monoid: Monoid[Any, Any] | None = None, keys: tuple[str, ...] = ("key",)) -> Fold:
    return Fold(
        tuple((k, col(k)) for k in keys), window, monoid or Sorted(), message_type(list[int]), "value"
    )


def batch(messages: list[tuple[str, int, int]]) -> pa.RecordBatch:
    """Rows (key, timestamp ms, n)."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([k for k, _, _ in messages], pa.string()),
            pa.array([n for _, _, n in messages], pa.int64()),
            pa.array([ts * 1000 for _, ts, _ in messages], pa.int64()).cast(TS_TYPE),
        ],
        names=["key", "n", "__ts"],
    )


def packed(operation: Fold, *batches: pa.RecordBatch) -> dict[int, list[bytes]]:
    pack = FoldPack(
        operation, tuple(k for k, _ in operation.keys), ("n",), None, "fold (app.py:3)", timed=True
    )
    out: dict[int, list[bytes]] = defaultdict(list)
    for made in pack(batches):
        for bucket, payload in zip(
            made.column("bucket").to_pylist(), made.column("payload").to_pylist(), strict=True
        ):
            out[bucket].append(payload)
    return out


# -- folds against one pass over all messages --------------------------------------------------------------

rows = st.tuples(st.sampled_from("abcdef"), st.integers(0, 99), st.integers(0, 9))


def expected_fixed(window: Window, messages: list[tuple[str, int, int]]) -> list[Any]:
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, ts, n in messages:
        for start in range(-200 * window.step_ms, 200 * window.step_ms, window.step_ms):
            if start <= ts < start + window.size_ms:
                groups[key, start].append(n)
    return sorted((k, s, sorted(v), s + window.size_ms - 1) for (k, s), v in groups.items())


def expected_sessions(gap: int, messages: list[tuple[str, int, int]]) -> list[Any]:
    made = []
    for key in {k for k, _, _ in messages}:
        mine = sorted((ts, n) for k, ts, n in messages if k == key)
        runs = [[mine[0]]]
        for entry in mine[1:]:
            if entry[0] - runs[-1][-1][0] > gap:
                runs.append([])
            runs[-1].append(entry)
        made += [(key, r[0][0], sorted(n for _, n in r), r[-1][0] + gap - 1) for r in runs]
    return sorted(made)


def found(buckets: dict[int, Bucket]) -> list[Any]:
    return sorted(
        (lead[0], round(lead[1].timestamp() * 1000), value, ts)
        for b in buckets.values()
        for lead, value, ts in b.results
    )


@given(
    st.lists(rows, max_size=40),
    st.sampled_from([tumbling("10 ms"), sliding("20 ms", "10 ms"), session("7 ms")]),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_folds_are_those_of_one_pass_however_batches_fall_and_the_clock_moves(
    messages: list[tuple[str, int, int]], window: Window, size: int, clock_moves: bool
) -> None:
    messages = sorted(messages, key=lambda m: m[1]) if clock_moves else messages
    operation = fold(window)
    buckets: dict[int, Bucket] = defaultdict(lambda: Bucket(FoldFunction(operation, "fold (app.py:3)")))
    for i in range(0, len(messages), size):
        part = messages[i : i + size]
        for bucket, payloads in packed(operation, batch(part)).items():
            buckets[bucket].batch(payloads)
        if clock_moves:
            # Behind everything that comes, so that nothing is late and no session is torn.
            for b in buckets.values():
                b.clock(part[-1][1] - 1 if part[-1][1] else 0)
    for b in buckets.values():
        for clock in (150, FINAL_CLOCK_MS):
            b.state.watermark_ms = max(b.state.watermark_ms, clock)
            b.clock(b.state.watermark_ms)
        assert b.late == 0
        assert not b.state.exists, "a fired window leaves nothing behind"
    expected = (
        expected_sessions(window.size_ms, messages)
        if window.kind == "session"
        else expected_fixed(window, messages)
    )
    assert found(buckets) == expected


def test_a_window_fires_at_most_one_millisecond_after_its_end() -> None:
    operation = fold(tumbling("10 ms"))
    ((_, payloads),) = packed(operation, batch([("a", 3, 1)])).items()
    bucket = Bucket(FoldFunction(operation, "f"))
    bucket.batch(payloads)
    bucket.clock(9)
    assert bucket.results == []
    bucket.clock(11)
    assert [v for _, v, _ in bucket.results] == [[1]]


def test_late_messages_are_counted_and_change_nothing() -> None:
    operation = fold(tumbling("10 ms"))
    ((_, payloads),) = packed(operation, batch([("a", 3, 1)])).items()
    bucket = Bucket(FoldFunction(operation, "f"))
    bucket.clock(10)
    bucket.batch(payloads)
    assert (bucket.late, bucket.results, bucket.state.exists) == (1, [], False)


def test_messages_that_another_processor_reads_as_late_are_not_packed() -> None:
    messages = batch([("a", 3, 1), ("a", 13, 2)])
    told = messages.append_column("__before", pa.array([10, 10], pa.int64()))
    operation = fold(tumbling("10 ms"))
    ((_, (payload,)),) = packed(operation, told).items()
    assert [g for g, _ in cloudpickle.loads(payload)] == [(("a",), 10_000, 20_000)]


def test_monoids_add_up_before_the_shuffle_and_folds_keep_each_message() -> None:
    messages = batch([("a", 1, 5), ("a", 2, 3), ("a", 3, 4)])
    ((_, (summed,)),) = packed(fold(tumbling("10 ms"), ReduceMonoid(max)), messages).items()
    assert cloudpickle.loads(summed) == [((("a",), 0, 10_000), 5)]
    ((_, (each,)),) = packed(fold(tumbling("10 ms"), FoldMonoid(int, max)), messages).items()
    assert [n for _, n in cloudpickle.loads(each)] == [5, 3, 4]


def test_groups_without_keys_meet_in_one_bucket() -> None:
    made = packed(fold(everything(), keys=()), batch([("a", 1, 5), ("b", 2, 3)]))
    ((_, (payload,)),) = made.items()
    assert [state for _, state in cloudpickle.loads(payload)] == [[3, 5]]


@given(st.tuples(st.text(), st.integers(), st.none() | st.dates()))
def test_a_key_has_one_bucket_that_does_not_depend_on_the_process(key: tuple[Any, ...]) -> None:
    assert 0 <= bucket_of(key) < BUCKETS
    assert bucket_of(key) == bucket_of(cloudpickle.loads(cloudpickle.dumps(key)))


def test_buckets_are_the_same_in_every_version() -> None:
    """State is found again by these numbers: they must never change."""
    assert [bucket_of(k) for k in [("a",), ("b",), (), (1, "x"), (None,)]] == BUCKETS_OF_OLD


BUCKETS_OF_OLD = [13, 3, 25, 3, 28]


class Refusing(Monoid[int, int]):
    def zero(self) -> int:
        return 0

    def add(self, state: int, message: int) -> int:
        if message == 7:
            raise ValueError("no sevens")
        return state + message

    def plus(self, left: int, right: int) -> int:
        raise ValueError("no joining")

    def result(self, state: int) -> int:
        return state


def test_an_error_of_a_monoid_names_its_message_where_there_is_one() -> None:
    operation = fold(tumbling("10 ms"), Refusing())
    with pytest.raises(EmbeddedError) as caught:
        packed(operation, batch([("a", 1, 5), ("a", 1, 7)]))
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert (error.message, error.what) == ("7", "ValueError: no sevens")
    ((_, payloads),) = packed(operation, batch([("a", 1, 5)]), batch([("a", 1, 6)])).items()
    with pytest.raises(EmbeddedError) as caught:
        Bucket(FoldFunction(operation, "fold (app.py:3)")).batch(payloads)
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert (error.operator, error.what) == ("fold (app.py:3)", "ValueError: no joining")


# -- stateful tasks -----------------------------------------------------------------------------------


class Running(Task[str, str]):
    """Counts messages; tells of its clock and of its end."""

    stateful = True

    def on_start(self, context: TaskContext) -> None:
        self.index = context.index
        self.n = 0

    def on_next(self, message: str) -> Iterable[str]:
        self.n += 1
        yield f"{message} {self.n}"

    def on_clock(self, clock_ms: int) -> Iterable[str]:
        if self.n:
            yield f"clock {clock_ms} after {self.n}"

    def on_stop(self) -> Iterable[str]:
        yield f"task {self.index} had {self.n}"


TASK_FORM = MessageForm(("value",), None, timed=True)


def task_bucket(task: Any = Running, key: int = 2) -> Bucket:
    operation = Process(task, "T", message_type(str), 3, (partitioners.hash(),), True, False)
    return Bucket(TaskFunction(operation, "t", "t (app.py:5)", TASK_FORM), key)


def task_payloads(rows_: list[tuple[int, int, str]]) -> dict[int, list[bytes]]:
    """From (task, timestamp ms, message)."""
    made = pa.RecordBatch.from_arrays(
        [
            pa.array([m for _, _, m in rows_], pa.string()),
            pa.array([t for t, _, _ in rows_], pa.int32()),
            pa.array([ts * 1000 for _, ts, _ in rows_], TS_TYPE),
        ],
        names=["value", "__to", "__ts"],
    )
    out: dict[int, list[bytes]] = defaultdict(list)
    for b in TaskPack(TASK_FORM)([made]):
        for bucket, payload in zip(
            b.column("bucket").to_pylist(), b.column("payload").to_pylist(), strict=True
        ):
            out[bucket].append(payload)
    return out


def test_sessions_are_exact_in_microseconds() -> None:
    """One exactly a gap after another begins a session; one a microsecond sooner does not."""
    times_us = [5, 10_004, 20_004, 30_003]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["k"] * 4), pa.array(range(4)), pa.array(times_us, TS_TYPE)], names=["key", "n", "__ts"]
    )
    operation = fold(session("10 ms"))
    (bucket, payloads), *others = packed(operation, rows).items()
    assert not others
    one = Bucket(FoldFunction(operation, "fold (app.py:3)"), bucket)
    one.batch(payloads)
    one.clock(20)
    assert one.results == []
    one.clock(22)
    (((_, start, end), value, stamp_ms),) = one.results
    assert (start, end) == (EPOCH + dt.timedelta(microseconds=5), EPOCH + dt.timedelta(microseconds=20_004))
    assert (value, stamp_ms) == ([0, 1], 20)
    one.clock(FINAL_CLOCK_MS)
    assert one.results[1][1:] == ([2, 3], 40)


def test_messages_are_packed_by_task_in_order_with_their_timestamps() -> None:
    made = task_payloads([(2, 5, "a"), (0, 6, "b"), (2, 4, "c")])
    found = {to: [e for p in payloads for e in entries_of(p, TASK_FORM)] for to, payloads in made.items()}
    assert found == {2: [(b"", [5_000, 4_000], ["a", "c"])], 0: [(b"", [6_000], ["b"])]}


def test_attributes_live_from_batch_to_batch_and_hooks_hear_of_clock_and_end() -> None:
    bucket = task_bucket()
    bucket.batch(task_payloads([(2, 5, "a")])[2])
    bucket.state.watermark_ms = 7
    bucket.batch(task_payloads([(2, 9, "b")])[2])
    bucket.clock(20)
    bucket.clock(FINAL_CLOCK_MS)
    last = FINAL_CLOCK_MS - 1
    assert [(value, ts) for _, value, ts in bucket.results] == [
        ("a 1", 5),
        ("clock 0 after 1", 0),
        ("b 2", 9),
        ("clock 7 after 2", 7),
        ("clock 20 after 2", 20),
        (f"clock {FINAL_CLOCK_MS} after 2", last),
        ("task 2 had 2", last),
    ]


def test_the_end_is_told_once() -> None:
    bucket = task_bucket()
    bucket.batch(task_payloads([(2, 5, "a")])[2])
    for _ in range(3):
        bucket.clock(FINAL_CLOCK_MS)
    assert [v for _, v, _ in bucket.results].count("task 2 had 1") == 1


def test_a_task_that_fails_leaves_its_state_as_it_was() -> None:
    class Picky(Running):
        def on_next(self, message: str) -> Iterable[str]:
            self.n += 1
            if message == "bad":
                raise ValueError("bad message")
            yield message

    bucket = task_bucket(Picky)
    bucket.batch(task_payloads([(2, 5, "good")])[2])
    before = bucket.state.blob
    with pytest.raises(EmbeddedError) as caught:
        bucket.batch(task_payloads([(2, 6, "good"), (2, 6, "bad")])[2])
    assert bucket.state.blob == before
    error = recovered(str(caught.value))
    assert isinstance(error, OperatorError)
    assert (error.operator, error.message) == ("t (app.py:5)", "'bad'")


# -- behind the trunk -----------------------------------------------------------------------------------


def test_results_are_unpacked_into_typed_columns_with_their_timestamps() -> None:
    names = StructType(
        [
            StructField("key", StringType()),
            StructField("window_start", TimestampType()),
            StructField("window_end", TimestampType()),
            StructField("total", LongType()),
        ]
    )
    utc = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    results = [(("a", utc, utc), 5, 1_000_000), ((None, utc, utc), None, 2_000_001)]
    payloads = pa.RecordBatch.from_pydict(
        {"payload": [cloudpickle.dumps(results[:1]), cloudpickle.dumps(results[1:])]}
    )
    (out,) = Unpack(names, 3, message_type(int), "fold (app.py:3)")([payloads])
    assert out.schema.names == ["key", "window_start", "window_end", "total", "__ts"]
    assert out.column("key").to_pylist() == ["a", None]
    assert out.column("window_start").to_pylist() == [utc, utc]
    assert out.column("total").to_pylist() == [5, None]
    assert out.column("__ts").cast(pa.int64()).to_pylist() == [1_000_000, 2_000_001]


def test_an_empty_batch_of_results_has_the_columns_all_the_same() -> None:
    names = StructType([StructField("key", StringType()), StructField("total", LongType())])
    empty = pa.RecordBatch.from_pydict({"payload": pa.array([], pa.binary())})
    (out,) = Unpack(names, 1, message_type(int), "fold (app.py:3)")([empty])
    assert (out.num_rows, out.schema.names) == (0, ["key", "total", "__ts"])


def test_a_result_that_does_not_fit_is_an_error_of_its_operator() -> None:
    names = StructType([StructField("total", LongType())])
    payload = pa.RecordBatch.from_pydict({"payload": [cloudpickle.dumps([((), "many", 0)])]})
    with pytest.raises(EmbeddedError) as caught:
        list(Unpack(names, 0, message_type(int), "fold (app.py:3)")([payload]))
    assert "got 'many' (str)" in str(recovered(str(caught.value)))
