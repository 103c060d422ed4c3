"""Packing and keeping states as Spark's workers do it, without Spark."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest
from fake_group import FakeGroup
from pyspark import cloudpickle

from drivetrain import Monoid, PersistentTask, State, agg, windows
from drivetrain.api.operations import Process
from drivetrain.api.stream import process
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.state.paged_state import BUCKETS, bucket_of
from drivetrain.core.state.state_keys import decoded_key, encoded_key
from drivetrain.core.state.state_rules import EVER
from drivetrain.core.state.two_state import Picture, TwoStates
from drivetrain.errors import InputError, UserError
from drivetrain.runtime.state_pictures import Pictures
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.compile import persistent_packs
from drivetrain.spark.compile.message_payloads import MessageForm
from drivetrain.spark.compile.persistent_buckets import PersistentFunction
from drivetrain.spark.compile.persistent_packs import ColumnPack, MessagePack, SumPack
from drivetrain.spark.compile.persistent_rules import PlainCodec, rules_of
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered


class Task(PersistentTask[Any, tuple[str, float]]):
    key = "key"
    state = State(agg.count())

    def on_change(self, key: str, value: float) -> Iterable[tuple[str, float]]:
        return [(key, value)]


RUNS = itertools.count()


class Buckets:
    """Spark, as far as a persistent Task sees it: groups, batches, timeouts."""

    def __init__(self, task: type[PersistentTask[Any, Any]], pictures: str | None = None) -> None:
        self.operation = cast(Process, process(task, 1, (), None))
        self.rules = rules_of(self.operation)
        run = str(next(RUNS))
        form = MessageForm(("key", "n"), None, timed=True)
        self.function = PersistentFunction(self.operation, "task", "task", self.rules, pictures, run, form)
        self.groups: dict[int, FakeGroup] = defaultdict(FakeGroup)
        self.called: list[int] = []
        self.late = 0

    def batch(self, pack: Any, rows: list[pa.RecordBatch], clock_ms: int) -> list[tuple[Any, int]]:
        self.called = []
        payloads: dict[int, list[bytes]] = defaultdict(list)
        for packed in pack(iter(rows)):
            for bucket, payload in zip(*(packed.column(i).to_pylist() for i in (0, 1)), strict=True):
                payloads[bucket].append(payload)
        out = []
        for bucket in range(BUCKETS):
            group = self.groups[bucket]
            due = group.timeout_ms is not None and group.timeout_ms < watermark_of(clock_ms)
            if bucket in payloads or due:
                group.clock_ms, group.hasTimedOut = clock_ms, bucket not in payloads
                group.timeout_ms = None
                self.called.append(bucket)
                frame = pd.DataFrame({"payload": payloads[bucket]})
                out += list(self.function((bucket,), iter([frame]), group))
        self.late += sum(frame["late"][0] for frame in out)
        results = [r for frame in out if frame["payload"][0] for r in cloudpickle.loads(frame["payload"][0])]
        return [(value, ts_us // 1000) for _, value, ts_us in results]

    def states(self) -> Iterator[TwoStates[Any]]:
        for group in self.groups.values():
            yield TwoStates(self.rules, group.value[0] if group.value else None)

    def values(self) -> dict[Any, Any]:
        found = {}
        for states in self.states():
            for span, key, state in states.items():
                group = decoded_key(key) if span == EVER else (decoded_key(key), span)
                found[group] = self.rules.monoid.result(state)
        return found


def rows(data: list[tuple[int, Any, Any]]) -> pa.RecordBatch:
    ts, keys, numbers = zip(*data, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(numbers), pa.array([t * 1000 for t in ts], pa.timestamp("us", "UTC"))],
        names=["key", "n", "__ts"],
    )


def packs(spark: Buckets) -> dict[str, Any]:
    given = (spark.operation, "task", ("key",), ("key", "n"), None, True)
    rules = spark.rules
    return {
        "column": ColumnPack(*given, rules),
        "sum": SumPack(*given, rules),
        "message": MessagePack(*given),
    }


NAN, INFINITY = float("nan"), float("inf")
AGGREGATIONS = {
    "count": (agg.count(), len),
    "values": (agg.count("n"), lambda ns: len([n for n in ns if n is not None])),
    "sum": (agg.sum("n"), lambda ns: sum(present(ns)) if present(ns) else None),
    "min": (agg.min("n"), lambda ns: min(present(ns), default=None)),
    "max": (agg.max("n"), lambda ns: max(present(ns), default=None)),
    "mean": (agg.mean("n"), lambda ns: sum(present(ns)) / len(present(ns)) if present(ns) else None),
}


def present(numbers: list[int | None]) -> list[int]:
    return [n for n in numbers if n is not None]


@pytest.mark.parametrize("way", ["column", "column by column", "sum", "message"])
@pytest.mark.parametrize("name", AGGREGATIONS)
@pytest.mark.parametrize("timed", ["ever", "steps", "windows"])
def test_messages_packed_in_any_way_add_up_to_the_same(
    way: str, name: str, timed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregation, exact = AGGREGATIONS[name]
    window = windows.tumbling("10 ms") if timed == "windows" else None

    class Own(PersistentTask[Any, Any]):
        key = "key"
        state = State(aggregation, window=window, as_of="7 ms" if timed == "steps" else None)

    class Looking(Own):
        def on_next(self, message: Any) -> None:
            self.state.update(message)

    spark = Buckets(Looking if way == "message" else Own)
    draw = random.Random(4)
    data: list[tuple[int, Any, Any]] = [
        (draw.randrange(40), f"k{draw.randrange(50)}", draw.choice([None, 1, 5, -7])) for _ in range(900)
    ]
    size = 200
    if way == "column by column":  # groups are added up twice, and some travel before the end
        size = 20
        monkeypatch.setattr(persistent_packs, "_MANY", 15)
        monkeypatch.setattr(persistent_packs, "_GROUPS", 80)
    for begin in (0, 300, 600):
        batches = [rows(data[at : min(at + size, begin + 300)]) for at in range(begin, begin + 300, size)]
        spark.batch(packs(spark)[way.split()[0]], batches, 0)
    held: dict[Any, list[Any]] = defaultdict(list)
    for ts, key, n in data:
        held[(key, (ts // 10 * 10, ts // 10 * 10 + 10)) if window else key].append(n)
    assert spark.values() == {group: exact(ns) for group, ns in held.items()}


@pytest.mark.parametrize("way", ["column", "column by column", "sum", "message"])
@pytest.mark.parametrize(("name", "among", "alone"), [("min", -1.0, -INFINITY), ("max", NAN, INFINITY)])
def test_nan_is_larger_than_any_number_in_whatever_order_it_comes(
    way: str, name: str, among: float, alone: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(PersistentTask[Any, Any]):
        key = "key"
        state = State(AGGREGATIONS[name][0])

    class Looking(Own):
        def on_next(self, message: Any) -> None:
            self.state.update(message)

    if way == "column by column":
        monkeypatch.setattr(persistent_packs, "_MANY", 2)
        monkeypatch.setattr(persistent_packs, "_GROUPS", 3)
    for ordered in itertools.permutations([NAN, -1.0, 2.0, None]):
        spark = Buckets(Looking if way == "message" else Own)
        data = [(1, "a", n) for n in ordered]
        data += [(1, "b", NAN), (1, "b", None), (1, "c", INFINITY), (1, "c", -INFINITY), (1, "d", None)]
        spark.batch(packs(spark)[way.split()[0]], [rows(data[:3]), rows(data[3:6]), rows(data[6:])], 0)
        found = spark.values()
        assert repr(found["a"]) == repr(among)
        assert repr(found["b"]) == "nan"
        assert (found["c"], found["d"]) == (alone, None)


def test_each_changed_key_is_told_once_a_batch_with_the_clock_as_timestamp() -> None:
    spark = Buckets(Task)
    pack = packs(spark)["column"]
    first = spark.batch(pack, [rows([(1, "a", 1), (2, "b", 1), (3, "a", 1)])], 0)
    assert sorted(first) == [(("a", 2), 0), (("b", 1), 0)]
    assert spark.batch(pack, [rows([(9, "a", 1)])], 5) == [(("a", 3), 5)]


def test_a_bucket_without_messages_is_called_when_its_picture_is_due_and_not_again(tmp_path: Path) -> None:
    class Exact(Task):
        state = State(agg.count(), as_of="10 ms")

    spark = Buckets(Exact, str(tmp_path))
    pack = packs(spark)["column"]
    spark.batch(pack, [rows([(3, "a", 1), (14, "b", 1)])], 0)
    spark.batch(pack, [], 9)
    assert spark.called == []
    spark.batch(pack, [], 10)
    assert spark.called == [bucket_of(encoded_key("a"))]
    spark.batch(pack, [], 5_000)
    assert spark.called == [bucket_of(encoded_key("b"))]
    spark.batch(pack, [], FINAL_CLOCK_MS)
    assert spark.called == []
    taken = {b: Pictures(tmp_path, b).times() for b in range(BUCKETS)}
    assert {b: t for b, t in taken.items() if t} == {
        bucket_of(encoded_key("a")): [10],
        bucket_of(encoded_key("b")): [20],
    }


def test_a_window_is_told_with_its_last_instant_and_late_messages_are_counted() -> None:
    class Windowed(PersistentTask[Any, tuple[str, float]]):
        key = "key"
        state = State(agg.count(), window=windows.tumbling("10 ms"))

        def on_window(self, key: str, start_ms: int, end_ms: int, value: float) -> list[tuple[str, float]]:
            return [(f"{key} {start_ms} {end_ms}", value)]

    spark = Buckets(Windowed)
    pack = packs(spark)["column"]
    spark.batch(pack, [rows([(1, "a", 1), (2, "a", 1), (13, "a", 1)])], 0)
    assert spark.batch(pack, [rows([(4, "a", 1), (5, "a", 1)])], 10) == [(("a 0 10", 2), 9)]
    assert spark.late == 2
    assert spark.batch(pack, [], FINAL_CLOCK_MS) == [(("a 10 20", 1), 19)]
    assert all(group.value is None for group in spark.groups.values())


def test_a_task_hears_the_clock_in_every_bucket_that_has_states() -> None:
    class Hears(Task):
        def on_clock(self, clock_ms: int) -> list[tuple[str, float]]:
            return [("clock", float(clock_ms))]

    spark = Buckets(Hears)
    pack = packs(spark)["column"]
    spark.batch(pack, [rows([(1, "a", 1)])], 0)
    assert spark.batch(pack, [], 7) == [(("clock", 7.0), 7)]
    assert spark.batch(pack, [], 9) == [(("clock", 9.0), 9)]


@pytest.mark.parametrize("window", [None, windows.tumbling("10 ms")])
def test_a_task_with_no_other_hook_is_called_at_the_end_once_in_every_bucket_that_had_keys(
    window: windows.Window | None,
) -> None:
    class Ends(PersistentTask[Any, tuple[str, float]]):
        key = "key"
        state = State(agg.count(), window=window)

        def on_stop(self) -> list[tuple[str, float]]:
            return [("end", 0.0)]

    spark = Buckets(Ends)
    pack = packs(spark)["column"]
    keys = ["a", "b", "c"]
    spark.batch(pack, [rows([(1, key, 1) for key in keys])], 0)
    assert spark.batch(pack, [], 12) == []
    ended = spark.batch(pack, [], FINAL_CLOCK_MS)
    assert spark.called == sorted({bucket_of(encoded_key(key)) for key in keys})
    assert ended == [(("end", 0.0), FINAL_CLOCK_MS - 1)] * len(spark.called)
    assert spark.batch(pack, [], FINAL_CLOCK_MS + 1) == []


def test_the_state_of_another_bucket_cannot_be_had() -> None:
    class Nosy(Task):
        def on_next(self, message: Any) -> list[tuple[str, float]]:
            self.state.update(message)
            return [(message.key, self.state.get(message.n))]

    spark = Buckets(Nosy)
    mine = bucket_of(encoded_key("a"))
    near = next(k for k in map(str, range(1000)) if bucket_of(encoded_key(k)) == mine)
    far = next(k for k in map(str, range(1000)) if bucket_of(encoded_key(k)) != mine)
    assert spark.batch(packs(spark)["message"], [rows([(0, near, "a"), (0, "a", near)])], 0)[1][0] == ("a", 1)
    with pytest.raises(Exception, match="another bucket"):
        spark.batch(packs(spark)["message"], [rows([(0, "a", far)])], 0)


def test_a_monoid_of_ones_own_is_added_up_before_it_travels() -> None:
    class Held(Monoid[Any, list[int]]):
        def zero(self) -> list[int]:
            return []

        def add(self, state: list[int], message: Any) -> list[int]:
            state.append(message.n)
            return state

        def plus(self, left: list[int], right: list[int]) -> list[int]:
            return left + right

        def result(self, state: list[int]) -> list[int]:
            return sorted(state)

    class Own(PersistentTask[Any, Any]):
        state = State(Held())

        def key(self, message: Any) -> tuple[str, bool]:
            return message.key, message.n > 5

    spark = Buckets(Own)
    given = (spark.operation, "task", (), ("key", "n"), None, True, spark.rules)
    batch = rows([(0, "a", n) for n in (3, 9, 1, 7)])
    [packed] = list(SumPack(*given)(iter([batch])))
    assert packed.num_rows <= 2
    spark.batch(SumPack(*given), [batch], 0)
    spark.batch(SumPack(*given), [rows([(0, "a", 2)])], 0)
    assert spark.values() == {("a", False): [1, 2, 3], ("a", True): [7, 9]}


def test_a_bucket_of_another_kind_or_damaged_is_told_through_spark_by_name() -> None:
    class Sum(Task):
        state = State(agg.sum("n"))

    first, other = Buckets(Task), Buckets(Sum)
    first.batch(packs(first)["column"], [rows([(1, "a", 1)])], 0)
    other.groups = first.groups
    with pytest.raises(EmbeddedError, match="declaration of the states has changed") as raised:
        other.batch(packs(other)["column"], [rows([(1, "a", 1)])], 0)
    assert isinstance(recovered(str(raised.value)), UserError)
    group = first.groups[bucket_of(encoded_key("a"))]
    group.value = (group.get[0][:-1],)
    with pytest.raises(EmbeddedError, match="damaged"):
        first.batch(packs(first)["column"], [rows([(1, "a", 1)])], 0)


# -- codecs, pictures -------------------------------------------------------------------------------


def test_states_without_a_codec_are_pickled_classes_of_the_application_included() -> None:
    codec = PlainCodec()
    made = type("Own", (), {"n": 3})()
    for state in (1, 2**70, 1.5, None, {}, (1, "a"), {"a": [1.0, None]}, {3, 4}):
        assert codec.decode(codec.encode(state)) == state
    assert codec.decode(codec.encode(made)).n == 3


def test_pictures_are_kept_for_as_long_as_is_said_and_those_of_a_life_given_up_are_dropped(
    tmp_path: Path,
) -> None:
    kept = Pictures(tmp_path, 3)
    of = [Picture(at, {EVER: {b"a": b"%d" % at}}) for at in (10, 20, 30, 40)]
    kept.keep(of[:1], 0, 100)
    kept.keep(of[1:], 10, 100)
    assert kept.between(10, 30) == of[1:3]
    kept.keep([of[3]], 10, 100)  # after a restore to 10, and nothing changed in 20 and 30 this time
    assert kept.times() == [10, 40]
    kept.keep([Picture(130, {})], 40, 90)
    assert kept.times() == [10, 40, 130]  # the batch of 130 may die: the state as of 40 needs its own
    kept.keep([Picture(140, {})], 130, 90)
    assert kept.times() == [130, 140]
    (tmp_path / "states" / "3" / "130").write_bytes(b"something else")
    with pytest.raises(InputError, match="picture of states is damaged"):
        kept.between(0, 200)


class Reminding(PersistentTask[Any, tuple[str, str]]):
    """A timer 10 ms after each message, which a message named `stop` cancels."""

    key = "key"
    state = State(agg.count())

    def on_next(self, message: Any) -> None:
        self.state.update(message)
        if message.n < 0:
            self.state.cancel_timer()
        else:
            self.state.set_timer(message.n + 10)

    def on_timer(self, key: str, at_ms: int) -> Iterator[tuple[str, str]]:
        yield key, f"{at_ms} of {self.state.get()}"


def test_timers_are_called_once_in_order_when_the_clock_has_reached_them() -> None:
    spark = Buckets(Reminding)
    pack = packs(spark)["message"]
    assert spark.batch(pack, [rows([(5, "a", 5), (7, "a", 7), (6, "a", 5)])], 0) == []
    assert spark.batch(pack, [], 14) == []
    assert spark.batch(pack, [], 15) == [(("a", "15 of 3"), 15)]
    assert spark.batch(pack, [], 16) == []
    assert spark.called == [], "a bucket is called when a timer is due, and not before"
    assert spark.batch(pack, [rows([(30, "a", 30)])], 20) == [(("a", "17 of 3"), 17)], "before the messages"
    assert spark.batch(pack, [], FINAL_CLOCK_MS) == [(("a", "40 of 4"), 40)]
    assert spark.batch(pack, [], FINAL_CLOCK_MS) == []


def test_a_timer_for_a_time_that_has_passed_is_called_after_the_messages_at_the_clock() -> None:
    spark = Buckets(Reminding)
    pack = packs(spark)["message"]
    assert spark.batch(pack, [rows([(60, "a", 5), (61, "a", 45)])], 50) == [(("a", "15 of 2"), 50)]
    assert spark.batch(pack, [rows([(70, "a", -1)])], 52) == []
    assert spark.batch(pack, [], FINAL_CLOCK_MS) == [], "it was cancelled"


class Ticking(PersistentTask[Any, tuple[str, int]]):
    """Every 10 ms from the first message of a key on."""

    key = "key"
    state = State(agg.count())

    def on_change(self, key: str, value: int) -> None:
        if value == 1:
            self.state.set_timer(10)

    def on_timer(self, key: str, at_ms: int) -> Iterator[tuple[str, int]]:
        yield key, at_ms
        self.state.set_timer(at_ms + 10)


@pytest.mark.parametrize("clocks", [[35], [9, 10, 29, 35], [34, 35]])
def test_a_timer_that_sets_the_next_one_is_called_for_each_whatever_the_batches(clocks: list[int]) -> None:
    spark = Buckets(Ticking)
    pack = packs(spark)["column"]
    found = spark.batch(pack, [rows([(1, "a", 1)])], 0)
    for clock_ms in clocks:
        found += spark.batch(pack, [], clock_ms)
    assert found == [(("a", ms), ms) for ms in (10, 20, 30)]
    assert spark.batch(pack, [], FINAL_CLOCK_MS) == [(("a", 40), 40)], "the end calls what is set, no others"


def failure_of(task: type[PersistentTask[Any, Any]]) -> str:
    spark = Buckets(task)
    with pytest.raises(EmbeddedError) as caught:
        spark.batch(packs(spark)["message"], [rows([(1, "a", 1)])], 5)
    return str(recovered(str(caught.value)))


def test_a_timer_that_cannot_be_set_is_an_error_of_its_hook() -> None:
    class Wrong(Reminding):
        def on_next(self, message: Any) -> None:
            self.state.set_timer(message.n / 2)

    class Keyless(Reminding):
        def on_clock(self, clock_ms: int) -> None:
            self.state.set_timer(clock_ms)

    class Deaf(PersistentTask[Any, str]):
        key = "key"
        state = State(agg.count())

        def on_next(self, message: Any) -> None:
            self.state.set_timer(7)

    assert "ms since the epoch" in failure_of(Wrong)
    assert "timers belong to a key" in failure_of(Keyless)
    assert "Deaf has no on_timer" in failure_of(Deaf)
