"""Sources that read files: the declarations that a user writes.

The problem: files may exist already or arrive later, in several formats, some of them without a schema, and a
reader must know all of that before it opens one. So the declaration contains all of it, in one class for each
format.

Invariants:

1. Building a source executes nothing and opens nothing; only the arguments themselves are checked.
2. A source is immutable and comparable.

Called by applications through `drivetrain.api.sources`; read by the planner and by the adapter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import ClassVar, Literal, TypeAlias

from drivetrain.config.references import without_password
from drivetrain.errors import GraphError

Schema: TypeAlias = str | type
"""A Spark DDL string (`"carrier string, delay double"`) or an annotated dataclass."""

BadRecordPolicy: TypeAlias = Literal["fail", "dead_letter"]
_POLICIES = ("fail", "dead_letter")


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """Files in one directory (or one file), in one format; use a subclass.

    `path` is a file, a directory or any pyarrow file system URI. Directories are read recursively;
    names that start with `.` or `_` are ignored. Without `watch`, the source reads the files that exist
    at the first start. With `watch`, it also reads files that arrive later. These must be complete when
    they appear: write them elsewhere or under a hidden name, and rename them.
    `glob` selects the files whose names match. `partition_columns` declares, as DDL, columns whose values are
    in the names of directories (`country=FR/day=2024-05-01`); they come after the columns of the files.

    `event_time` names the column with the timestamp; a timestamp may be older than the newest one so far by
    at most `max_disorder` ("1 h"). `on_bad_record` decides what happens to an unreadable record: stop the
    application (`fail`), or put the record's raw text into the dead letters (`dead_letter`).
    """

    format: ClassVar[str]

    path: str
    glob: str | None = None
    watch: bool = False
    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"
    partition_columns: str | None = None

    def __post_init__(self) -> None:
        without_password(self.path, f"sources.{self.format}")
        if not self.path:
            raise GraphError(
                "a file source needs a path",
                where=f"sources.{self.format}",
                remedy="give a file, a directory or a URI",
            )
        if self.on_bad_record not in _POLICIES:
            raise GraphError(
                "unknown policy for bad records",
                where=f"sources.{self.format}",
                expected=" or ".join(map(repr, _POLICIES)),
                got=repr(self.on_bad_record),
            )

    @property
    def bounded(self) -> bool:
        """True unless the directory is watched."""
        return not self.watch


@dataclass(frozen=True, kw_only=True)
class TextFiles(FileSource):
    """Lines of UTF-8 text, one message per line, in one column `value`."""

    format: ClassVar[str] = "text"


@dataclass(frozen=True, kw_only=True)
class CsvFiles(FileSource):
    """Delimited text. With `header`, columns are found by name; without it, by position.

    An unquoted field equal to one of `nulls` is null. `multiline` allows line breaks inside quotes;
    such files are not split, so one core reads the whole file.
    Timestamps are ISO 8601 (in UTC unless they have a zone), or follow `timestamp_format`, a
    `strptime` pattern.
    """

    format: ClassVar[str] = "csv"

    schema: Schema
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    nulls: tuple[str, ...] = ("",)
    timestamp_format: str | None = None
    multiline: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("delimiter", self.delimiter), ("quote", self.quote)):
            if len(value.encode("utf-8")) != 1:
                raise GraphError(f"{name} must be one ASCII character", where="sources.csv", got=repr(value))


@dataclass(frozen=True, kw_only=True)
class JsonLines(FileSource):
    """One JSON object per line. A missing key is null; keys outside the schema are ignored.

    Timestamps are ISO 8601 strings (in UTC unless they have a zone), or follow
    `timestamp_format`, a `strptime` pattern.
    """

    format: ClassVar[str] = "json"

    schema: Schema
    timestamp_format: str | None = None


@dataclass(frozen=True, kw_only=True)
class ParquetFiles(FileSource):
    """Parquet files. The schema is `schema` or that of the first file; every file must fit it."""

    format: ClassVar[str] = "parquet"

    schema: Schema | None = None


def text(
    path: str | PathLike[str],
    *,
    glob: str | None = None,
    watch: bool = False,
    on_bad_record: BadRecordPolicy = "fail",
    partition_columns: str | None = None,
) -> TextFiles:
    """Lines of UTF-8 text files, in one column `value`; see `TextFiles`.

    >>> text("logs/", glob="*.log").path
    'logs/'
    """
    return TextFiles(
        path=fspath(path),
        glob=glob,
        watch=watch,
        on_bad_record=on_bad_record,
        partition_columns=partition_columns,
    )


def csv(
    path: str | PathLike[str],
    *,
    schema: Schema,
    header: bool = True,
    delimiter: str = ",",
    quote: str = '"',
    nulls: Iterable[str] = ("",),
    timestamp_format: str | None = None,
    multiline: bool = False,
    glob: str | None = None,
    watch: bool = False,
    event_time: str | None = None,
    max_disorder: str | None = None,
    on_bad_record: BadRecordPolicy = "fail",
    partition_columns: str | None = None,
) -> CsvFiles:
    """Records of CSV files; see `CsvFiles`.

    >>> csv("flights.csv", schema="carrier string, delay double", nulls=["NA"]).nulls
    ('NA',)
    """
    return CsvFiles(
        path=fspath(path),
        schema=schema,
        header=header,
        delimiter=delimiter,
        quote=quote,
        nulls=tuple(nulls),
        timestamp_format=timestamp_format,
        multiline=multiline,
        glob=glob,
        watch=watch,
        event_time=event_time,
        max_disorder=max_disorder,
        on_bad_record=on_bad_record,
        partition_columns=partition_columns,
    )


def json(
    path: str | PathLike[str],
    *,
    schema: Schema,
    timestamp_format: str | None = None,
    glob: str | None = None,
    watch: bool = False,
    event_time: str | None = None,
    max_disorder: str | None = None,
    on_bad_record: BadRecordPolicy = "fail",
    partition_columns: str | None = None,
) -> JsonLines:
    """Objects of JSON lines files; see `JsonLines`.

    >>> json("events/", schema="ts timestamp, user string", event_time="ts").event_time
    'ts'
    """
    return JsonLines(
        path=fspath(path),
        schema=schema,
        timestamp_format=timestamp_format,
        glob=glob,
        watch=watch,
        event_time=event_time,
        max_disorder=max_disorder,
        on_bad_record=on_bad_record,
        partition_columns=partition_columns,
    )


def parquet(
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
    glob: str | None = None,
    watch: bool = False,
    event_time: str | None = None,
    max_disorder: str | None = None,
    partition_columns: str | None = None,
) -> ParquetFiles:
    """Rows of Parquet files; see `ParquetFiles`.

    >>> parquet("taxi/", event_time="pickup").bounded
    True
    """
    return ParquetFiles(
        path=fspath(path),
        schema=schema,
        glob=glob,
        watch=watch,
        event_time=event_time,
        max_disorder=max_disorder,
        partition_columns=partition_columns,
    )
