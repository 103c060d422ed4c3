"""Packs the messages of persistent and keyed Tasks by bucket of keys, before the shuffle, in Spark's workers.

If a Task only merges messages, they are reduced to one partial result per key before the shuffle: by the
functions of a user's monoid, or by Arrow for built-in aggregations. Arrow reduces some hundred thousand
messages at a time, and then the results of those: Python sees each key of a partition once, unless there are
so many that they would fill the memory.

Called by `persistent` and `keyed_tasks`, through Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from drivetrain.api.operations import Process
from drivetrain.api.states.key_monoids import ColumnMonoid
from drivetrain.core.state.paged_state import bucket_of
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.core.state.state_rules import EVER, Span, StateRules
from drivetrain.spark.compile.arrow_messages import keys_of, messages_of, values_of
from drivetrain.spark.compile.float_order import as_floats, as_ordered
from drivetrain.spark.compile.keyed import packed_batch, timestamps_us
from drivetrain.spark.compile.message_payloads import MessageForm, payloads
from drivetrain.spark.compile.python_stage import operator_error

_MANY: Final = 400_000
"""Rows that are reduced together before the shuffle."""
_MANY_BYTES: Final = 16 << 20
"""And their bytes, where messages travel as they are: a payload may be as large."""
_GROUPS: Final = 1_000_000
"""Groups that are held before they are reduced again; if more than half remain then, they are sent."""
_SPAN: Final = "__start"
_PANE: Final = "__pane"
_ROWS: Final = "__rows"
_ORDERED: Final = "__ordered"
_PARTS: Final = ("__part", "__count")
_AGAIN: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""The aggregation that combines partial results, by kind."""


@dataclass(frozen=True)
class _Pack:
    """The common fields of all packers."""

    operation: Process
    operator: str
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    message: type | None
    timed: bool

    @property
    def form(self) -> MessageForm:
        """How messages are made of rows again."""
        return MessageForm(self.columns, self.message, self.timed)

    def _keyed(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, int, Any]]:
        """Key, timestamp (µs) and message, row by row."""
        messages = messages_of(batch, self.columns, self.message)
        stamps = timestamps_us(batch, self.timed)
        return zip(self._keys(batch, messages), stamps, messages, strict=True)

    def _keys(self, batch: pa.RecordBatch, messages: list[Any]) -> Iterable[Any]:
        if len(self.keys) == 1:
            return keys_of(batch.column(self.keys[0]))
        if self.keys:
            return zip(*(keys_of(batch.column(name)) for name in self.keys), strict=True)
        task: Any = self.operation.task()
        return [self._key_of(task, message) for message in messages]

    def _key_of(self, task: Any, message: Any) -> bytes:
        # As bytes: in a dict 1 and True would be one key.
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
    """Packs messages with their timestamps by key and bucket, for Tasks that process each one."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per bucket that occurs in some batches."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            if batch.num_rows:
                waiting.append(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > _MANY or size > _MANY_BYTES:
                yield self._packed(waiting)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield self._packed(waiting)

    def _packed(self, waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
        batch = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
        numbers, keys = self._numbered(batch)
        encoded = list(map(self._encoded, keys))
        rows = batch.select(self.form.needed)
        return payloads(rows, numbers, encoded, list(map(bucket_of, encoded)))

    def _numbered(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[Any], list[Any]]:
        """The number of each row's key, and the keys by number, in the order in which they occur."""
        if len(self.keys) == 1 and _compares_alike(batch.column(self.keys[0]).type):
            coded = batch.column(self.keys[0]).dictionary_encode(null_encoding="encode")
            return coded.indices.to_numpy(), values_of(coded.dictionary)
        messages = [] if self.keys else messages_of(batch, self.columns, self.message)
        known: dict[Any, int] = {}
        numbers = (known.setdefault(key, len(known)) for key in self._keys(batch, messages))
        return np.fromiter(numbers, np.int64, batch.num_rows), list(known)


@dataclass(frozen=True)
class _MergingPack(_Pack):
    """The fields of packers that merge messages."""

    rules: StateRules[Any]


@dataclass(frozen=True)
class SumPack(_MergingPack):
    """Reduces messages by key, window and pane with the monoid's functions; packs the result by bucket."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per bucket that occurs in some batches."""
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
            for key, ts_us, message in self._keyed(batch):
                for place in places(ts_us // 1000):
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
class ColumnPack(_MergingPack):
    """Reduces messages with Arrow, for built-in aggregations; packs the result by bucket."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row per bucket that occurs in some batches."""
        waiting: list[pa.RecordBatch] = []
        groups: list[pa.Table] = []
        rows = held = 0
        for batch in batches:
            if batch.num_rows:
                waiting.append(self._needed(batch))
                rows += batch.num_rows
            if rows > _MANY:
                groups.append(self._grouped(pa.Table.from_batches(waiting), self._wanted))
                held += groups[-1].num_rows
                waiting, rows = [], 0
            if held > _GROUPS:
                groups = [self._grouped(pa.concat_tables(groups), self._wanted_again)]
                held = groups[0].num_rows
                if held > _GROUPS // 2:
                    yield packed_batch(self._buckets(groups[0]))
                    groups, held = [], 0
        if waiting:
            groups.append(self._grouped(pa.Table.from_batches(waiting), self._wanted))
        if groups:
            once = len(groups) == 1
            whole = groups[0] if once else self._grouped(pa.concat_tables(groups), self._wanted_again)
            yield packed_batch(self._buckets(whole))

    @property
    def _monoid(self) -> ColumnMonoid:
        assert isinstance(self.rules.monoid, ColumnMonoid)
        return self.rules.monoid

    def _needed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns needed: keys, window, pane, and the aggregated one."""
        names = list(dict.fromkeys([*self.keys, *([self._monoid.column] if self._monoid.column else [])]))
        arrays = [batch.column(name) for name in names]
        if self.timed and (self.rules.window is not None or self.rules.step_ms is not None):
            ms = _cut(pa.array(timestamps_us(batch, self.timed), pa.int64()), 1000, 1000)
            for name, size in ((_SPAN, self._size_ms), (_PANE, self.rules.step_ms)):
                if size is not None:
                    arrays.append(_cut(ms, size))
                    names.append(name)
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @property
    def _size_ms(self) -> int | None:
        return None if self.rules.window is None else self.rules.window.size_ms

    @property
    def _kinds(self) -> tuple[str, ...]:
        """The aggregations of the column, whose results are in `_PARTS`."""
        if self._monoid.column is None:
            return ()
        return ("sum", "count") if self._monoid.kind == "avg" else (self._monoid.kind,)

    @property
    def _wanted(self) -> list[Any]:
        return [([], "count_all"), *((self._monoid.column, kind) for kind in self._kinds)]

    @property
    def _wanted_again(self) -> list[Any]:
        parts = zip(_PARTS, self._kinds, strict=False)
        return [(_ROWS, "sum"), *((part, _AGAIN[kind]) for part, kind in parts)]

    def _grouped(self, table: pa.Table, wanted: list[Any]) -> pa.Table:
        """One row for each key, window and pane, with the number of messages and the parts of the state."""
        by = [*self.keys, *(name for name in (_SPAN, _PANE) if name in table.column_names)]
        parts = wanted[1:]
        is_ordered = self._monoid.kind == "max" and pa.types.is_floating(table.schema.field(parts[0][0]).type)
        if is_ordered:
            table = table.append_column(_ORDERED, as_ordered(table.column(parts[0][0]).combine_chunks()))
            wanted = [wanted[0], (_ORDERED, "max")]
        grouped = table.group_by(by, use_threads=False).aggregate(wanted)
        made = [how if not of else f"{of}_{how}" for of, how in wanted]
        columns = [grouped.column(name) for name in (*by, *made)]
        if is_ordered:
            columns[-1] = as_floats(columns[-1].combine_chunks())
        return pa.table(columns, [*by, _ROWS, *_PARTS[: len(made) - 1]])

    def _buckets(self, grouped: pa.Table) -> dict[int, list[Any]]:
        messages = grouped.column(_ROWS).to_pylist()
        values = [grouped.column(name).to_pylist() for name in _PARTS[: len(self._kinds)]]
        parts = messages if not values else values[0] if len(values) == 1 else zip(*values, strict=True)
        keys = [grouped.column(name).to_pylist() for name in self.keys]
        names, none = grouped.column_names, [0] * grouped.num_rows
        size_ms = self._size_ms or 0
        starts = grouped.column(_SPAN).to_pylist() if _SPAN in names else none
        panes = grouped.column(_PANE).to_pylist() if _PANE in names else none
        buckets: dict[int, list[Any]] = {}
        by_key = keys[0] if len(keys) == 1 else zip(*keys, strict=True)
        for key, start, pane, part, count in zip(by_key, starts, panes, parts, messages, strict=True):
            encoded = self._encoded(key)
            entry = (encoded, (start, start + size_ms), pane, part, count)
            buckets.setdefault(bucket_of(encoded), []).append(entry)
        return buckets


def _compares_alike(kind: pa.DataType) -> bool:
    """Whether Arrow tells values of a type apart as Python does their keys."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_binary(kind))


def _cut(times: pa.Array, step: int, per: int = 1) -> pa.Array:
    """The multiple of the step at or before each time, in units of `per`."""
    whole = pc.multiply(pc.divide(times, step), step)  # rounded towards zero
    return pc.divide(pc.if_else(pc.greater(whole, times), pc.subtract(whole, step), whole), per)
