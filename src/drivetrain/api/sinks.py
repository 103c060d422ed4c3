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

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from os.path import abspath, expanduser
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from drivetrain.api.delta_sink import DeltaSink as DeltaSink
from drivetrain.api.delta_sink import delta as delta  # re-exported with the functions of this module
from drivetrain.api.iceberg_sink import IcebergSink as IcebergSink
from drivetrain.api.iceberg_sink import iceberg as iceberg
from drivetrain.api.kafka_sink import KafkaSink as KafkaSink
from drivetrain.api.kafka_sink import kafka as kafka
from drivetrain.api.location import caller
from drivetrain.api.other_words import SINK_WORDS
from drivetrain.api.spelling import names_of_module
from drivetrain.api.sql_sink import PostgresqlSink as PostgresqlSink
from drivetrain.api.sql_sink import SqliteSink as SqliteSink
from drivetrain.api.sql_sink import SqlSink
from drivetrain.api.sql_sink import postgresql as postgresql
from drivetrain.api.sql_sink import sqlite as sqlite
from drivetrain.config.references import without_password
from drivetrain.config.units import duration_ms, size_bytes
from drivetrain.errors import GraphError

__all__ = [
    "BatchesSink",
    "ConsoleSink",
    "CustomSink",
    "DeltaSink",
    "FileSink",
    "IcebergSink",
    "KafkaSink",
    "MemorySink",
    "NullSink",
    "PostgresqlSink",
    "Roll",
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
    "none",
    "parquet",
    "postgresql",
    "sqlite",
    "text",
]

if not TYPE_CHECKING:
    __getattr__ = names_of_module("drivetrain.sinks", __all__, SINK_WORDS)

Guarantee: TypeAlias = Literal["exactly once", "at least once", "at most once"]
FileFormat: TypeAlias = Literal["parquet", "csv", "json", "text"]
_ROLLS = {"size_bytes": size_bytes(minimum_bytes=1), "age_ms": duration_ms(minimum_ms=1)}
_FORMATS = ("parquet", "csv", "json", "text")
_COMPRESSIONS = {
    "parquet": ("snappy", "zstd", "gzip", "none"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
    "text": ("none", "gzip"),
}


@dataclass(frozen=True)
class Roll:
    """A file is closed when it reaches `size_bytes`, or when its oldest message has waited for `age_ms`."""

    size_bytes: int = 128 * 2**20
    age_ms: int = 600_000


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """Writes one file per non-empty batch into one flat directory; an atomic rename publishes it whole.

    `path` is a directory or a pyarrow file system URI; it must be missing, empty, or owned by this
    application. `format` is `parquet`, `csv` (RFC 4180, with a `header` line in every file), `json` (one
    object per line) or `text` (exactly one string column, one line per message). Timestamps in CSV and JSON
    are ISO 8601 in UTC. By default, `compression` is `snappy` for Parquet and `none` for the others. Sinks of
    one application with the same `together`, a directory above all of them, publish in one step for readers
    that use `published_files`. With `roll`, a file holds many batches, and becomes visible when it is closed.
    """

    path: str
    format: FileFormat = "parquet"
    header: bool = True
    compression: str | None = None
    together: str | None = None
    roll: Roll | None = None
    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        if not self.path:
            raise GraphError(
                "a file sink needs a path", where="sinks.files", remedy="give a directory or a URI"
            )
        if self.format not in _FORMATS:
            raise GraphError(
                "unknown file format",
                where="sinks.files",
                expected=", ".join(_FORMATS),
                got=repr(self.format),
            )
        if self.compression is not None and self.compression not in _COMPRESSIONS[self.format]:
            raise GraphError(
                f"unknown compression for {self.format}",
                where="sinks.files",
                expected=", ".join(_COMPRESSIONS[self.format]),
                got=repr(self.compression),
            )
        if self.together is not None and not _is_below(self.path, self.together):
            raise GraphError(
                "sinks that publish together must be below their common directory",
                where="sinks.files",
                expected=f"a path below {self.together}",
                got=self.path,
                remedy="give a directory that is above all of these sinks",
            )
        if self.together is not None and self.roll is not None:
            raise GraphError(
                "sinks that publish together close their files with each checkpoint",
                where="sinks.files",
                expected="together, or roll",
                got="both",
                remedy="leave roll out, and set checkpoint.interval",
            )


def _is_below(path: str, above: str) -> bool:
    if "://" not in path:
        path, above = abspath(expanduser(path)), abspath(expanduser(above))
    return path.rstrip("/").startswith(above.rstrip("/") + "/")


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


@dataclass(frozen=True, kw_only=True)
class CustomSink:
    """A sink of an installed connector: subclass it as a frozen dataclass with your system's settings.

    A subclass declares its `guarantee`, and describes its destination in `name`, for plans and errors.
    """

    guarantee: ClassVar[Guarantee] = "at least once"

    @property
    def name(self) -> str:
        """The destination, as plans and errors show it."""
        return ""

    @property
    def place(self) -> str | None:
        """The place that no other sink of an application may write to; None: several may share it."""
        return None


Sink: TypeAlias = (
    FileSink
    | ConsoleSink
    | BatchesSink
    | MemorySink
    | NullSink
    | KafkaSink
    | SqliteSink
    | PostgresqlSink
    | DeltaSink
    | IcebergSink
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


def files(
    path: str | PathLike[str],
    format: FileFormat = "parquet",
    *,
    header: bool = True,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
) -> FileSink:
    """Write files in `path`, one per batch, exactly once; see `FileSink`.

    With `roll`, many batches become one file, which is closed when it reaches a size or an age, whichever
    comes first: "128 MiB" (or 10 minutes), "1 h" (or 128 MiB), ("1 GiB", "1 h").

    >>> files("out/", format="csv").format
    'csv'
    >>> files("out/", roll="64 MiB").roll
    Roll(size_bytes=67108864, age_ms=600000)
    """
    return FileSink(
        path=without_password(fspath(path)),
        format=format,
        header=header,
        compression=compression,
        together=None if together is None else without_password(fspath(together)),
        roll=None if roll is None else _rolls(roll),
    )


def _rolls(roll: str | tuple[str, str]) -> Roll:
    """The limits of a file: a size, a duration, or both."""
    given: dict[str, int] = {}
    limits = (roll,) if isinstance(roll, str) else tuple(roll)
    for limit in limits:
        for name, parser in _ROLLS.items():
            with contextlib.suppress(ValueError):
                given[name] = parser.read(limit)
    if not limits or len(given) != len(limits):
        raise GraphError(
            "cannot read when to close files",
            where=str(caller()),
            expected='a size, a duration, or both: "128 MiB", "10 min", ("1 GiB", "1 h")',
            got=repr(roll),
            remedy="write a number and its unit",
        )
    return Roll(**given)


def parquet(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
) -> FileSink:
    """Write Parquet files; shorthand for `files(path, format="parquet")`.

    >>> parquet("out/", compression="zstd").format
    'parquet'
    """
    return files(path, "parquet", compression=compression, together=together, roll=roll)


def csv(
    path: str | PathLike[str],
    *,
    header: bool = True,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
) -> FileSink:
    """Write CSV files; shorthand for `files(path, format="csv")`.

    >>> csv("out/", header=False).header
    False
    """
    return files(path, "csv", header=header, compression=compression, together=together, roll=roll)


def json(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
) -> FileSink:
    """Write JSON lines files; shorthand for `files(path, format="json")`.

    >>> json("out/", roll="1 h").roll.age_ms
    3600000
    """
    return files(path, "json", compression=compression, together=together, roll=roll)


def text(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
    roll: str | tuple[str, str] | None = None,
) -> FileSink:
    """Write text files from one string column; shorthand for `files(path, format="text")`.

    >>> text("out/", compression="gzip").compression
    'gzip'
    """
    return files(path, "text", compression=compression, together=together, roll=roll)


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
