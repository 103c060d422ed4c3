"""Where results go: the declarations a user writes.

The problem: a graph must be built, printed, compared and shipped without touching what it writes to.
So a sink is a frozen dataclass that only *says* where and how; `drivetrain.spark.sinks` has one
adapter per declaration that writes it.

Every sink says its **guarantee** when a run is killed and started again:

- `exactly once`: each result is in the output once, and readers never see half a batch;
- `at least once`: no result is missing; those of the batch in flight may come again, with the same
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
from os import PathLike, fspath
from os.path import abspath, expanduser
from typing import Any, ClassVar, Literal, TypeAlias

from drivetrain.api.kafka_sink import KafkaSink as KafkaSink
from drivetrain.api.kafka_sink import kafka as kafka  # re-exported beside the functions of this module
from drivetrain.api.sql_sink import PostgresqlSink as PostgresqlSink
from drivetrain.api.sql_sink import SqliteSink as SqliteSink
from drivetrain.api.sql_sink import SqlSink
from drivetrain.api.sql_sink import postgresql as postgresql
from drivetrain.api.sql_sink import sqlite as sqlite
from drivetrain.errors import GraphError

Guarantee: TypeAlias = Literal["exactly once", "at least once", "at most once"]
FileFormat: TypeAlias = Literal["parquet", "csv", "json", "text"]
_FORMATS = ("parquet", "csv", "json", "text")
_COMPRESSIONS = {
    "parquet": ("snappy", "zstd", "gzip", "none"),
    "csv": ("none", "gzip"),
    "json": ("none", "gzip"),
    "text": ("none", "gzip"),
}


@dataclass(frozen=True, kw_only=True)
class FileSink:
    """One file per non-empty batch in one flat directory, published whole by an atomic rename.

    `path` is a directory or a pyarrow file system URI; it must be empty, missing, or this
    application's own. `format` is `parquet`, `csv` (RFC 4180, with a `header` line in every file),
    `json` (one object per line) or `text` (exactly one string column, one line per message).
    Timestamps in CSV and JSON are ISO 8601 in UTC. `compression` is `snappy` for Parquet and `none`
    for the others unless given. Sinks of one application with the same `together`, a directory above all of
    them, publish in one step for readers who ask `published_files` what is there.
    """

    path: str
    format: FileFormat = "parquet"
    header: bool = True
    compression: str | None = None
    together: str | None = None
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
                "sinks that publish together lie below the directory that is named",
                where="sinks.files",
                expected=f"a path below {self.together}",
                got=self.path,
                remedy="give a directory that is above all of these sinks",
            )


def _is_below(path: str, above: str) -> bool:
    if "://" not in path:
        path, above = abspath(expanduser(path)), abspath(expanduser(above))
    return path.rstrip("/").startswith(above.rstrip("/") + "/")


@dataclass(frozen=True, kw_only=True)
class ConsoleSink:
    """Prints each batch as a table on standard output, at most `rows` rows of it."""

    rows: int = 20
    guarantee: ClassVar[Guarantee] = "at least once"


@dataclass(frozen=True, kw_only=True)
class BatchesSink:
    """Calls `function(batch, batch_id)` with every non-empty batch, in the driver, in order.

    `batch` is a `pyarrow.Table` or, with `frame="pandas"`, a pandas DataFrame. The batch id is the
    same when a batch comes again after a crash: a function that remembers the last id it finished
    is exactly once.
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
    """Computes every message, counts it, and drops it."""

    guarantee: ClassVar[Guarantee] = "exactly once"


Sink: TypeAlias = (
    FileSink | ConsoleSink | BatchesSink | MemorySink | NullSink | KafkaSink | SqliteSink | PostgresqlSink
)


def needs_transactions(sink: Sink) -> bool:
    """Whether a sink is meant to publish with the application's checkpoints, which are made for it then.

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
) -> FileSink:
    """Files in `path`, one per batch, exactly once; see `FileSink`.

    >>> files("out/", format="csv").format
    'csv'
    """
    return FileSink(
        path=fspath(path),
        format=format,
        header=header,
        compression=compression,
        together=None if together is None else fspath(together),
    )


def parquet(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
) -> FileSink:
    """Parquet files; shorthand for `files(path, format="parquet")`."""
    return files(path, "parquet", compression=compression, together=together)


def csv(
    path: str | PathLike[str],
    *,
    header: bool = True,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
) -> FileSink:
    """CSV files; shorthand for `files(path, format="csv")`."""
    return files(path, "csv", header=header, compression=compression, together=together)


def json(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
) -> FileSink:
    """JSON lines files; shorthand for `files(path, format="json")`."""
    return files(path, "json", compression=compression, together=together)


def text(
    path: str | PathLike[str],
    *,
    compression: str | None = None,
    together: str | PathLike[str] | None = None,
) -> FileSink:
    """Text files of one string column; shorthand for `files(path, format="text")`."""
    return files(path, "text", compression=compression, together=together)


def console(*, rows: int = 20) -> ConsoleSink:
    """A table per batch on standard output; see `ConsoleSink`."""
    return ConsoleSink(rows=rows)


def batches(
    function: Callable[[Any, int], object], *, frame: Literal["arrow", "pandas"] = "arrow"
) -> BatchesSink:
    """A Python function called with every batch and its id; see `BatchesSink`.

    >>> seen = []
    >>> batches(lambda table, batch_id: seen.append(table.num_rows)).guarantee
    'at least once'
    """
    return BatchesSink(function=function, frame=frame)


def memory(name: str) -> MemorySink:
    """A list in this process, for tests; see `MemorySink`."""
    return MemorySink(name=name)


def none() -> NullSink:
    """Nowhere: every message is computed, counted and dropped."""
    return NullSink()
