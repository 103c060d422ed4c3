"""The Kafka source: the declaration that a user writes.

The problem: a topic contains bytes with a key, a place and a time. Where to begin, what the bytes mean, which
time is the event time, and what to do about lost or malformed messages are decisions of the user, so the
graph must declare them.

`start` applies only when the application starts for the first time; later it continues where it stopped. With
`end`, the source is bounded: at the first start, `end` is resolved to offsets, and the source ends there.

Invariants:

1. Building a source executes nothing and opens nothing; only the arguments themselves are checked.
2. A source is immutable and comparable.
3. Options may contain secrets, so they appear neither in `repr` nor in `name` nor in errors.

Called by applications through `drivetrain.api.sources`; read by the planner and by the adapter.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from drivetrain.api.durations import milliseconds
from drivetrain.errors import GraphError

KafkaFormat: TypeAlias = Literal["text", "json", "avro", "protobuf", "raw"]
KafkaColumn: TypeAlias = Literal["key", "headers", "topic", "partition", "offset", "timestamp"]
Offsets: TypeAlias = Mapping[int, int] | Mapping[str, Mapping[int, int]]
KafkaPlace: TypeAlias = str | dt.datetime | Offsets
"""`"earliest"`, `"latest"`, a time, or offsets by partition, or by topic and partition."""

_WHERE = "sources.kafka"
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "format": ("text", "json", "avro", "protobuf", "raw"),
    "key_format": ("text", "raw"),
    "on_bad_record": ("fail", "dead_letter"),
    "on_data_loss": ("fail", "continue"),
    "wire": ("plain", "confluent"),
}
KAFKA_COLUMNS = ("key", "headers", "topic", "partition", "offset", "timestamp")
_OURS = ("bootstrap.servers", "group.id", "auto.offset.reset", "enable.auto.commit", "key.deserializer")


@dataclass(frozen=True)
class TopicPosition:
    """A place in topics: `word`, or the time `ms`, or `offsets` (topic, partition, offset).

    The topic of an offset may be "", which means the source's only topic.
    """

    word: Literal["earliest", "latest"] | None = None
    ms: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kafka:
    """Messages of Kafka topics; see `kafka`."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: TopicPosition = TopicPosition(word="earliest")
    end: TopicPosition | None = None
    format: KafkaFormat = "text"
    schema: object = None
    columns: tuple[KafkaColumn, ...] = ()
    key_format: Literal["text", "raw"] = "text"
    event_time: str | None = None
    max_disorder: str | None = None
    idle_timeout: str | None = None
    on_bad_record: Literal["fail", "dead_letter"] = "fail"
    on_data_loss: Literal["fail", "continue"] = "fail"
    group: str | None = None
    offset_topic: str | None = None
    descriptors: str | None = None
    wire: Literal["plain", "confluent"] = "plain"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    needs_connector: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise _wrong("a Kafka source needs the address of a broker", 'bootstrap="host:9092"')
        if bool(self.topics) == bool(self.pattern):
            raise _wrong("a Kafka source needs topics", "topic=, topics= or pattern=, one of them")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise _wrong(f"unknown {name}", " or ".join(known), repr(getattr(self, name)))
        for column in self.columns:
            if column not in KAFKA_COLUMNS:
                raise _wrong("unknown column of a Kafka message", ", ".join(KAFKA_COLUMNS), repr(column))
        self._check_schema()
        if self.idle_timeout is not None:
            milliseconds(self.idle_timeout, "idle_timeout")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                got = f"{self.pattern!r}: {error}"
                raise _wrong("the pattern is not a regular expression", got=got) from error
        for name, _ in self.options:
            if name in _OURS or name.startswith("kafka."):
                raise _wrong(
                    f"the option {name!r} cannot be given",
                    "consumer settings under Kafka's own names, without the prefix kafka.",
                    remedy="the source sets it, or has an argument for it" if name in _OURS else None,
                )

    def _check_schema(self) -> None:
        structured = self.format in ("json", "avro", "protobuf")
        if self.wire == "confluent" and not structured:
            raise _wrong(f"format={self.format!r} has no header of Confluent's", 'wire="plain"')
        if structured and self.schema is None:
            raise _wrong(f"format={self.format!r} needs a schema", "schema=")
        if not structured and self.schema is not None:
            raise _wrong(f"format={self.format!r} has no schema", 'format="json", "avro" or "protobuf"')
        if self.format == "protobuf" and not (self.descriptors and isinstance(self.schema, str)):
            raise _wrong(
                "format='protobuf' needs the message's name and its description",
                'schema="package.Message" and descriptors="messages.desc"',
                remedy="protoc --include_imports --descriptor_set_out=messages.desc messages.proto writes it",
            )

    @property
    def bounded(self) -> bool:
        """True when an end was given."""
        return self.end is not None

    @property
    def name(self) -> str:
        """The topics and brokers that are read, as plans and errors show them."""
        return f"{', '.join(self.topics) or f'topics like {self.pattern}'} at {self.bootstrap}"


def kafka(
    bootstrap: str,
    topic: str | None = None,
    *,
    topics: Iterable[str] = (),
    pattern: str | None = None,
    start: KafkaPlace = "earliest",
    end: KafkaPlace | None = None,
    format: KafkaFormat = "text",
    schema: object = None,
    columns: Iterable[KafkaColumn] = (),
    key_format: Literal["text", "raw"] = "text",
    event_time: str | None = None,
    max_disorder: str | None = None,
    idle_timeout: str | None = None,
    on_bad_record: Literal["fail", "dead_letter"] = "fail",
    on_data_loss: Literal["fail", "continue"] = "fail",
    group: str | None = None,
    offset_topic: str | None = None,
    descriptors: str | None = None,
    wire: Literal["plain", "confluent"] = "plain",
    options: Mapping[str, str] | None = None,
) -> Kafka:
    """Messages of Kafka topics; unbounded unless `end` is given.

    Give `topic`, `topics`, or the regular expression `pattern`. New partitions, and new topics that match the
    pattern, are found while the application runs.

    `start` and `end` are `"earliest"`, `"latest"`, a time (ISO 8601, in UTC unless it has a zone, or a
    `datetime` with a zone), or offsets: `{0: 100, 1: 250}`, for several topics `{"a": {0: 100}}`. Partitions
    that offsets do not name begin at their earliest offset. A time is compared with the column `event_time`
    if there is one, otherwise with Kafka's timestamp. With a `start` time, the source reads every message at
    or after it, and none before. With an `end` time, it reads every message before it that is at most
    `max_disorder` out of order, and none after.

    A message has the columns of its value, then those of `columns`: `key`, `headers`, `topic`, `partition`,
    `offset`, `timestamp`. By `format`, the value is one column `value` (`text`: UTF-8; `raw`: bytes)
    or the columns of `schema` (`json`: as in `sources.json`; `avro`: an Avro schema as JSON text; `protobuf`:
    the name of a message, described by the file `descriptors`). A null value makes these columns null.
    `wire="confluent"` skips the header that Confluent's serializers write.

    `event_time` names the column with the event time; `"timestamp"` is Kafka's own. A message may be older
    than the newest one of its partition by at most `max_disorder`. A partition without messages for
    `idle_timeout` no longer holds back the clock. `on_bad_record` decides what happens when a record cannot
    be parsed, `on_data_loss` when Kafka has deleted messages before they were read.

    After each batch, its offsets are committed to the consumer `group`, so that Kafka's own tools show them;
    the application does not rely on them. Offsets at which a replay can begin are kept with the state, or in
    the compacted topic `offset_topic`, which is created if it is missing. `options` are Kafka's consumer
    settings.

    >>> kafka("localhost:9092", "lines").bounded
    False
    >>> kafka("localhost:9092", "lines", end="latest").name
    'lines at localhost:9092'
    """
    named = ([topic] if topic is not None else []) + list(topics)
    if event_time == "timestamp" and "timestamp" not in columns and schema is None:
        columns = (*columns, "timestamp")
    return Kafka(
        bootstrap=bootstrap,
        topics=tuple(dict.fromkeys(named)),
        pattern=pattern,
        start=place(start, "start"),
        end=None if end is None else place(end, "end"),
        format=format,
        schema=schema,
        columns=tuple(columns),
        key_format=key_format,
        event_time=event_time,
        max_disorder=max_disorder,
        idle_timeout=idle_timeout,
        on_bad_record=on_bad_record,
        on_data_loss=on_data_loss,
        group=group,
        offset_topic=offset_topic,
        descriptors=descriptors,
        wire=wire,
        options=tuple(sorted((str(k), str(v)) for k, v in (options or {}).items())),
    )


def place(given: KafkaPlace, name: str) -> TopicPosition:
    """The place that the value of the argument `name` denotes; raises `GraphError` for any other value.

    >>> place("1970-01-01T00:00:01Z", "start").ms
    1000
    >>> place({0: 5}, "start").offsets
    (('', 0, 5),)
    """
    if given in ("earliest", "latest"):
        return TopicPosition(word=given)  # type: ignore[arg-type]  # just compared
    if isinstance(given, Mapping):
        return TopicPosition(offsets=_offsets(given, name))
    time: dt.datetime | None = None
    if isinstance(given, dt.datetime):
        time = given
    elif isinstance(given, str):
        try:
            time = dt.datetime.fromisoformat(given)
            time = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
        except ValueError:
            time = None
    if time is None or time.tzinfo is None:
        raise _wrong(
            f"{name} is no place in a topic",
            '"earliest", "latest", a time such as "2024-01-01T00:00:00Z", or offsets by partition',
            repr(given),
        )
    return TopicPosition(ms=round(time.timestamp() * 1000))


def _offsets(given: Offsets, name: str) -> tuple[tuple[str, int, int], ...]:
    found: list[tuple[str, int, int]] = []
    for key, value in given.items():
        parts = value.items() if isinstance(value, Mapping) else [(key, value)]
        topic = str(key) if isinstance(value, Mapping) else ""
        for partition, offset in parts:
            if not (
                isinstance(partition, int) and isinstance(offset, int) and partition >= 0 and offset >= 0
            ):
                raise _wrong(
                    f"{name} has an offset that is none", "{partition: offset}", f"{partition!r}: {offset!r}"
                )
            found.append((topic, partition, offset))
    return tuple(sorted(found))


def _wrong(
    what: str, expected: str | None = None, got: str | None = None, remedy: str | None = None
) -> GraphError:
    return GraphError(what, where=_WHERE, expected=expected, got=got, remedy=remedy)
