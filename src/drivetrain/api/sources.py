"""Sources of messages: the declarations that a user writes.

A graph is built, printed, compared and sent without access to files, sockets or Spark. So a source is a
frozen dataclass that only *declares* what to read; `drivetrain.connectors` reads it.

- **bounded**: the end is known at the first start (existing files, a number of messages, an iterable). When
  it is reached, all windows fire and the application finishes.
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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeGuard

from drivetrain.api.connectors.application_stream import ApplicationStream
from drivetrain.api.connectors.application_stream import (
    application as application,  # users write sources.application
)
from drivetrain.api.connectors.custom_source import CustomSource, PushSource
from drivetrain.api.connectors.delta_source import DeltaRows
from drivetrain.api.connectors.delta_source import delta as delta  # users write sources.delta
from drivetrain.api.connectors.file_sources import (
    BadRecordPolicy,
    CsvFiles,
    FileSource,
    JsonLines,
    ParquetFiles,
    Schema,
    TextFiles,
    csv,
    json,
    parquet,
    text,
)
from drivetrain.api.connectors.kafka import Kafka
from drivetrain.api.connectors.kafka import kafka as kafka  # users write sources.kafka
from drivetrain.api.connectors.mqtt_source import Mqtt
from drivetrain.api.connectors.mqtt_source import mqtt as mqtt  # users write sources.mqtt
from drivetrain.api.durations import microseconds
from drivetrain.api.expressions.columns import expr
from drivetrain.api.foreign_operator_names import SOURCE_WORDS
from drivetrain.api.spelling import names_of_module
from drivetrain.api.types import schema_of
from drivetrain.errors import GraphError

__all__ = [
    "ApplicationStream", "BadRecordPolicy", "CsvFiles", "CustomSource", "DeltaRows", "FileSource",
    "Generator", "Items", "JsonLines", "Kafka", "Mqtt", "ParquetFiles", "PushSource", "Schema", "Socket",
    "Source", "TextFiles", "application", "csv", "delta", "generate", "items", "json", "kafka", "mqtt",
    "parquet", "socket", "text",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__ = names_of_module("drivetrain.sources", __all__, SOURCE_WORDS)


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Generated messages: `id long` (0, 1, 2, …), `ts timestamp`, and the user's own columns.

    The message with `id` n always has `ts = start + n * every` and the same other columns, in every run and
    replay; `every` is given as text ("1 ms") and kept as `step_us`, in microseconds. `columns` maps names to
    deterministic Spark SQL expressions over `id` and `ts`. `rate_per_s` is how many messages become available
    per second; None: no limit. `rows` is the total number of messages; None: there is no end.
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

    Instead of an iterable it may be a function without parameters that returns one, such as one that queries
    a database; it is called each time the rows are read.

    Elements are stored before they are processed. After a crash, the iterable is iterated again and stored
    elements are skipped: it must produce the same elements in the same order.
    """

    iterable: Iterable[object] | Callable[[], Iterable[object]]
    schema: Schema
    event_time: str | None = None
    max_disorder: str | None = None
    on_bad_record: BadRecordPolicy = "fail"
    bounded: ClassVar[bool] = True

    @property
    def rows(self) -> Iterable[object]:
        """The elements, from the first one on."""
        return self.iterable if isinstance(self.iterable, Iterable) else self.iterable()

    @property
    def columns(self) -> str:
        """The columns of its messages, as DDL."""
        return schema_of(self.schema)


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
    columns: ClassVar[str] = "value string"
    caveat: ClassVar[str] = "what was not stored yet when a process died is lost at its origin"

    def __post_init__(self) -> None:
        if not 0 < self.port < 65536:
            raise GraphError(
                "not a TCP port", where="sources.socket", expected="1 to 65535", got=str(self.port)
            )


Source: TypeAlias = (
    TextFiles
    | CsvFiles
    | JsonLines
    | ParquetFiles
    | Generator
    | Items
    | Socket
    | Kafka
    | DeltaRows
    | ApplicationStream
    | CustomSource
)


def is_stored_first(source: object) -> TypeGuard[Items | Socket | PushSource]:
    """Whether the messages of a source are stored before they are processed, as it sends them only once."""
    return isinstance(source, Items | Socket | PushSource)


def generate(
    *,
    rate_per_s: float | None = None,
    rows: int | None = None,
    start: str = "2024-01-01T00:00:00Z",
    every: str = "1 ms",
    columns: Mapping[str, str] | None = None,
) -> Generator:
    """Generated messages, the same in every run; see `Generator`.

    >>> generate(rows=1000, columns={"key": "id % 10"}).bounded
    True
    """
    for name, value, low in (("rate_per_s", rate_per_s, 0.0), ("rows", rows, 0)):
        if value is not None and value <= low:
            raise GraphError(
                f"{name} is too small", where="sources.generate", expected=f"more than {low}", got=str(value)
            )
    for expression in (columns or {}).values():
        expr(expression)  # raises where Spark cannot read it
    return Generator(
        rate_per_s=rate_per_s,
        rows=rows,
        start=start,
        step_us=microseconds(every, "every"),
        columns=dict(columns or {}),
    )


def items(
    iterable: Iterable[object] | Callable[[], Iterable[object]],
    schema: Schema,
    *,
    event_time: str | None = None,
    max_disorder: str | None = None,
    on_bad_record: BadRecordPolicy = "fail",
) -> Items:
    """The elements of a Python iterable, or of one that a function returns; see `Items`.

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
