"""Python state on Spark's keyed state: folds, user-defined monoids, stateful Tasks.

One Spark group per bucket of keys, never one per key: a group costs about a millisecond regardless of its
work. The input's messages are packed (one pickled list per bucket and Arrow batch, so that neither
the shuffle nor pandas sees single messages), and unpacked after the trunk. Monoids merge a batch's messages
before the shuffle, as Spark's own aggregates do.

A bucket's state is one blob: the cost of a batch grows with the number of buckets that it touches.

Watermark: Spark's, which is the clock (see `channel.watermark`). A group is called again when it moves,
by an event time timeout. Spark requires a timeout after the watermark, so a window may fire one
millisecond after its end: the fragment's clock is therefore the watermark − 1 ms.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, TimestampType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Fold, Process
from drivetrain.api.states.folds import FoldMonoid
from drivetrain.api.states.monoids import Monoid
from drivetrain.api.task import Task
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, NO_CLOCK_MS, known_clock
from drivetrain.core.state.window_state import WindowState, assign
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.channel.clocked import EVENT_TIME
from drivetrain.spark.channel.watermark import clock_of, watermark_of
from drivetrain.spark.compile.arrow_messages import columns_of, keys_of, messages_of
from drivetrain.spark.compile.compiled_parts import mapped
from drivetrain.spark.compile.frame import Frame, message_class
from drivetrain.spark.compile.message_payloads import MessageForm, entries_of, payloads
from drivetrain.spark.compile.named_outputs import ResultColumns
from drivetrain.spark.compile.python_stage import operator_error
from drivetrain.spark.compile.python_work import MeasuredBuckets, MeasuredStage
from drivetrain.spark.compile.surroundings import Expand, StatefulPlan, Surroundings
from drivetrain.spark.compile.tasks import TO, add, call_hook, collect_all, started
from drivetrain.spark.compile.windowed import BEFORE, keyed, require_timestamps
from drivetrain.spark.session.dataframe_calls import filtered

if TYPE_CHECKING:
    import pandas as pd

BUCKETS = 32
_PER_MS = 1000  # windows are exact in microseconds, as timestamps are
_NEVER_LATE = 2**63 - 1
PACKED = "bucket int, payload binary"
_OUT = "payload binary, late bigint"


def fold(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a fold by key and window in Python; the DataFrame holds packed results for `expand`."""
    operation, frame = node.operation, inputs[0]
    assert isinstance(operation, Fold)
    require_timestamps(frame, operation.window, str(node))
    ready = frame.resolved()
    message_columns = ready.columns
    df = keyed(ready.df, operation, str(node), lambda _how, _why: None)
    keys = tuple(name for name, _ in operation.keys)
    key_fields = [df.schema[k] for k in keys]
    pack = FoldPack(operation, keys, message_columns, ready.message, str(node), TS in df.columns)
    packed = df.mapInArrow(MeasuredStage(pack), PACKED)
    out = kept_in_buckets(packed, FoldFunction(operation, str(node)))
    window = [] if operation.window.kind == "global" else _window_fields()
    values = StructType.fromDDL(operation.result.ddl).fields
    if operation.result.scalar:
        values = [StructField(operation.name, values[0].dataType)]
    names = StructType([*key_fields, *window, *values])
    expand = Unpack(names, len(keys) + len(window), operation.result, str(node))
    return StatefulPlan(out, expand=expander(expand, names, None))


def stateful_task(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a stateful Task, one group per instance; the DataFrame holds packed results for `expand`."""
    operation = node.operation
    assert isinstance(operation, Process)
    routed = route_to_task(node, inputs)
    columns = tuple(c for c in routed.columns if not c.startswith("__"))
    form = MessageForm(columns, inputs[0].resolved().message, TS in routed.columns)
    packed = routed.mapInArrow(TaskPack(form), PACKED)
    out = kept_in_buckets(packed, TaskFunction(operation, node.id, str(node), form))
    results = ResultColumns.of(operation)
    unpack = UnpackResults(results, str(node))
    return StatefulPlan(out, expand=expander(unpack, results.schema, message_class(operation.type)))


def route_to_task(node: Node, inputs: Sequence[Frame]) -> DataFrame:
    """The inputs with `__to`, not shuffled: the state's own shuffle moves messages to their task."""
    from drivetrain.spark.compile.tasks import with_task

    operation = node.operation
    assert isinstance(operation, Process)
    ready = [f.resolved() for f in inputs]
    parts = [
        with_task(f.df, way, operation.parallelism, str(node))
        for f, way in zip(ready, operation.partitioners, strict=True)
    ]
    union = parts[0]
    for part in parts[1:]:
        union = union.unionByName(part)
    return union


def kept_in_buckets(packed: DataFrame, fn: Callable[..., Iterator[pd.DataFrame]]) -> DataFrame:
    """Apply a function with a state per bucket to packed messages: packed results, and late counts."""
    # Timeouts by event time need an event time column; this one is never late, and pandas can hold it: its
    # timestamps end in 2262, and to Spark a timestamp is a long integer.
    marked = packed.withColumn(TS, F.lit(_NEVER_LATE)).withMetadata(TS, EVENT_TIME)
    return marked.groupBy("bucket").applyInPandasWithState(
        MeasuredBuckets(fn), _OUT, "blob binary", "append", "EventTimeTimeout"
    )


def unpacked(df: DataFrame, unpack: Callable[..., Any], schema: StructType, operator: str) -> DataFrame:
    """The messages in a batch of packed results."""
    return mapped(filtered(df, "payload IS NOT NULL"), unpack, schema, operator)


def expander(expand: Unpack | UnpackResults, names: StructType, message: type | None) -> Expand:
    """A function that turns a batch of packed results into a frame of messages with timestamps."""
    schema = StructType([*names.fields, StructField(TS, TimestampType())])

    def run(df: DataFrame) -> Frame:
        return Frame(unpacked(df, expand, schema, expand.operator), (), message)

    return run


def _window_fields() -> list[StructField]:
    return [StructField("window_start", TimestampType()), StructField("window_end", TimestampType())]


# -- before the state, in Spark's workers ---------------------------------------------------------------


@dataclass(frozen=True)
class FoldPack:
    """Packs messages (or, for monoids, their partial results) by bucket: a pickled list per bucket."""

    operation: Fold
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    message: type | None
    operator: str
    timed: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per bucket that occurs in a batch."""
        for batch in batches:
            if batch.num_rows:
                yield packed_batch(self._buckets(batch))

    def _buckets(self, batch: pa.RecordBatch) -> dict[int, list[Any]]:
        monoid: Monoid[Any, Any] = self.operation.monoid
        merges = not isinstance(monoid, FoldMonoid)
        messages = messages_of(batch, self.columns, self.message)
        keys = list(zip(*(keys_of(batch.column(k)) for k in self.keys), strict=True)) or [()] * len(messages)
        stamps = timestamps_us(batch, self.timed)
        fired = batch.column(BEFORE).to_pylist() if BEFORE in batch.schema.names else repeat(None)
        sums: dict[tuple[Any, int, int], Any] = {}
        buckets: dict[int, list[Any]] = {}
        for key, ts_us, message, before in zip(keys, stamps, messages, fired, strict=False):
            for start, end in assign(self.operation.window, ts_us, FINAL_CLOCK_MS * _PER_MS, _PER_MS):
                if before is not None and end <= before * _PER_MS:
                    continue  # a late message, which goes to another processor
                group = (key, start, end)
                if not merges:
                    buckets.setdefault(bucket_of(key), []).append((group, message))
                    continue
                try:
                    state = sums[group] if group in sums else monoid.zero()
                    sums[group] = monoid.add(state, message)
                except Exception as error:
                    raise operator_error(self.operator, message, error) from error
        for group, state in sums.items():
            buckets.setdefault(bucket_of(group[0]), []).append((group, state))
        return buckets


@dataclass(frozen=True)
class TaskPack:
    """Packs messages by task."""

    form: MessageForm

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per task that gets messages of a batch."""
        for batch in batches:
            if batch.num_rows:
                tasks = batch.column(batch.schema.get_field_index(TO)).dictionary_encode()
                to = tasks.dictionary.to_pylist()
                rows = batch.select(self.form.needed)
                yield payloads(rows, tasks.indices.to_numpy(), [b""] * len(to), to)


def packed_batch(buckets: dict[int, list[Any]]) -> pa.RecordBatch:
    """Rows `(bucket, pickled list)`."""
    payloads = [cloudpickle.dumps(entries) for entries in buckets.values()]
    return pa.RecordBatch.from_arrays(
        [pa.array(list(buckets), pa.int32()), pa.array(payloads, pa.binary())], names=["bucket", "payload"]
    )


def timestamps_us(batch: pa.RecordBatch, timed: bool) -> list[int]:
    """Event timestamps in microseconds, or zeros."""
    if not timed:
        return [0] * batch.num_rows
    micros = batch.column(batch.schema.get_field_index(TS)).cast(pa.int64())
    return micros.to_pylist()


def bucket_of(key: tuple[Any, ...]) -> int:
    """The bucket of a key: stable across processes and versions, unlike Python's `hash`."""
    return zlib.crc32(repr(key).encode()) % BUCKETS


# -- at the state, in Spark's workers -------------------------------------------------------------------


@dataclass(frozen=True)
class FoldFunction:
    """Called by Spark for a bucket: merges new messages, emits the windows that the clock has passed."""

    operation: Fold
    operator: str

    def __call__(
        self, _key: tuple[int], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        """Yield one row of packed results, if there are any."""
        operation = self.operation
        groups = WindowState(operation.window, operation.monoid, _load(state) or {}, _PER_MS)
        clock_ms = clock_in(state)
        late = 0
        try:
            for frame in frames:
                for payload in frame["payload"] if not state.hasTimedOut else ():
                    late += groups.merge(cloudpickle.loads(payload), clock_ms)
            results = groups.fire(clock_ms)
        except Exception as error:
            raise operator_error(self.operator, None, error) from error
        _keep(state, groups.states or None, groups.next_ms(), clock_ms)
        if results or late:
            yield result_row(results, late)


@dataclass(frozen=True)
class TaskFunction:
    """Called by Spark for a stateful Task: the instance is the state."""

    operation: Process
    id: str
    operator: str
    form: MessageForm

    def __call__(self, key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        """Yield one row of packed results, if there are any."""
        clock_ms = clock_in(state)
        task: Task[Any, Any] | None = _load(state)
        if task is None:
            task = started(self.operation, self.id, self.operator, int(key[0]), clock_ms)
        out: list[Any] = []
        at: list[int] = []
        if not state.hasTimedOut:
            for frame in frames:
                for payload in frame["payload"]:
                    for _, stamps, messages in entries_of(payload, self.form):
                        collect_all(self.operator, task, messages, stamps, out, at)
        stamp_us = hook_stamp_ms(clock_ms) * 1000
        if known_clock(clock_ms) is not None:
            for result in call_hook(self.operator, "on_clock", task.on_clock, clock_ms):
                add(result, stamp_us, out, at)
        if clock_ms >= FINAL_CLOCK_MS:
            for result in call_hook(self.operator, "on_stop", task.on_stop):
                add(result, stamp_us, out, at)
        _keep(state, task, clock_ms + 1, clock_ms)
        if out:
            yield result_row([((), value, ts_us) for value, ts_us in zip(out, at, strict=True)], 0)


def _load(state: Any) -> Any:
    return cloudpickle.loads(state.get[0]) if state.exists else None


def _keep(state: Any, content: Any, next_ms: int | None, clock_ms: int) -> None:
    if content is None:
        if state.exists:
            state.remove()
        return
    state.update((cloudpickle.dumps(content),))
    timeout_at(state, next_ms, clock_ms)


def timeout_at(state: Any, next_ms: int | None, clock_ms: int) -> None:
    """Have a bucket with a state called again when the clock reaches a time, even without messages."""
    if next_ms is not None and clock_ms < FINAL_CLOCK_MS:
        # A timeout fires when the watermark is beyond it, and must itself be beyond the watermark.
        state.setTimeoutTimestamp(max(watermark_of(next_ms) - 1, watermark_of(clock_ms) + 1))


def clock_in(state: Any) -> int:
    """The clock (ms) in a call for a bucket, `NO_CLOCK_MS` without one."""
    clock_ms = clock_of(state.getCurrentWatermarkMs())
    return NO_CLOCK_MS if clock_ms is None else clock_ms


def hook_stamp_ms(clock_ms: int) -> int:
    """The timestamp of a hook's results at a clock."""
    return 0 if known_clock(clock_ms) is None else min(clock_ms, FINAL_CLOCK_MS - 1)


def result_row(results: list[Any], late: int) -> pd.DataFrame:
    """The result of a call for a bucket: packed results, and how many messages were late."""
    return bucket_row(cloudpickle.dumps(results) if results else None, late)


def bucket_row(payload: bytes | None, late: int) -> pd.DataFrame:
    """The result of a call for a bucket, whose results are packed already."""
    import pandas as pd  # only processes that run such functions need it, and it takes 0.3 s to import

    return pd.DataFrame({"payload": [payload], "late": [late]})


# -- after the trunk ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unpack:
    """Unpacks results (`(key and window, value, timestamp in µs)`) into typed columns.

    `names` is the schema of the data columns; the first `lead` of them are keys and window.
    """

    names: StructType
    lead: int
    type: Any
    operator: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One batch of results per batch of payloads."""
        schema = to_arrow_schema(self.names, timezone="UTC")
        lead = pa.schema(list(schema)[: self.lead])
        rest = pa.schema(list(schema)[self.lead :])
        for batch in batches:
            entries = [e for p in batch.column("payload").to_pylist() for e in cloudpickle.loads(p)]
            leads = [list(c) for c in zip(*(e[0] for e in entries), strict=True)] if self.lead else []
            arrays = [pa.array(c, f.type) for c, f in zip(leads or [[]] * self.lead, lead, strict=True)]
            arrays += columns_of([e[1] for e in entries], self.type, rest, self.operator)
            arrays.append(pa.array([e[2] for e in entries], pa.int64()).cast(pa.timestamp("us", "UTC")))
            yield pa.RecordBatch.from_arrays(arrays, names=[*schema.names, TS])


@dataclass(frozen=True)
class UnpackResults:
    """Unpacks the results of a Task into the columns of its outputs, and their timestamp."""

    results: ResultColumns
    operator: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One batch of results per batch of payloads."""
        for batch in batches:
            entries = [e for p in batch.column("payload").to_pylist() for e in cloudpickle.loads(p)]
            arrays = self.results.arrays([e[1] for e in entries], self.operator)
            arrays.append(pa.array([e[2] for e in entries], pa.int64()).cast(pa.timestamp("us", "UTC")))
            yield pa.RecordBatch.from_arrays(arrays, names=[*self.results.schema.names, TS])
