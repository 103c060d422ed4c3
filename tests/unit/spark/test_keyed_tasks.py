"""Keyed Tasks in buckets, beside a loop over sorted messages: disorder and crashes change nothing."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fake_group import FakeGroup
from pyspark import cloudpickle

from drivetrain import KeyedTask, ListState, MapState, Task, ValueState
from drivetrain.api.operations import Process
from drivetrain.api.states.keyed_task import KeyedDeclaration
from drivetrain.api.stream import process
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.state.key_migration import Declaration, declaration
from drivetrain.core.state.key_states import KeyStates
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.errors import GraphError, InputError, UserError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.channel.watermark import watermark_of
from drivetrain.spark.compile.keyed_tasks import KeyedFunction
from drivetrain.spark.compile.message_payloads import MessageForm, payloads
from drivetrain.spark.session.spark_errors import EmbeddedError, recovered
from drivetrain.spark.state.keyed_state import keyed_values

RUNS = itertools.count()
TTL, DELAY = 40, 25
Event = tuple[int, str, int]
"""Time (ms), key, n."""


@dataclass(frozen=True)
class Message:
    ms: int
    key: str
    n: int


FORM = MessageForm(("ms", "key", "n"), Message, timed=True)


class Remembers(KeyedTask[Message, tuple[Any, ...]]):
    """Emits all that it remembers, and sets a timer with each message."""

    key = "key"
    in_order = True
    output = "value string"  # not used here: results are not made into columns
    last = ValueState(int, ttl=f"{TTL} ms")
    ever = ValueState(int)
    recent = ListState(int, ttl=f"{TTL} ms")
    by_rest = MapState(int, int, ttl=f"{TTL} ms")

    def on_next(self, message: Message) -> list[tuple[Any, ...]]:
        seen = ("next", message.key, message.ms, message.n, *self.seen())
        self.last.set(message.n)
        self.ever.set((self.ever.get() or 0) + 1)
        self.recent.append(message.n)
        self.by_rest[message.n % 3] = message.n
        if message.n % 5 == 0:
            self.last.clear()
        self.cancel_timer()
        self.set_timer(message.ms + DELAY)
        return [seen]

    def on_timer(self, key: str, at_ms: int) -> list[tuple[Any, ...]]:
        return [("timer", key, at_ms, *self.seen())]

    def seen(self) -> tuple[Any, ...]:
        return self.last.get(), self.ever.get(), tuple(self.recent), tuple(sorted(self.by_rest.items()))


def model(events: list[Event]) -> list[tuple[Any, ...]]:
    """The same, of one key after another, over messages in the order of their times."""
    found: list[tuple[Any, ...]] = []
    for key in {key for _, key, _ in events}:
        mine = sorted(((ms, n) for ms, k, n in events if k == key), key=lambda m: (m[0], str(m[1])))
        for i, (ms, n) in enumerate(mine):
            found.append(("next", key, ms, n, *remembered(mine[:i], ms)))
            if i + 1 == len(mine) or mine[i + 1][0] >= ms + DELAY:
                found.append(("timer", key, ms + DELAY, *remembered(mine[: i + 1], ms + DELAY)))
    return sorted(found, key=repr)


def remembered(before: list[tuple[int, int]], now: int) -> tuple[Any, ...]:
    alive = [n for ms, n in before if ms + TTL > now]
    last = alive[-1] if alive and alive[-1] % 5 else None
    return last, len(before) or None, tuple(alive), tuple(sorted({n % 3: n for n in alive}.items()))


def payload_of(key: str, events: list[Event]) -> bytes:
    columns = [pa.array(column) for column in zip(*events, strict=True)]
    stamps = pa.array([ms * 1000 for ms, *_ in events], pa.timestamp("us", "UTC"))
    made = pa.RecordBatch.from_arrays([*columns, stamps], [*FORM.columns, TS])
    packed = payloads(made, np.zeros(len(events), np.int32), [encoded_key(key)], [0])
    return packed.column("payload")[0].as_py()  # type: ignore[no-any-return]


class Buckets:
    """Spark, as far as a keyed Task sees it: a group, batches, timeouts, and processes that die."""

    def __init__(self, task: type[KeyedTask[Any, Any]]) -> None:
        self.operation = cast(Process, process(task, 1, (), None))
        self.group = FakeGroup()
        self.late = 0
        self.restart()

    def restart(self) -> None:
        self.function = KeyedFunction(self.operation, "task", "task", str(next(RUNS)), FORM)

    def batch(self, events: list[Event], clock_ms: int) -> list[tuple[Any, int]]:
        """The results of a batch with their times in ms; none if the bucket is not called."""
        group = self.group
        due = group.timeout_ms is not None and group.timeout_ms < watermark_of(clock_ms)
        if not events and not due:
            return []
        group.clock_ms, group.hasTimedOut, group.timeout_ms = clock_ms, not events, None
        by_key: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            by_key[event[1]].append(event)
        frame = pd.DataFrame({"payload": [payload_of(key, mine) for key, mine in by_key.items()]})
        out = list(self.function((0,), iter([frame]), group))
        self.late += sum(frame["late"][0] for frame in out)
        results = [r for frame in out if frame["payload"][0] for r in cloudpickle.loads(frame["payload"][0])]
        return [(value, ts_us // 1000) for _, value, ts_us in results]


@pytest.mark.parametrize("seed", range(30))
def test_a_task_in_order_does_what_a_loop_over_sorted_messages_does(seed: int) -> None:
    draw = random.Random(seed)
    events = [(draw.randrange(1000), draw.choice("abc"), n) for n in range(draw.choice([3, 60, 200]))]
    arriving = sorted(events, key=lambda event: event[0] + draw.randrange(100))
    spark, found, newest = Buckets(Remembers), [], 0
    while arriving:
        size = draw.choice([1, 5, 50])
        now, arriving = arriving[:size], arriving[size:]
        # The clock of a batch is that after the messages of the batches before it.
        found += spark.batch(now, newest - 100)
        newest = max(newest, *(ms for ms, *_ in now))
        if draw.random() < 0.3:
            spark.restart()
        if draw.random() < 0.3:
            found += spark.batch([], newest - 100)
    found += spark.batch([], FINAL_CLOCK_MS)
    values = [value for value, _ in found]
    assert sorted(values, key=repr) == model(events)
    assert all(ms == value[2] for value, ms in found), "a result has the time of its message or timer"
    assert spark.late == 0


@pytest.mark.parametrize("seed", range(10))
def test_states_that_are_asked_for_are_those_of_the_messages_before_the_clock(seed: int) -> None:
    draw = random.Random(seed)
    events = [(draw.randrange(400), draw.choice("abc"), n) for n in range(60)]
    spark = Buckets(Remembers)
    # All have come: what is before the clock is in the states, the rest waits.
    spark.batch(sorted(events, key=lambda _: draw.random()), 0)
    for clock_ms in sorted(draw.randrange(430) for _ in range(8)):
        spark.batch([], clock_ms)
        declared = spark.operation.keyed
        assert declared is not None
        saved = spark.group.get[0] if spark.group.exists else None
        found = {} if saved is None else dict(keyed_values(declared, saved, clock_ms))
        wanted = {}
        for key in "abc":
            mine = sorted(
                ((ms, n) for ms, k, n in events if k == key and ms < clock_ms),
                key=lambda m: (m[0], str(m[1])),
            )
            if mine:
                last, ever, recent, rests = remembered(mine, clock_ms)
                wanted[key] = {"last": last, "ever": ever, "recent": list(recent), "by_rest": dict(rests)}
        assert found == wanted, clock_ms
        for key in "abcd" if saved is not None else "":
            assert declared is not None
            [value] = [v for _, v in keyed_values(declared, saved, clock_ms, encoded_key(key))] or [None]
            assert value == wanted.get(key)


def test_a_state_whose_declaration_has_changed_is_not_shown() -> None:
    spark = Buckets(Remembers)
    spark.batch([(10, "a", 1)], 0)
    spark.batch([], 20)
    with pytest.raises(UserError, match="the declaration of the states has changed"):
        list(keyed_values(KeyedDeclaration((), ("key",), True), spark.group.get[0], 20))


def test_what_has_expired_is_removed_without_messages() -> None:
    class Recent(Remembers):
        ever = ValueState(int, ttl="1 s")

    spark = Buckets(Recent)
    spark.batch([(10, "a", 1), (20, "b", 2)], 0)
    spark.batch([], 100)
    assert spark.group.exists
    states = KeyStates(declaration(spark.operation.keyed), spark.group.get[0])
    assert len(states.keys()) == 2
    spark.batch([], 1_010)
    assert KeyStates(declaration(spark.operation.keyed), spark.group.get[0]).keys() == [encoded_key("b")]
    spark.batch([], 1_021)
    assert not spark.group.exists
    assert spark.group.timeout_ms is None


def test_late_messages_of_a_task_in_order_are_left_out_and_counted() -> None:
    spark = Buckets(Remembers)
    assert spark.batch([(99, "a", 1), (100, "a", 2)], 100) == []
    assert spark.late == 1
    assert [value[:4] for value, _ in spark.batch([], 102)] == [("next", "a", 100, 2)]


def test_a_task_as_messages_come_sees_each_at_its_own_time_and_late_ones_at_the_clock() -> None:
    class AsTheyCome(Remembers):
        in_order = False

    spark = Buckets(AsTheyCome)
    spark.batch([(100, "a", 1)], 50)
    [(value, _)] = spark.batch([(139, "a", 2)], 60)
    assert value[4:] == (1, 1, (1,), ((1, 1),))
    found = spark.batch([(90, "a", 3)], 150)  # late: what expired at 140 is gone
    assert [value[4:6] for value, _ in found if value[0] == "next"] == [(2, 2)]


class Typed(KeyedTask[Message, int]):
    key = "key"
    n = ValueState(int)
    share = ValueState(float)
    names = MapState(str, list[int])
    write: Any = None

    def on_next(self, message: Message) -> list[int]:
        type(self).write(self)
        return [self.n.get(-1)]


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (lambda t: t.n.set("7"), "the state n has values of int, not '7'"),
        (lambda t: t.n.set(True), "the state n has values of int, not True"),
        (lambda t: t.n.set(2**70), "the state n"),
        (lambda t: t.names.__setitem__(1, [2]), "the state names has values of str, not 1"),
        (lambda t: t.names.__setitem__("a", ["b"]), "the state names"),
        (lambda t: t.names["a"], "KeyError"),
        (lambda t: t.set_timer(5), "Typed has no on_timer"),
    ],
)
def test_values_of_other_types_are_refused_where_they_are_written(write: Any, what: str) -> None:
    Typed.write = staticmethod(write)
    with pytest.raises(EmbeddedError) as caught:
        Buckets(Typed).batch([(1, "a", 1)], 0)
    assert what in str(recovered(str(caught.value)))


def test_values_read_as_their_declared_type_at_once() -> None:
    def write(task: Any) -> None:
        mine = [1]
        task.share.set(3)
        task.names["a"] = mine
        mine.append(2)
        assert (task.share.get(), type(task.share.get())) == (3.0, float)
        assert task.names["a"] == [1]
        assert "b" not in task.names
        del task.names["a"]
        assert len(task.names) == 0

    Typed.write = staticmethod(write)
    spark = Buckets(Typed)
    assert spark.batch([(1, "a", 1)], 0) == [(-1, 1)]
    spark.restart()
    assert spark.batch([(1, "a", 1)], 0) == [(-1, 1)]


def test_other_declarations_and_damage_are_refused() -> None:
    spark = Buckets(Remembers)
    spark.batch([(10, "a", 1)], 5)
    rules = declaration(spark.operation.keyed).rules
    with pytest.raises(UserError, match="declaration of the states has changed"):
        KeyStates(Declaration("last: value of str", rules), spark.group.get[0])
    with pytest.raises(InputError, match="damaged"):
        KeyStates(declaration(spark.operation.keyed), spark.group.get[0][:-5])


class Thing:
    pass


def test_what_cannot_be_kept_is_refused_where_it_is_declared() -> None:
    with pytest.raises(GraphError, match="cannot have this type"):
        ValueState(Thing)
    with pytest.raises(GraphError, match="ttl"):
        ListState(int, ttl="soon")

    class Nothing(KeyedTask[Message, int]):
        key = "key"

    class Clocked(Typed):
        def on_clock(self, clock_ms: int) -> None:
            pass

    class Keyless(Typed):
        key = None

    for task, what in (
        (Nothing, "has no states"),
        (Clocked, "cannot have on_clock"),
        (Keyless, "has no key"),
    ):
        with pytest.raises(GraphError, match=what):
            process(task, 1, (), None)


def test_states_exist_only_in_hooks() -> None:
    with pytest.raises(GraphError, match="exists only while"):
        _ = Typed().n


def test_the_declaration_names_types_and_fields() -> None:
    assert str(ValueState(Message, ttl="1 h")) == ": value of Message(ms int, key str, n int) for 1 h"
    assert str(MapState(str, list[int])) == ": map of str to list[int]"
    assert issubclass(Remembers, Task)
