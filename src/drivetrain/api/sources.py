"""Sources of messages: the declarations that a user writes.

A graph is built, printed, compared and sent without access to files, sockets or Spark. So a source is a
frozen dataclass that only *declares* what to read; `drivetrain.connectors` reads it.

- **bounded**: the end is known at the first start (existing files, a number of messages, an iterable). At the
  end, all windows fire and the application finishes.
- **unbounded**: the application runs until it is stopped (`watch=True`, no `rows`, a socket, a topic).

Invariants:

1. Building a source executes nothing and opens nothing; only the arguments themselves are checked.
2. A source is immutable and comparable, except `items`, which carries the user's own iterable.
3. `bounded` is a function of the arguments alone.

    >>> from drivetrain.api import sources
    >>> sources.csv("flights/", schema="carrier string, delay double").bounded
    True
    >>> sources.text("incoming/", watch=True).bounded
    False
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import ClassVar, Literal, TypeAlias

from drivetrain.api.kafka import Kafka
from drivetrain.api.kafka import kafka as kafka  # users say sources.kafka
from drivetrain.api.sql import require_expression
from drivetrain.config.references import without_password
from drivetrain.errors import GraphError

__all__ = [
    "CsvFiles", "CustomSource", "FileSource", "Generator", "Items", "JsonLines", "Kafka", "ParquetFiles",
    "Socket", "Source", "TextFiles", "csv", "generate", "items", "json", "kafka", "parquet", "socket", "text",
]  # fmt: skip

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
    `glob` selects the files whose names match.

    `event_time` names the column with the timestamp; `max_disorder` ("1 h") is by how much a timestamp
    may be older than the newest one so far. `on_bad_record` decides about unreadable records: stop the
    application (`fail`), or put the record's raw text into the dead letters (`dead_letter`).
    """

    format: ClassVar[str]

    path: str
    glob: str | None = None
    watch: bool = False
    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"

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


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Generated messages: `id long` (0, 1, 2, …), `ts timestamp`, and the user's own columns.

    The message with `id` n always has `ts = start + n * step_us` microseconds and the same other columns,
    in every run and replay: `columns` maps names to deterministic Spark SQL expressions over `id` and
    `ts`. `rate_per_s` is how many messages become available per second; None: no limit.
    `rows` is the total number of messages; None: there is no end.
    """

    rate_per_s: float | None = None
    rows: int | None = None
    start: str = "2024-01-01T00:00:00Z"
    step_us: int = 1000
    columns: Mapping[str, str] = field(default_factory=dict)

    event_time: ClassVar[str] = "ts"
    max_disorder: ClassVar[str] = "0 s"
    on_bad_record: ClassVar[BadRecordPolicy] = "fail"

    @property
    def bounded(self) -> bool:
        """True when a number of rows was given."""
        return self.rows is not None


@dataclass(frozen=True, kw_only=True, eq=False)
class Items:
    """A Python iterable of tuples, mappings or dataclass instances that fit `schema`.

    Elements are stored before they are processed. After a crash, the iterable is iterated again and stored
    elements are skipped: it must produce the same elements in the same order.
    """

    iterable: Iterable[object]
    schema: Schema
    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"
    bounded: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Socket:
    """Lines of UTF-8 text from a TCP server, in one column `value`; stored before they are processed.

    The application opens the connection. If the server closes it, the stream ends; any other loss of the
    connection stops the application. Lines that have not been stored by then are lost, because a
    socket cannot be read twice.
    """

    host: str
    port: int
    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"
    bounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise GraphError(
                "not a TCP port", where="sources.socket", expected="1 to 65535", got=str(self.port)
            )


@dataclass(frozen=True, kw_only=True)
class CustomSource:
    """A source of an installed connector: subclass it as a frozen dataclass with your system's settings.

    In a subclass, `bounded` is whether the input has an end, and `name` describes the input in plans and
    errors. `event_time` and `max_disorder` have the same meaning as for files.
    """

    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"

    @property
    def bounded(self) -> bool:
        """Whether the input has an end that is known when the application first starts."""
        return False

    @property
    def name(self) -> str:
        """The place that is read."""
        return ""


Source: TypeAlias = (
    TextFiles | CsvFiles | JsonLines | ParquetFiles | Generator | Items | Socket | Kafka | CustomSource
)


def text(
    path: str | PathLike[str],
    *,
    glob: str | None = None,
    watch: bool = False,
    on_bad_record: BadRecordPolicy = "fail",
) -> TextFiles:
    """Lines of UTF-8 text files, in one column `value`; see `TextFiles`.

    >>> text("logs/", glob="*.log").path
    'logs/'
    """
    return TextFiles(path=fspath(path), glob=glob, watch=watch, on_bad_record=on_bad_record)


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
    )


def parquet(
    path: str | PathLike[str],
    *,
    schema: Schema | None = None,
    glob: str | None = None,
    watch: bool = False,
    event_time: str | None = None,
    max_disorder: str | None = None,
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
    )


def generate(
    *,
    rate_per_s: float | None = None,
    rows: int | None = None,
    start: str = "2024-01-01T00:00:00Z",
    step_us: int = 1000,
    columns: Mapping[str, str] | None = None,
) -> Generator:
    """Generated messages, the same in every run; see `Generator`.

    >>> generate(rows=1000, columns={"key": "id % 10"}).bounded
    True
    """
    for name, value, low in (("rate_per_s", rate_per_s, 0.0), ("rows", rows, 0), ("step_us", step_us, -1)):
        if value is not None and value <= low:
            raise GraphError(
                f"{name} is too small", where="sources.generate", expected=f"more than {low}", got=str(value)
            )
    for expression in (columns or {}).values():
        require_expression(expression)
    return Generator(
        rate_per_s=rate_per_s, rows=rows, start=start, step_us=step_us, columns=dict(columns or {})
    )


def items(
    iterable: Iterable[object],
    schema: Schema,
    *,
    event_time: str | None = None,
    max_disorder: str | None = None,
    on_bad_record: BadRecordPolicy = "fail",
) -> Items:
    """The elements of a Python iterable; see `Items`.

    >>> items([("a", 1), ("b", 2)], "key string, n long").bounded
    True
    """
    return Items(
        iterable=iterable,
        schema=schema,
        event_time=event_time,
        max_disorder=max_disorder,
        on_bad_record=on_bad_record,
    )


def socket(host: str, port: int, *, on_bad_record: BadRecordPolicy = "fail") -> Socket:
    """Lines of text from a TCP server; see `Socket`.

    >>> socket("localhost", 9999).bounded
    False
    """
    return Socket(host=host, port=port, on_bad_record=on_bad_record)
