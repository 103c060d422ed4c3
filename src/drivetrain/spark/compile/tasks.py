"""Stateless Tasks: routing messages to task instances, and running one instance per Spark partition.

Every partitioner determines to which task a message goes (`__to`); Spark's shuffle moves it there, and
partition i is task i. Instances are kept in Spark's Python workers between batches, so `on_start` is
called once per worker in which a task runs. A stateless Task must not change its attributes while it
processes: they would be lost when Spark moves the task, so a change is detected and refused.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
from pyspark import TaskContext as SparkTaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import IntegerType, StructField, StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import Process
from drivetrain.api.partitioners import Partitioner
from drivetrain.api.task import NamedOutput, Task, TaskContext, TimestampedValue
from drivetrain.core.clock.time_bounds import known_clock
from drivetrain.errors import GraphError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.arrow_messages import messages_of
from drivetrain.spark.compile.compiled_parts import are_kept, mapped, part, with_part_schema
from drivetrain.spark.compile.frame import Frame, message_class
from drivetrain.spark.compile.named_outputs import ResultColumns, refusal
from drivetrain.spark.compile.python_stage import operator_error
from drivetrain.spark.compile.python_work import MeasuredStage
from drivetrain.spark.compile.surroundings import Surroundings
from drivetrain.spark.session.dataframe_calls import expression, without_columns

TO = "__to"
_instances: dict[tuple[str, str, int], Task[Any, Any]] = {}


def stateless_task(node: Node, inputs: Sequence[Frame], around: Surroundings) -> Frame:
    """The frame after a stateless Task.

    The clock is passed to `on_clock` after the messages; in the last batch `on_stop` is called.
    """
    operation = node.operation
    assert isinstance(operation, Process)
    routed = route(node, inputs)
    results = ResultColumns.of(operation)
    is_timed = TS in routed.columns
    schema = StructType(results.schema.fields + ([routed.schema[TS]] if is_timed else []))
    stage = TaskStage(
        operation,
        node.id,
        str(node),
        tuple(c for c in routed.columns if not c.startswith("__")),
        results,
        is_timed,
        around.clock_ms,
        around.run_id,
        around.is_last,
        inputs[0].resolved().message,
    )
    of_batch = (around.clock_ms, around.is_last)
    results_of = mapped(routed, MeasuredStage(stage), schema, str(node), of_batch)
    return Frame(results_of, (), message_class(operation.type))


def route(node: Node, inputs: Sequence[Frame]) -> DataFrame:
    """All inputs in one DataFrame with `parallelism` partitions, each message in that of its task."""
    operation = node.operation
    assert isinstance(operation, Process)
    ready = [f.resolved() for f in inputs]
    n, ways = operation.parallelism, operation.partitioners
    if len(ready) == 1 and ways[0].kind == "co-location":
        return ready[0].df
    shared = [f.df if all(r.timed for r in ready) else without_columns(f.df, TS) for f in ready]
    inputs_of = zip(shared, ways, strict=True)
    chosen = [with_task(df, w, n, str(node), f"input {i}") for i, (df, w) in enumerate(inputs_of)]
    union = chosen[0]
    for more in chosen[1:]:
        union = union.unionByName(more)
    return without_columns(distributed(union, n, str(node)), TO)


def distributed(df: DataFrame, n: int, where: str) -> DataFrame:
    """`df` with each message in the partition that its column `__to` names, of `n`."""
    made = df.repartitionById(n, expression(TO))
    return with_part_schema(made, (where, "distributed"), df.schema)


def with_task(df: DataFrame, partitioner: Partitioner, n: int, where: str, of: str = "input") -> DataFrame:
    """`df` with the column `__to`: each message's task, from 0 to n − 1; `of` names one of the
    processor's inputs."""
    columns = [c for c in df.columns if not c.startswith("__")]
    if partitioner.kind in ("shuffle", "shuffle grouping") and not are_kept() and df.isStreaming:
        # Spark does not number the rows of a stream, so an Arrow function deals them out.
        dealt = StructType([*df.schema.fields, StructField(TO, IntegerType())])
        return df.mapInArrow(_Dealer(n, new_order=partitioner.kind == "shuffle grouping"), dealt)
    if partitioner.kind == "custom":
        schema = StructType([*df.schema.fields, StructField(TO, IntegerType())])
        return mapped(df, _Chooser(partitioner, tuple(columns), n, where), schema, f"{where}, {of}")
    to = part((where, f"task of {of}"), lambda: _task_column(partitioner, columns, n, where), df.schema)
    return with_part_schema(df.withColumn(TO, to), (where, f"columns of {of}"), df.schema)


def _task_column(partitioner: Partitioner, columns: list[str], n: int, where: str) -> Column:
    """Each message's task, computed by Spark."""
    round_robin = F.monotonically_increasing_id()
    match partitioner.kind:
        case "hash":
            unknown = [c for c in partitioner.columns if c not in columns]
            if unknown:
                raise GraphError(
                    f"the partitioner names a column that is not there: {unknown[0]!r}",
                    where=where,
                    expected=f"columns out of {', '.join(columns)}",
                )
            to: Column = F.pmod(F.hash(*(partitioner.columns or columns)), F.lit(n))
        case "shuffle":
            to = F.pmod(round_robin + F.abs(F.hash(F.spark_partition_id())), F.lit(n))
        case "shuffle grouping":
            to = _new_order_every_round(round_robin, n)
        case "broadcast":
            return F.explode(F.array(*[F.lit(i) for i in range(n)]))
        case _:
            to = F.spark_partition_id()
    return to.cast("int")


def _new_order_every_round(position: Column, n: int) -> Column:
    """Round r visits the tasks in the order a·i + b mod n, with a (coprime to n) and b derived from r."""
    rounds, within = F.floor(position / n), F.pmod(position, F.lit(n))
    strides = [a for a in range(1, n + 1) if math.gcd(a, n) == 1]
    stride = F.element_at(
        F.array(*[F.lit(a) for a in strides]), F.pmod(F.hash(rounds), F.lit(len(strides))) + 1
    )
    return F.pmod(stride * within + F.pmod(F.hash(rounds, F.lit(1)), F.lit(n)), F.lit(n))


@dataclass(frozen=True)
class _Dealer:
    """Deals messages out to `n` tasks, in rounds, starting at a task that depends on the partition."""

    n: int
    new_order: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = SparkTaskContext.get()
        draw = random.Random(context.partitionId() if context is not None else 0)
        order = list(range(self.n))
        draw.shuffle(order)
        position = 0
        for batch in batches:
            to = []
            for _ in range(batch.num_rows):
                if self.new_order and position % self.n == 0:
                    draw.shuffle(order)
                to.append(order[position % self.n])
                position += 1
            yield batch.append_column(TO, pa.array(to, pa.int32()))


@dataclass(frozen=True)
class _Chooser:
    """A custom partitioner as an Arrow function that adds `__to`."""

    partitioner: Partitioner
    columns: tuple[str, ...]
    n: int
    where: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            chosen = [self._choose(m) for m in messages_of(batch, self.columns, None)]
            yield batch.append_column(TO, pa.array(chosen, pa.int32()))

    def _choose(self, message: Any) -> int:
        assert self.partitioner.fn is not None
        try:
            to = self.partitioner.fn(message, self.n)
        except Exception as error:
            raise operator_error(f"{self.where}, its partitioner", message, error) from error
        if not isinstance(to, int) or not 0 <= to < self.n:
            wrong = ValueError(f"the partitioner must return a task from 0 to {self.n - 1}, got {to!r}")
            raise operator_error(f"{self.where}, its partitioner", message, wrong)
        return to


@dataclass(frozen=True)
class TaskStage:
    """One Task in one Spark partition; pickled to the workers."""

    operation: Process
    id: str
    operator: str
    columns: tuple[str, ...]
    results: ResultColumns
    timed: bool
    clock_ms: int | None
    run_id: str
    last: bool
    message: type | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the batches of a partition to its task."""
        context = SparkTaskContext.get()
        index = context.partitionId() % self.operation.parallelism if context is not None else 0
        task = self._instance(index)
        before = _attributes(task)
        for batch in batches:
            if batch.num_rows:
                yield from self._feed(task, batch)
        if self.clock_ms is not None:
            yield from self._emit(call_hook(self.operator, "on_clock", task.on_clock, self.clock_ms))
        self._refuse_change(task, before)
        if self.last:
            yield from self._emit(call_hook(self.operator, "on_stop", task.on_stop))
            _instances.pop((self.run_id, self.id, index), None)

    def _instance(self, index: int) -> Task[Any, Any]:
        key = (self.run_id, self.id, index)
        if key not in _instances:
            _instances[key] = started(self.operation, self.id, self.operator, index, self.clock_ms)
        return _instances[key]

    def _feed(self, task: Task[Any, Any], batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.operation.batched:
            for result in call_hook(self.operator, "on_batch", _on_batch, task, batch):
                yield from self.results.table(result, self.operator, timed=self.timed).to_batches()
            return
        stamps = (
            batch.column(batch.schema.get_field_index(TS)).cast(pa.int64()).to_pylist()
            if self.timed
            else None
        )
        out: list[Any] = []
        at: list[int] = []
        messages = messages_of(batch, self.columns, self.message)
        collect_all(self.operator, task, messages, stamps, out, at)
        yield self._batch(out, at)

    def _emit(self, results: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        out: list[Any] = []
        at: list[int] = []
        for result in results:
            add(result, (self.clock_ms or 0) * 1000, out, at)
        if out:
            yield self._batch(out, at)

    def _batch(self, out: list[Any], at: list[int]) -> pa.RecordBatch:
        arrays = self.results.arrays(out, self.operator)
        names = list(self.results.schema.names)
        if self.timed:
            arrays.append(pa.array(at, pa.int64()).cast(pa.timestamp("us", "UTC")))
            names.append(TS)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _refuse_change(self, task: Task[Any, Any], before: dict[str, Any]) -> None:
        after = _attributes(task)
        changed = [k for k in {**before, **after} if not _same(before.get(k), after.get(k))]
        if changed:
            raise refusal(
                f"the Task changed its attribute {changed[0]!r}, which is lost when Spark moves it; "
                f"set stateful = True in {type(task).__name__} to keep its attributes as state",
                self.operator,
            )


def started(operation: Process, id: str, operator: str, index: int, clock_ms: int | None) -> Task[Any, Any]:
    """A new instance of a Task, after its `on_start`."""
    try:
        task = operation.task()
        start_ms = None if clock_ms is None else known_clock(clock_ms)
        task.on_start(TaskContext(id, index, operation.parallelism, start_ms or 0))
    except Exception as error:
        raise operator_error(f"{operator}, on_start", None, error) from error
    return task


def collect(
    operator: str, task: Task[Any, Any], message: Any, ts_us: int, out: list[Any], at: list[int]
) -> None:
    """Call `on_next` and add its results with their timestamps (µs) to `out` and `at`."""
    try:
        results = task.on_next(message)
        if results is not None:
            for result in results:
                add(result, ts_us, out, at)
    except Exception as error:
        raise operator_error(operator, message, error) from error


def collect_all(
    operator: str,
    task: Task[Any, Any],
    messages: Iterable[Any],
    stamps: Iterable[int] | None,
    out: list[Any],
    at: list[int],
) -> None:
    """Call `on_next` for each message; without `stamps`, their timestamps are 0."""
    on_next, message = task.on_next, None
    try:
        for ts_us, message in zip(repeat(0) if stamps is None else stamps, messages, strict=False):
            results = on_next(message)
            if results is not None:
                for result in results:
                    add(result, ts_us, out, at)
    except Exception as error:
        raise operator_error(operator, message, error) from error


def call_hook(operator: str, name: str, hook: Any, *args: Any) -> list[Any]:
    """A hook's results as a list; its errors name the hook."""
    try:
        results = hook(*args)
        return [] if results is None else list(results)
    except Exception as error:
        raise operator_error(f"{operator}, {name}", args[-1] if args else None, error) from error


def add(result: Any, ts_us: int, out: list[Any], at: list[int]) -> None:
    """Add one result with its timestamp, or with that of its `TimestampedValue`."""
    if isinstance(result, TimestampedValue):
        out.append(result.value)
        at.append(result.timestamp_ms * 1000)
    else:
        out.append(result)
        at.append(ts_us)


def _on_batch(task: Any, batch: pa.RecordBatch) -> Iterable[Any] | None:
    """A task's results for a batch, as an iterable even if they are a single batch or table."""
    made = task.on_batch(batch)
    return [made] if isinstance(made, pa.RecordBatch | pa.Table | NamedOutput) else made


def _attributes(task: Task[Any, Any]) -> dict[str, tuple[Any, int | None]]:
    """A cheap record of a task's attributes: the objects themselves, and the lengths of containers.

    It keeps the objects alive: otherwise a new object could get the id of a deleted one.
    """
    return {k: (v, len(v) if isinstance(v, list | dict | set) else None) for k, v in vars(task).items()}


def _same(before: tuple[Any, int | None] | None, after: tuple[Any, int | None] | None) -> bool:
    return before is not None and after is not None and before[0] is after[0] and before[1] == after[1]
