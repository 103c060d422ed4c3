"""Sinks for results: the declarations that a user writes.

The problem: a graph must be built, printed, compared and sent without access to its outputs. So a sink is a
frozen dataclass that only *declares* where and how to write; `drivetrain.connectors` has one adapter per
declaration, which writes.

Every sink declares its **guarantee** for a run that is killed and started again:

- `exactly once`: each result is in the output once, and readers never see half a batch;
- `at least once`: no result is missing; those of the batch in flight may be written again, with the same
  batch id, so a receiver that remembers the id can drop them.

Invariants:

1. Building a sink executes nothing and opens nothing.
2. The guarantee is a function of the declaration alone, so the plan can print it.

Called by applications; read by the planner and by the adapters.

    >>> from drivetrain.api import sinks
    >>> sinks.parquet("out/").guarantee
    'exactly once'
    >>> sinks.console().guarantee
    'at least once'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from drivetrain.api.connectors.custom_sink import CustomSink as CustomSink
from drivetrain.api.connectors.custom_sink import Guarantee as Guarantee
from drivetrain.api.connectors.delta_sink import DeltaSink as DeltaSink
from drivetrain.api.connectors.delta_sink import (
    delta as delta,  # re-exported with the functions of this module
)
from drivetrain.api.connectors.file_sinks import FileSink as FileSink
from drivetrain.api.connectors.file_sinks import RollingPolicy as RollingPolicy
from drivetrain.api.connectors.file_sinks import csv as csv
from drivetrain.api.connectors.file_sinks import files as files
from drivetrain.api.connectors.file_sinks import json as json
from drivetrain.api.connectors.file_sinks import parquet as parquet
from drivetrain.api.connectors.file_sinks import text as text
from drivetrain.api.connectors.iceberg_sink import IcebergSink as IcebergSink
from drivetrain.api.connectors.iceberg_sink import iceberg as iceberg
from drivetrain.api.connectors.kafka_sink import KafkaSink as KafkaSink
from drivetrain.api.connectors.kafka_sink import kafka as kafka
from drivetrain.api.connectors.mysql_sink import MysqlSink as MysqlSink
from drivetrain.api.connectors.mysql_sink import mysql as mysql
from drivetrain.api.connectors.redis_sink import RedisSink as RedisSink
from drivetrain.api.connectors.redis_sink import redis as redis
from drivetrain.api.connectors.sql_sink import PostgresqlSink as PostgresqlSink
from drivetrain.api.connectors.sql_sink import SqliteSink as SqliteSink
from drivetrain.api.connectors.sql_sink import SqlSink
from drivetrain.api.connectors.sql_sink import postgresql as postgresql
from drivetrain.api.connectors.sql_sink import sqlite as sqlite
from drivetrain.api.foreign_operator_names import SINK_WORDS
from drivetrain.api.spelling import names_of_module

__all__ = [
    "BatchesSink",
    "ConsoleSink",
    "CustomSink",
    "DeltaSink",
    "FileSink",
    "IcebergSink",
    "KafkaSink",
    "MemorySink",
    "MysqlSink",
    "NullSink",
    "PostgresqlSink",
    "RedisSink",
    "RollingPolicy",
    "Sink",
    "SqlSink",
    "SqliteSink",
    "batches",
    "console",
    "csv",
    "delta",
    "files",
    "iceberg",
    "json",
    "kafka",
    "memory",
    "mysql",
    "none",
    "parquet",
    "postgresql",
    "redis",
    "sqlite",
    "text",
]

if not TYPE_CHECKING:
    __getattr__ = names_of_module("drivetrain.sinks", __all__, SINK_WORDS)


@dataclass(frozen=True, kw_only=True)
class ConsoleSink:
    """Prints at most `rows` messages of each batch as a table on standard output."""

    rows: int = 20
    guarantee: ClassVar[Guarantee] = "at least once"


@dataclass(frozen=True, kw_only=True)
class BatchesSink:
    """Calls `function(batch, batch_id)` with every non-empty batch, in the driver, in order.

    `batch` is a `pyarrow.Table` or, with `frame="pandas"`, a pandas DataFrame. If a batch is delivered again
    after a crash, it has the same id: a function that remembers the last id it finished, and skips that
    batch, has an effect exactly once.
    """

    function: Callable[[Any, int], object]
    frame: Literal["arrow", "pandas"] = "arrow"
    guarantee: ClassVar[Guarantee] = "at least once"


@dataclass(frozen=True, kw_only=True)
class MemorySink:
    """Keeps the batches in this process under `name`, for tests; read them with `collected`."""

    name: str
    guarantee: ClassVar[Guarantee] = "exactly once"


@dataclass(frozen=True, kw_only=True)
class NullSink:
    """Has every message computed, counts it, and drops it."""

    guarantee: ClassVar[Guarantee] = "exactly once"


Sink: TypeAlias = (
    FileSink
    | ConsoleSink
    | BatchesSink
    | MemorySink
    | NullSink
    | KafkaSink
    | SqliteSink
    | PostgresqlSink
    | MysqlSink
    | DeltaSink
    | IcebergSink
    | RedisSink
    | CustomSink
)


def needs_transactions(sink: Sink) -> bool:
    """Whether a sink publishes its results with checkpoints, so that the application needs periodic ones.

    >>> needs_transactions(sqlite("results.db", "counts")), needs_transactions(parquet("out/"))
    (True, False)
    """
    if isinstance(sink, FileSink):
        return sink.together is not None
    return isinstance(sink, SqlSink) and sink.mode == "append"


def console(*, rows: int = 20) -> ConsoleSink:
    """Print a table per batch on standard output; see `ConsoleSink`.

    >>> console(rows=5).rows
    5
    """
    return ConsoleSink(rows=rows)


def batches(
    function: Callable[[Any, int], object], *, frame: Literal["arrow", "pandas"] = "arrow"
) -> BatchesSink:
    """Call a Python function with every batch and its id; see `BatchesSink`.

    >>> seen = []
    >>> batches(lambda table, batch_id: seen.append(table.num_rows)).guarantee
    'at least once'
    """
    return BatchesSink(function=function, frame=frame)


def memory(name: str) -> MemorySink:
    """Keep batches in the memory of this process, for tests; see `MemorySink`.

    >>> memory("results").guarantee
    'exactly once'
    """
    return MemorySink(name=name)


def none() -> NullSink:
    """Drop every message after computing and counting it; see `NullSink`.

    >>> sales.sink(none())
    """
    return NullSink()
