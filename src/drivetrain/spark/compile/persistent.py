"""Persistent Tasks on Spark's keyed state: a state for each key, in buckets of keys.

Messages are packed by bucket before they travel, as those of folds are (see `keyed`). Where a Task does
nothing with a message but merge it, what travels is what the messages of a key add up to: for built-in
aggregations Arrow adds up some hundred thousand messages at a time, for a user's monoid its own functions.

A bucket is one Spark group, and its state one value of bytes of which only touched pages are decoded
(`core.two_state`). A bucket is called when it has messages, and by a timeout when a window of it ends or a
picture is due: never because others are busy, never more often because others are idle.

In a batch the clock moves first: what is over is told and pictures are taken with what came before, then the
batch's messages are taken.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, Final

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from drivetrain.api.graph import Node, Process
from drivetrain.api.key_monoids import ColumnMonoid
from drivetrain.api.persistent import RUNNING, PersistentTask, merges_only
from drivetrain.api.task import Task
from drivetrain.core.clock import FINAL_CLOCK_MS
from drivetrain.core.paged_state import BUCKETS, bucket_of
from drivetrain.core.state_keys import decoded_key, encoded_key
from drivetrain.core.two_state import EVER, Span, StateRules, TwoStates
from drivetrain.errors import DrivetrainError, GraphError, OperatorTypeError
from drivetrain.spark.compile.frame import Frame
from drivetrain.spark.compile.keyed import (
    PACKED,
    Expand,
    Unpack,
    expander,
    kept_in_buckets,
    packed_batch,
    result_row,
    timeout_at,
    timestamps_ms,
)
from drivetrain.spark.compile.tasks import add, call_hook, collect, started
from drivetrain.spark.compile.windowed import require_timestamps
from drivetrain.spark.failures import embedded
from drivetrain.spark.messages import messages_of
from drivetrain.spark.pictures import Pictures
from drivetrain.spark.python_stage import operator_error

_MANY: Final = 400_000
"""Rows that are added up at a time before they travel."""
_SPAN: Final = "__start"
_PANE: Final = "__pane"
_ROWS: Final = "__rows"

_instances: dict[tuple[str, str, int], Task[Any, Any]] = {}


def persistent_task(
    node: Node, inputs: Sequence[Frame], pictures: str | None, run_id: str
) -> tuple[DataFrame, Expand]:
    """The states of a persistent Task; the DataFrame holds packed results for `Expand`.

    `pictures` is the fragment's directory if pictures are to be kept.
    """
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.persistent is not None
    ready = [frame.resolved() for frame in inputs]
    for frame in ready:
        _require(node, frame)
    union = ready[0].df
    for frame in ready[1:]:
        union = union.unionByName(frame.df)
    columns = ready[0].columns
    rules = rules_of(operation)
    if isinstance(rules.monoid, ColumnMonoid):
        rules = replace(rules, monoid=_taking(rules.monoid, columns, ready[0].message))
    packed = union.mapInArrow(_pack(node, rules, columns, ready[0]), PACKED)
    function = PersistentFunction(operation, node.id, str(node), rules, pictures, run_id)
    names = StructType.fromDDL(operation.type.ddl)
    out = kept_in_buckets(packed, function)
    return out, expander(Unpack(names, 0, operation.type, str(node)), names, operation.type.python)


def rules_of(operation: Process) -> StateRules[Any]:
    """What the states of a persistent Task are."""
    assert operation.persistent is not None
    state = operation.persistent.state
    return StateRules(state.monoid, state.codec or PlainCodec(), str(state), state.step_ms, state.window)


def _taking(monoid: ColumnMonoid, columns: tuple[str, ...], message: type | None) -> ColumnMonoid:
    """The monoid for messages as `messages_of` makes them."""
    is_tuple = message is tuple and monoid.column is not None
    return replace(
        monoid,
        scalar=len(columns) == 1 and message is None,
        index=columns.index(str(monoid.column)) if is_tuple else None,
    )


def _require(node: Node, frame: Frame) -> None:
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.persistent is not None
    declared = operation.persistent
    if declared.state.window is not None:
        require_timestamps(frame, declared.state.window, str(node))
    if declared.state.step_ms is not None and not frame.timed:
        raise GraphError(
            "a state as of application times needs event time, and these messages have none",
            where=str(node),
            remedy='put .event_time("column", max_disorder="10 s") before it, or leave as_of out',
        )
    monoid = declared.state.monoid
    of = (monoid.column,) if isinstance(monoid, ColumnMonoid) and monoid.column is not None else ()
    for name in (*declared.keys, *of):
        if name not in frame.columns:
            what = "to tell keys by" if name in declared.keys else f"for {monoid}"
            raise OperatorTypeError(
                f"there is no column {name!r} {what}",
                where=str(node),
                expected=f"one of {', '.join(frame.columns)}",
                got=name,
                remedy="correct the name; `drivetrain plan` shows the columns that every operator has",
            )


def _pack(node: Node, rules: StateRules[Any], columns: tuple[str, ...], frame: Frame) -> Callable[..., Any]:
    operation = node.operation
    assert isinstance(operation, Process)
    assert operation.persistent is not None
    keys = operation.persistent.keys
    given = (operation, str(node), rules, keys, columns, frame.message, frame.timed)
    if not _merges_only(operation):
        return MessagePack(*given)
    tumbles = rules.window is None or rules.window.kind == "tumbling"
    if isinstance(rules.monoid, ColumnMonoid) and keys and tumbles:
        return ColumnPack(*given)
    return SumPack(*given)


def _merges_only(operation: Process) -> bool:
    task = operation.task
    return merges_only(task if isinstance(task, type) else type(task()))


class PlainCodec:
    """The codec of states for which none was given.

    Numbers and text become msgpack, other plain data plain pickles, which are smaller and faster than those
    of the rest, which bring the application's own classes along.
    """

    def encode(self, state: Any) -> bytes:
        """Any state that can be pickled."""
        kind = type(state)
        if kind in _PLAIN and (kind is not int or state in _LONG):
            return _to_msgpack(state)
        return pickle.dumps(state, 5) if _is_plain(state) else cloudpickle.dumps(state, 5)

    def decode(self, encoded: bytes) -> Any:
        """The state as an object of its own."""
        if encoded[:1] == _PICKLE:
            return pickle.loads(encoded)  # noqa: S301 - Spark's state store holds what we wrote
        return _from_msgpack(encoded)


_PICKLE: Final = b"\x80"
"""How a pickle begins; in msgpack that is an empty mapping, which is pickled."""
_LONG: Final = range(-(2**63), 2**63)
_PLAIN: Final = frozenset({int, float, str, bytes, bool, type(None)})
_to_msgpack: Final = msgspec.msgpack.Encoder().encode
_from_msgpack: Final = msgspec.msgpack.Decoder().decode


def _is_plain(state: Any) -> bool:
    kind = type(state)
    if kind in _PLAIN:
        return True
    if kind in (tuple, list, set, frozenset):
        return all(map(_is_plain, state))
    return kind is dict and all(map(_is_plain, state)) and all(map(_is_plain, state.values()))


# -- on the way in, in Spark's workers ------------------------------------------------------------------


@dataclass(frozen=True)
class _Pack:
    """What all ways of packing know."""

    operation: Process
    operator: str
    rules: StateRules[Any]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    message: type | None
    timed: bool

    def _keyed(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, int, Any]]:
        """Key, timestamp (ms) and message, row by row."""
        messages = messages_of(batch, self.columns, self.message)
        stamps = timestamps_ms(batch, self.timed)
        return zip(self._keys(batch, messages), stamps, messages, strict=True)

    def _keys(self, batch: pa.RecordBatch, messages: list[Any]) -> Iterable[Any]:
        if len(self.keys) == 1:
            return batch.column(self.keys[0]).to_pylist()
        if self.keys:
            return zip(*(batch.column(name).to_pylist() for name in self.keys), strict=True)
        task: Any = self.operation.task()
        return [self._key_of(task, message) for message in messages]

    def _key_of(self, task: Any, message: Any) -> bytes:
        # As bytes: to a dict 1 and True would be one key.
        try:
            return encoded_key(task.key(message))
        except Exception as error:
            raise operator_error(f"{self.operator}, its key", message, error) from error

    def _encoded(self, key: Any) -> bytes:
        if not self.keys:
            return bytes(key)
        try:
            return encoded_key(key)
        except TypeError as error:
            raise operator_error(f"{self.operator}, its key", key, error) from error


@dataclass(frozen=True)
class MessagePack(_Pack):
    """Packs messages with their timestamps by key and bucket, for Tasks that look at every one."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row per bucket that some batches have messages for."""
        held: dict[Any, tuple[list[int], list[Any]]] = {}
        rows = 0
        for batch in batches:
            for key, ts_ms, message in self._keyed(batch):
                of = held.get(key)
                if of is None:
                    of = held[key] = ([], [])
                of[0].append(ts_ms)
                of[1].append(message)
            rows += batch.num_rows
            if rows > _MANY // 8:
                yield packed_batch(self._buckets(held))
                held, rows = {}, 0
        if held:
            yield packed_batch(self._buckets(held))

    def _buckets(self, held: dict[Any, tuple[list[int], list[Any]]]) -> dict[int, list[Any]]:
        buckets: dict[int, list[Any]] = {}
        for key, (stamps, messages) in held.items():
            encoded = self._encoded(key)
            # Without timestamps all are the same.
            told = stamps if self.timed else None
            buckets.setdefault(bucket_of(encoded), []).append((encoded, told, messages))
        return buckets


@dataclass(frozen=True)
class SumPack(_Pack):
    """Adds messages up by key, window and pane, by the monoid's own functions, and packs that by bucket."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row per bucket that some batches have messages for."""
        sums: dict[tuple[Span, int], dict[Any, list[Any]]] = {}
        rows = 0
        for batch in batches:
            self._add(batch, sums)
            rows += batch.num_rows
            if rows > _MANY:
                yield packed_batch(self._buckets(sums))
                sums, rows = {}, 0
        if sums:
            yield packed_batch(self._buckets(sums))

    def _add(self, batch: pa.RecordBatch, sums: dict[tuple[Span, int], dict[Any, list[Any]]]) -> None:
        rules, message = self.rules, None
        zero, add_one = rules.monoid.zero, rules.monoid.add
        if rules.window is None and rules.step_ms is None:
            groups = sums.setdefault((EVER, 0), {})
            places: Callable[[int], list[dict[Any, list[Any]]]] = lambda _ts_ms: [groups]  # noqa: E731
        else:
            places = lambda ts_ms: [  # noqa: E731
                sums.setdefault((span, rules.pane(ts_ms)), {}) for span in rules.spans(ts_ms)
            ]
        try:
            for key, ts_ms, message in self._keyed(batch):
                for place in places(ts_ms):
                    held = place.get(key)
                    if held is None:
                        held = place[key] = [zero(), 0]
                    held[0] = add_one(held[0], message)
                    held[1] += 1
        except Exception as error:
            raise operator_error(self.operator, message, error) from error

    def _buckets(self, sums: dict[tuple[Span, int], dict[Any, list[Any]]]) -> dict[int, list[Any]]:
        buckets: dict[int, list[Any]] = {}
        for (span, pane), groups in sums.items():
            for key, (part, messages) in groups.items():
                encoded = self._encoded(key)
                buckets.setdefault(bucket_of(encoded), []).append((encoded, span, pane, part, messages))
        return buckets


@dataclass(frozen=True)
class ColumnPack(_Pack):
    """Adds messages up by Arrow, for built-in aggregations; packs what comes of it by bucket."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row per bucket that some batches have messages for."""
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            if batch.num_rows:
                waiting.append(self._needed(batch))
                rows += batch.num_rows
            if rows > _MANY:
                yield packed_batch(self._buckets(waiting))
                waiting, rows = [], 0
        if waiting:
            yield packed_batch(self._buckets(waiting))

    @property
    def _monoid(self) -> ColumnMonoid:
        assert isinstance(self.rules.monoid, ColumnMonoid)
        return self.rules.monoid

    def _needed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that count: keys, window, pane, and the one that is aggregated."""
        names = list(dict.fromkeys([*self.keys, *([self._monoid.column] if self._monoid.column else [])]))
        arrays = [batch.column(name) for name in names]
        if self.timed and (self.rules.window is not None or self.rules.step_ms is not None):
            ms = pa.array(timestamps_ms(batch, self.timed), pa.int64())
            for name, size in ((_SPAN, self._size_ms), (_PANE, self.rules.step_ms)):
                if size is not None:
                    arrays.append(_cut(ms, size))
                    names.append(name)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @property
    def _size_ms(self) -> int | None:
        return None if self.rules.window is None else self.rules.window.size_ms

    def _buckets(self, batches: list[pa.RecordBatch]) -> dict[int, list[Any]]:
        table = pa.Table.from_batches(batches)
        cut = [name for name in (_SPAN, _PANE) if name in table.column_names]
        column, kind = self._monoid.column, self._monoid.kind
        wanted: list[Any] = [([], "count_all")]
        if column is not None:
            wanted += [(column, "sum"), (column, "count")] if kind == "avg" else [(column, kind)]
        grouped = table.group_by([*self.keys, *cut], use_threads=False).aggregate(wanted)
        values = [grouped.column(_named(of, how)).to_pylist() for of, how in wanted]
        parts = values[0] if column is None else values[1] if kind != "avg" else zip(*values[1:], strict=True)
        keys = [grouped.column(name).to_pylist() for name in self.keys]
        size_ms = self._size_ms or 0
        starts = grouped.column(_SPAN).to_pylist() if _SPAN in cut else [0] * grouped.num_rows
        panes = grouped.column(_PANE).to_pylist() if _PANE in cut else [0] * grouped.num_rows
        buckets: dict[int, list[Any]] = {}
        rows = zip(
            keys[0] if len(keys) == 1 else zip(*keys, strict=True),
            starts,
            panes,
            parts,
            values[0],
            strict=True,
        )
        for key, start, pane, part, messages in rows:
            encoded = self._encoded(key)
            entry = (encoded, (start, start + size_ms), pane, part, messages)
            buckets.setdefault(bucket_of(encoded), []).append(entry)
        return buckets


def _named(of: Any, how: str) -> str:
    return how if not of else f"{of}_{how}"


def _cut(ms: pa.Array, step_ms: int) -> pa.Array:
    """The multiple of the step at or before each time."""
    whole = pc.multiply(pc.divide(ms, step_ms), step_ms)  # cut towards zero
    return pc.if_else(pc.greater(whole, ms), pc.subtract(whole, step_ms), whole)


# -- at the state, in Spark's workers -------------------------------------------------------------------


class RunningState:
    """`self.state` of a Task while a hook of it is called: the states of its bucket."""

    def __init__(self, states: TwoStates[Any], bucket: int) -> None:
        self._states: Final = states
        self._bucket: Final = bucket
        self.key: bytes | None = None
        self.timestamp_ms = 0

    def update(self, message: Any, timestamp_ms: int | None = None) -> None:
        """Merge a message into the state of the current key; raises RuntimeError where there is none."""
        if self.key is None:
            raise RuntimeError("a state is updated in on_next, where there is a message with a key")
        self._states.update(self.key, self.timestamp_ms if timestamp_ms is None else timestamp_ms, message)

    def get(self, key: Any = None) -> Any:
        """The value of a key; raises RuntimeError for one that is kept elsewhere."""
        encoded = self.key if key is None else encoded_key(key)
        if encoded is None:
            raise RuntimeError("there is no current key here: say which, get(key)")
        if bucket_of(encoded) != self._bucket:
            raise RuntimeError(f"the state of {key!r} is in another bucket: ask for the key of the message")
        span = self._span(encoded)
        state = None if span is None else self._states.get(encoded, span)
        return None if state is None else self._states.rules.monoid.result(state)

    def _span(self, key: bytes) -> Span | None:
        """The oldest open window of the message, or of the key where there is no message."""
        if self._states.rules.window is None:
            return EVER
        among = self._states.rules.spans(self.timestamp_ms) if self.key else self._states.spans_of(key)
        return next((span for span in among if span[1] > self._states.clock_ms), None)


@dataclass(frozen=True)
class PersistentFunction:
    """What Spark calls for a bucket."""

    operation: Process
    id: str
    operator: str
    rules: StateRules[Any]
    pictures: str | None
    run_id: str

    def __call__(self, key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        """Yield one row of packed results, if there are any."""
        try:
            yield from self._rows(int(key[0]), frames, state)
        except DrivetrainError as error:
            error.where = error.where or self.operator
            raise embedded(error) from error

    def _rows(self, bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        clock_ms = max(0, state.getCurrentWatermarkMs())
        states = TwoStates(self.rules, state.get[0] if state.exists else None)
        batch = _BucketBatch(self, bucket, states, clock_ms)
        batch.move_clock()
        if not state.hasTimedOut:
            for frame in frames:
                for payload in frame["payload"]:
                    batch.take(cloudpickle.loads(payload))
        batch.conclude()
        if not states.is_empty:
            state.update((states.saved(),))
            timeout_at(state, clock_ms + 1 if batch.hears_clock else states.next_ms(), clock_ms)
        elif state.exists:
            state.remove()
        if batch.results or states.late:
            yield result_row(batch.results, states.late)

    def task(self, bucket: int, clock_ms: int) -> Task[Any, Any]:
        """The instance that runs a bucket in this process, in this run."""
        at = (self.run_id, self.id, bucket)
        if at not in _instances:
            for old in [other for other in _instances if other[0] != self.run_id]:
                del _instances[old]
            operation = replace(self.operation, parallelism=BUCKETS)
            _instances[at] = started(operation, self.id, self.operator, bucket, clock_ms)
        return _instances[at]


class _BucketBatch:
    """One call for a bucket: its states, its Task, and what the hooks gave."""

    def __init__(
        self, function: PersistentFunction, bucket: int, states: TwoStates[Any], clock_ms: int
    ) -> None:
        self.function = function
        self.bucket = bucket
        self.states = states
        self.clock_ms = clock_ms
        self.task: Any = function.task(bucket, clock_ms)
        self.running = RunningState(states, bucket)
        setattr(self.task, RUNNING, self.running)
        kind: Any = type(self.task)
        self.merges = merges_only(kind)
        self.tells_changes = kind.on_change is not PersistentTask.on_change
        self.hears_clock = kind.on_watermark is not Task.on_watermark
        self._out: list[Any] = []
        self._at_us: list[int] = []

    @property
    def results(self) -> list[Any]:
        """What the hooks gave, as `keyed.Unpack` takes it."""
        return [((), value, us // 1000) for value, us in zip(self._out, self._at_us, strict=True)]

    def move_clock(self) -> None:
        """Tell what is over, and keep the pictures that are exact now."""
        function, before_ms = self.function, self.states.checkpoint_ms
        ended, pictures = self.states.advance(self.clock_ms)
        if pictures and function.pictures is not None:
            declared = function.operation.persistent
            assert declared is not None
            kept = Pictures(function.pictures, self.bucket)
            kept.keep(pictures, before_ms, declared.state.keep_ms)
        for end in sorted(ended, key=lambda e: (e.span, e.key)):
            value = self._value(end.state)
            arguments = (decoded_key(end.key), *end.span, value)
            self._call("on_window", end.span[1] - 1, *arguments)

    def take(self, entries: list[Any]) -> None:
        """Take the messages of a batch, or what they add up to."""
        if self.merges:
            try:
                for entry in entries:
                    self.states.merge(*entry)
            except Exception as error:
                raise operator_error(self.function.operator, None, error) from error
            return
        running, operator, task = self.running, self.function.operator, self.task
        for key, stamps, messages in entries:
            running.key = key
            for ts_ms, message in zip(repeat(0) if stamps is None else stamps, messages, strict=False):
                running.timestamp_ms = ts_ms
                collect(operator, task, message, ts_ms * 1000, self._out, self._at_us)
        running.key = None

    def conclude(self) -> None:
        """Tell which keys have changed, and the clock."""
        stamp_ms = min(self.clock_ms, FINAL_CLOCK_MS - 1)
        if self.tells_changes:
            for span, key in self.states.changed:
                self._call("on_change", stamp_ms, decoded_key(key), self._value(self.states.get(key, span)))
        if self.hears_clock:
            self._call("on_watermark", stamp_ms, self.clock_ms)
        if self.clock_ms >= FINAL_CLOCK_MS:
            self._call("on_stop", stamp_ms)

    def _value(self, state: Any) -> Any:
        return self.states.rules.monoid.result(state)

    def _call(self, name: str, stamp_ms: int, *arguments: Any) -> None:
        for result in call_hook(self.function.operator, name, getattr(self.task, name), *arguments):
            add(result, stamp_ms * 1000, self._out, self._at_us)
