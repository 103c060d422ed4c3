"""The Kafka sink: the declaration that a user writes.

The problem: a Kafka message is a key, a value, headers and a partition, not a row; and whether a result
appears twice after a crash depends on how it is sent. The graph must declare both, and the plan must be able
to print the guarantee with its reason.

Two guarantees to choose from:

- `exactly once`: a batch is one Kafka transaction, which also holds the batch's number. Readers with
  `isolation.level=read_committed` see each result once, whatever is killed; other readers may also see
  messages of a batch that is then sent again.
- `at least once`: Spark's own connector sends from Spark's tasks. Nothing is missing; the messages of a batch
  that was interrupted are sent again.

Invariants:

1. Building a sink executes nothing and opens nothing; only the arguments themselves are checked.
2. The guarantee and its reason are functions of the declaration alone.
3. Options may contain secrets, so they appear neither in `repr` nor in `name` nor in errors.

Called by applications through `drivetrain.api.sinks`; read by the planner and by the adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from drivetrain.api.durations import milliseconds
from drivetrain.api.expressions.columns import Column
from drivetrain.errors import GraphError

KafkaValueFormat: TypeAlias = Literal["json", "text", "raw", "avro", "protobuf"]
KafkaPartitioner: TypeAlias = Literal["key", "round robin"]
KafkaGuarantee: TypeAlias = Literal["exactly once", "at least once"]
OnFresh: TypeAlias = Literal["refuse", "append"]

_WHERE = "sinks.kafka"
_CHOICES: Mapping[str, tuple[str | None, ...]] = {
    "format": ("json", "text", "raw", "avro", "protobuf", None),
    "partitioner": ("key", "round robin"),
    "guarantee": ("exactly once", "at least once"),
    "on_fresh": ("refuse", "append"),
}
_OURS = (
    "bootstrap.servers", "transactional.id", "enable.idempotence", "transaction.timeout.ms", "partitioner",
    "partitioner.class", "key.serializer", "value.serializer", "group.id", "acks", "isolation.level",
)  # fmt: skip
"""Options that the sink's guarantee depends on, or that other arguments set."""


@dataclass(frozen=True, kw_only=True)
class KafkaSink:
    """Messages to Kafka: one for each row.

    `bootstrap` is `host:port,host:port`. Rows go to `topic`, or to the one that the column `topic_column`
    names, where that is not null. `key`, `value` and `partition` are columns: names or expressions. By
    default the value is an object of all columns except those for topic and partition. `format` is how the
    value becomes bytes: `json` (a struct, a map or an array), `text` (any single value, as UTF-8), `raw`
    (binary as it is), `avro` (a struct with the fields of the Avro schema, JSON text, in `schema`) or
    `protobuf` (one with those of the message that `schema` names and the file `descriptors` describes); the
    default depends on the column's type. A null value is a tombstone. Keys that are not binary are text, or
    JSON if they are structs. `headers` maps names to columns, or names one column of type `map<string,
    string>` or `array<struct<key: string, value: binary>>`.

    A message goes to `partition`, or where that is null or not given to the one that Kafka's own clients
    choose for its key; with `partitioner="round robin"` to each in turn.

    `options` are Kafka's producer settings under Kafka's own names (security, compression, sizes). `create`
    is the number of partitions with which a missing topic is created; without it, a missing topic is an
    error. `on_fresh` decides what a run with `--fresh` does about results that are already in the topic,
    where they cannot be removed: `refuse`, or `append` after them. `transaction_timeout` ("1 min") is how
    long sending one batch may take, and also the longest time for which an interrupted one may hold up
    `read_committed` readers; `timeout` ("2 min") is how long the sink waits for the brokers before the batch
    fails. Both are kept in milliseconds.
    """

    bootstrap: str
    topic: str | None = None
    topic_column: str | None = None
    key: str | Column | None = None
    value: str | Column | None = None
    format: KafkaValueFormat | None = None
    schema: str | None = None
    descriptors: str | None = None
    headers: str | tuple[tuple[str, str | Column], ...] | None = None
    partition: str | Column | None = None
    partitioner: KafkaPartitioner = "key"
    guarantee: KafkaGuarantee = "exactly once"
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    create: int | None = None
    on_fresh: OnFresh = "refuse"
    transaction_timeout_ms: int = 60_000
    timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise _wrong("a Kafka sink needs the address of a broker", 'bootstrap="host:9092"')
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise _wrong(
                    f"unknown {name}", ", ".join(str(k) for k in known if k), repr(getattr(self, name))
                )
        self._check_topic()
        self._check_schema()
        if self.partition is not None and self.partitioner != "key":
            raise _wrong(
                "the partition is given twice", "partition= or partitioner=", "both", "leave out one of them"
            )
        if self.create is not None and self.create < 1:
            raise _wrong("a topic has at least one partition", "create=1 or more", str(self.create))
        for name, _ in self.options:
            if name in _OURS or name.startswith("kafka."):
                raise _wrong(
                    f"the option {name!r} cannot be given",
                    "producer settings under Kafka's own names, without the prefix kafka.",
                    remedy="the sink sets it, or has an argument for it"
                    if name in _OURS
                    else f"write {name.removeprefix('kafka.')!r}",
                )

    def _check_topic(self) -> None:
        if self.topic is None and self.topic_column is None:
            raise _wrong("a Kafka sink needs a topic", "topic= or topic_column=")
        if self.topic is None and self.guarantee == "exactly once":
            raise _wrong(
                "exactly once needs a topic that is known in advance",
                "topic= beside topic_column=",
                remedy="name the topic of rows without one: the batch's number is kept beside it; or choose "
                'guarantee="at least once"',
            )
        if self.topic is None and self.create is not None:
            raise _wrong("only a topic that is named can be created", "topic= beside create=")

    def _check_schema(self) -> None:
        if (self.format in ("avro", "protobuf")) != (self.schema is not None):
            raise _wrong(
                f"format={self.format!r} and schema= do not go together", "a schema for avro and protobuf"
            )
        if (self.format == "protobuf") != (self.descriptors is not None):
            raise _wrong(
                f"format={self.format!r} and descriptors= do not go together",
                'schema="package.Message" and descriptors="messages.desc" for protobuf',
                remedy="protoc --include_imports --descriptor_set_out=messages.desc messages.proto writes it",
            )

    @property
    def name(self) -> str:
        """The destination, as plans and errors show it."""
        by_column = f"by {self.topic_column}" if self.topic_column else ""
        return f"{' or '.join(p for p in (by_column, self.topic) if p)} at {self.bootstrap}"

    @property
    def why(self) -> str:
        """The reason for the guarantee."""
        if self.guarantee == "exactly once":
            return (
                "one Kafka transaction per batch, which also holds the batch's number: for readers with "
                "isolation.level=read_committed"
            )
        return (
            "Spark's connector sends without transactions: a batch that is replayed after a crash comes again"
        )

    @property
    def needs_connector(self) -> bool:
        """Whether Spark's Kafka connector must be on Spark's class path to write this sink."""
        return self.guarantee == "at least once"


def kafka(
    bootstrap: str,
    topic: str | None = None,
    *,
    topic_column: str | None = None,
    key: str | Column | None = None,
    value: str | Column | None = None,
    format: KafkaValueFormat | None = None,
    schema: str | None = None,
    descriptors: str | None = None,
    headers: str | Mapping[str, str | Column] | None = None,
    partition: str | Column | None = None,
    partitioner: KafkaPartitioner = "key",
    guarantee: KafkaGuarantee = "exactly once",
    options: Mapping[str, str] | None = None,
    create: int | None = None,
    on_fresh: OnFresh = "refuse",
    transaction_timeout: str = "1 min",
    timeout: str = "2 min",
) -> KafkaSink:
    """Messages to a Kafka topic, exactly once by default; see `KafkaSink`.

    Raises `GraphError` for invalid arguments.

    >>> counts = kafka("localhost:9092", "counts", key="word")
    >>> counts.guarantee, counts.name
    ('exactly once', 'counts at localhost:9092')
    >>> kafka("localhost:9092", "counts", guarantee="at least once").needs_connector
    True
    """
    return KafkaSink(
        bootstrap=bootstrap,
        topic=topic,
        topic_column=topic_column,
        key=key,
        value=value,
        format=format,
        schema=schema,
        descriptors=descriptors,
        headers=tuple(headers.items()) if isinstance(headers, Mapping) else headers,
        partition=partition,
        partitioner=partitioner,
        guarantee=guarantee,
        options=tuple((name, str(given)) for name, given in (options or {}).items()),
        create=create,
        on_fresh=on_fresh,
        transaction_timeout_ms=milliseconds(transaction_timeout, "transaction_timeout"),
        timeout_ms=milliseconds(timeout, "timeout"),
    )


def _wrong(what: str, expected: str, got: str | None = None, remedy: str | None = None) -> GraphError:
    return GraphError(what, where=_WHERE, expected=expected, got=got, remedy=remedy)
