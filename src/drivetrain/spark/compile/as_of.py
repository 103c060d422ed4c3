"""Joins with the versions of a table, as of each message's time, on Spark's keyed state.

Problem: Spark joins two streams by an interval of time. The newest version before a message may be of any
age, and which one is the newest is known only when the clocks of both streams have passed the message.

Design: both sides are packed by bucket of their keys, as Arrow (see `deduplication`). Messages and versions
wait in the state of the bucket. When the clock has passed a message, it is joined with the versions that it
sees (`core.state.row_versions`); older versions are then dropped. Without `on`, versions go to all buckets,
and each message to an arbitrary one.

A late version (older than the clock before its batch) does not change results that were emitted: messages
from the clock on see it if it is still the newest. It is counted; a late message is counted and left out.

Called by `operators`, and through Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from drivetrain.api.graphs.graph import Node
from drivetrain.api.operations import JoinAsOf
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS, ended_by
from drivetrain.core.state.paged_state import BUCKETS, bucket_of
from drivetrain.core.state.row_versions import RowVersion, RowVersions
from drivetrain.core.state.state_keys import encoded_key
from drivetrain.errors import GraphError, OperatorTypeError
from drivetrain.runtime.channel.columns import TS
from drivetrain.spark.compile.arrow_messages import keys_of
from drivetrain.spark.compile.bucket_function import BucketFunction
from drivetrain.spark.compile.deduplication import UnpackRows, as_bytes, as_table, times_of
from drivetrain.spark.compile.frame import Frame, require_column
from drivetrain.spark.compile.keyed import PACKED, bucket_row, clock_in, kept_in_buckets, timeout_at, unpacked
from drivetrain.spark.compile.surroundings import StatefulPlan, Surroundings

if TYPE_CHECKING:
    import pandas as pd

_KEY: Final = "__key"
_THING: Final = "__thing"
_MESSAGES: Final = b"m"
_VERSIONS: Final = b"v"
_LAST_US: Final = 2**63 - 1
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


def join_as_of(node: Node, inputs: Sequence[Frame], around: Surroundings) -> StatefulPlan:
    """Compile a join as of each message; the DataFrame holds packed results for `expand`."""
    operation = node.operation
    assert isinstance(operation, JoinAsOf)
    messages, versions = (frame.resolved() for frame in inputs)
    _require(operation, messages, versions, str(node))
    mine = (*messages.columns, TS)
    theirs = tuple(name for name in versions.columns if name not in operation.on)
    of_messages = messages.df.select(*mine)
    of_versions = versions.df.select(*operation.on, *theirs, TS)
    packed = of_messages.mapInArrow(SidePack(_MESSAGES, operation.on, ()), PACKED).union(
        of_versions.mapInArrow(SidePack(_VERSIONS, operation.on, operation.per), PACKED)
    )
    added = StructType([StructField(name, of_versions.schema[name].dataType) for name in theirs])
    columns = to_arrow_schema(added, timezone="UTC")
    out = kept_in_buckets(packed, AsOfFunction(columns, operation.how == "left", str(node)))
    kept = [of_messages.schema[name] for name in messages.columns]
    schema = StructType([*kept, *added.fields, of_messages.schema[TS]])

    def expand(df: DataFrame) -> Frame:
        return Frame(unpacked(df, UnpackRows(tuple(schema.names)), schema, str(node)))

    return StatefulPlan(out, expand=expand)


def _require(operation: JoinAsOf, messages: Frame, versions: Frame, where: str) -> None:
    if not (messages.timed and versions.timed):
        raise GraphError(
            "a join as of the time of messages needs event time on both sides",
            where=where,
            remedy='put .event_time("column") on each',
        )
    for name in operation.on:
        require_column(name, messages.columns, where, "to join on")
    for name in (*operation.on, *operation.per):
        require_column(name, versions.columns, where, "of the versions")
    for name in operation.on:
        kinds = [frame.df.schema[name].dataType.simpleString() for frame in (messages, versions)]
        if kinds[0] != kinds[1]:
            raise OperatorTypeError(
                f"the column {name!r} has two types",
                where=where,
                expected=f"{kinds[0]} on both sides",
                got=f"{kinds[0]} and {kinds[1]}",
                remedy="convert one with select(...) or with_columns(...)",
            )
    clash = [c for c in versions.columns if c in messages.columns and c not in operation.on]
    if clash:
        raise OperatorTypeError(
            f"both sides of the join have a column {clash[0]!r}",
            where=where,
            remedy="rename one with rename(...), or add it to on=",
        )


@dataclass(frozen=True)
class SidePack:
    """Packs the rows of one side by bucket, as Arrow streams with the keys of rows.

    Without `on` a version goes to all buckets, a message to an arbitrary one.
    """

    side: bytes
    on: tuple[str, ...]
    per: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield, for each batch, one row per bucket that gets some of it."""
        for number, batch in enumerate(batches):
            if not batch.num_rows:
                continue
            keys = _encoded(batch, self.on, null_is_equal=False)
            table = pa.Table.from_batches([batch]).append_column(_KEY, pa.array(keys, pa.binary()))
            if self.side == _VERSIONS:
                things = _encoded(batch, self.per, null_is_equal=True)
                table = table.append_column(_THING, pa.array(things, pa.binary()))
                table = table.filter(pc.is_valid(table.column(_KEY)))
                keys = [key for key in keys if key is not None]
            parts = self._parts(table, keys, number)
            payloads = [self.side + as_bytes(part) for _, part in parts]
            yield pa.RecordBatch.from_arrays(
                [pa.array([bucket for bucket, _ in parts], pa.int32()), pa.array(payloads, pa.binary())],
                names=["bucket", "payload"],
            )

    def _parts(self, table: pa.Table, keys: list[bytes | None], number: int) -> list[tuple[int, pa.Table]]:
        if not self.on:
            buckets = range(BUCKETS) if self.side == _VERSIONS else [number % BUCKETS]
            return [(bucket, table) for bucket in buckets]
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(bucket_of(key or b""), []).append(row)
        return [(bucket, table.take(pa.array(taken))) for bucket, taken in rows.items()]


def _encoded(batch: pa.RecordBatch, names: tuple[str, ...], *, null_is_equal: bool) -> list[bytes | None]:
    """The keys of rows; None where a column is null, unless nulls are equal."""
    if not names:
        return [b""] * batch.num_rows
    columns = [keys_of(batch.column(name)) for name in names]
    return [
        encoded_key(key) if null_is_equal or None not in key else None for key in zip(*columns, strict=True)
    ]


@dataclass(frozen=True)
class AsOfFunction(BucketFunction):
    """Called by Spark for a bucket: joins the messages that the clock has passed, keeps the others."""

    columns: pa.Schema
    """The columns of versions in the results."""
    keeps_all: bool
    operator: str

    def _rows(self, _bucket: int, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        clock_ms = clock_in(state)
        came = [] if state.hasTimedOut else [bytes(p) for frame in frames for p in frame["payload"]]
        messages, late_messages = _divided([p[1:] for p in came if p[:1] == _MESSAGES], clock_ms)
        versions, late_versions = _divided([p[1:] for p in came if p[:1] == _VERSIONS], clock_ms)
        held, known = _decode(state.get[0]) if state.exists else (b"", b"")
        waiting = _joined([as_table(held) if held else None], messages)
        all_versions = _joined([as_table(known) if known else None], versions)
        joined = None
        if waiting is not None:
            until_us = min(ended_by(clock_ms) * 1000, _LAST_US)
            is_due = pc.less(times_of(waiting), until_us)
            joined = self._join(waiting.filter(is_due), all_versions)
            waiting = waiting.filter(pc.invert(is_due))
        all_versions = _joined([all_versions], late_versions)
        self._keep(state, waiting, all_versions, clock_ms)
        late = sum(table.num_rows for table in (*late_messages, *late_versions))
        if late or joined is not None:
            payload = None if joined is None else as_bytes(joined)
            yield bucket_row(payload, late)

    def _join(self, messages: pa.Table, versions: pa.Table | None) -> pa.Table | None:
        """The messages with the columns of the versions that they see; None if there are none."""
        seen = RowVersions([] if versions is None else _versions(versions))
        left: list[int] = []
        right: list[int | None] = []
        keys, times = messages.column(_KEY).to_pylist(), times_of(messages).to_pylist()
        for row, (key, time_us) in enumerate(zip(keys, times, strict=True)):
            found: Sequence[int | None] = [] if key is None else seen.seen(key, time_us)
            if not found and self.keeps_all:
                found = [None]
            left += [row] * len(found)
            right += found
        if not left:
            return None
        made = messages.drop_columns([_KEY]).take(pa.array(left, pa.int64()))
        for field in self.columns:
            if versions is None:
                chosen = pa.nulls(len(left), field.type)
            else:
                chosen = versions.column(field.name).take(pa.array(right, pa.int64()))
            made = made.append_column(field.name, chosen)
        return made

    def _keep(self, state: Any, waiting: pa.Table | None, versions: pa.Table | None, clock_ms: int) -> None:
        if versions is not None:
            versions = versions.take(
                pa.array(RowVersions(_versions(versions)).needed(clock_ms * 1000), pa.int64())
            )
        has_messages = waiting is not None and waiting.num_rows > 0
        if clock_ms >= FINAL_CLOCK_MS or (versions is None and not has_messages):
            if state.exists:
                state.remove()
            return
        held = as_bytes(waiting) if has_messages else b""
        state.update((msgspec.msgpack.encode((held, b"" if versions is None else as_bytes(versions))),))
        if has_messages:
            timeout_at(state, pc.min(times_of(waiting)).as_py() // 1000 + 1, clock_ms)


def _divided(payloads: list[bytes], clock_ms: int) -> tuple[list[pa.Table], list[pa.Table]]:
    """The rows that came, on time and late."""
    on_time, late = [], []
    for table in map(as_table, payloads):
        is_late = pc.less(times_of(table), clock_ms * 1000)
        on_time.append(table.filter(pc.invert(is_late)))
        late.append(table.filter(is_late))
    return on_time, late


def _joined(kept: list[pa.Table | None], came: list[pa.Table]) -> pa.Table | None:
    """The kept rows and those that came; None if there are none."""
    tables = [table for table in (*kept, *came) if table is not None and table.num_rows]
    return pa.concat_tables(tables) if tables else None


def _versions(table: pa.Table) -> list[RowVersion]:
    """The versions of a table; equal times are ordered by content, so that batches do not decide."""
    keys, things = table.column(_KEY).to_pylist(), table.column(_THING).to_pylist()
    rows = zip(keys, things, times_of(table).to_pylist(), range(table.num_rows), strict=True)
    places: dict[tuple[bytes, bytes, int], list[int]] = {}
    for key, thing, time_us, row in rows:
        places.setdefault((key, thing, time_us), []).append(row)
    return [
        RowVersion(*place, repr(table.slice(row, 1).to_pylist()) if len(alike) > 1 else "", row)
        for place, alike in places.items()
        for row in alike
    ]
