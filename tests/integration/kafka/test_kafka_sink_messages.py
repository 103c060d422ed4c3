"""What a Kafka sink puts into messages, and where; the same by both guarantees."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from broker import Broker
from google.protobuf import descriptor_pb2, timestamp_pb2
from topic_reading import messages, values

from drivetrain import F, col, sinks
from drivetrain.api.connectors.kafka_sink import KafkaSink
from drivetrain.connectors.kafka import target_topic
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import DrivetrainError, OutputError, UnavailableError
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from drivetrain.spark.connector.sink import SinkWriter

BOTH = pytest.mark.parametrize("guarantee", ["exactly once", "at least once"])
ONCE_AT_NIGHT = pytest.mark.parametrize(
    "guarantee",
    [
        "at least once",
        pytest.param("exactly once", marks=pytest.mark.nightly("test_kafka_sink_once, and the rest")),
    ],
)
MIB = 2**20


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[KafkaSink], SinkWriter]:
    def make(sink: KafkaSink) -> SinkWriter:
        return open_sink(
            sink, SinkContext("app-1", f"to-{sink.topic}-{sink.guarantee[0]}", str(tmp_path / "s"))
        )

    return make


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is not there is given up soon."""
    monkeypatch.setattr(target_topic, "REACH_S", 2.0)


@pytest.mark.nightly("test_kafka_security reaches what it reaches")
@ONCE_AT_NIGHT
def test_all_columns_are_one_json_object_and_a_null_value_is_a_tombstone(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    broker.create(topic)
    rows = spark.sql("select 1 as n, 'é' as word, timestamp'2024-05-01 00:00:01.5' as at, null as gone")
    whole = opened(sinks.kafka(broker.bootstrap, topic, key="word", guarantee=guarantee))
    whole.validate()
    assert whole.guarantee == guarantee
    assert whole.write(rows, 0) == 1
    dead = opened(sinks.kafka(broker.bootstrap, topic, key="n", value="gone", guarantee=guarantee))
    assert dead.write(rows.selectExpr("n", "cast(null as string) gone"), 1) == 1
    found = [(m.key(), m.value()) for m in messages(broker, topic)]
    text = '{"n":1,"word":"é","at":"2024-05-01T00:00:01.500000Z","gone":null}'
    assert found == [("é".encode(), text.encode()), (b"1", None)]


@pytest.mark.nightly("the other variant; the unit tests of rows for Kafka")
@ONCE_AT_NIGHT
def test_key_value_headers_partition_and_topic_are_columns_or_expressions(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    broker.create(topic, 3)
    other = broker.create(f"{topic}-other", 3)
    rows = spark.sql(
        "select 'k' as k, named_struct('a', 1) as v, 2 as p, cast(null as string) as to, map('h', 'x') as hs "
        f"union all select null, named_struct('a', 2), null, '{other}', map()"
    )
    sink = sinks.kafka(
        broker.bootstrap, topic, topic_column="to", key=F.upper(col("k")), value="v", headers="hs",
        partition="p", guarantee=guarantee,
    )  # fmt: skip
    assert opened(sink).write(rows, 0) == 2
    first, second = messages(broker, topic), messages(broker, other)
    assert [(m.key(), m.value(), m.partition(), m.headers()) for m in first] == [
        (b"K", b'{"a":1}', 2, [("h", b"x")])
    ]
    assert [(m.key(), m.value(), m.headers()) for m in second] == [(None, b'{"a":2}', None)]
    named = sinks.kafka(
        broker.bootstrap, topic, value="k", format="text", headers={"of": "v", "n": col("p")}, partition="p",
        guarantee=guarantee,
    )  # fmt: skip
    opened(named).write(rows.limit(1), 7)
    assert messages(broker, topic)[-1].headers() == [("of", b'{"a":1}'), ("n", b"2")]


@pytest.mark.nightly("test_kafka_security reaches what it reaches")
def test_both_ways_send_a_key_to_the_same_partition_as_kafkas_own_clients_do(
    spark: SparkSession, broker: Broker, topic: str, opened: Any
) -> None:
    rows = spark.range(300).selectExpr("concat('key-', id * 7919) as k", "'v' as v")
    found = {}
    for guarantee in ("exactly once", "at least once"):
        name = broker.create(f"{topic}-{guarantee[0]}", 7)
        opened(sinks.kafka(broker.bootstrap, name, key="k", value="v", guarantee=guarantee)).write(rows, 0)
        found[guarantee] = {m.key(): m.partition() for m in messages(broker, name)}
    assert len(found["exactly once"]) == 300
    assert len(set(found["exactly once"].values())) == 7
    assert found["exactly once"] == found["at least once"]


@ONCE_AT_NIGHT
def test_round_robin_spreads_evenly(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    broker.create(topic, 4)
    sink = sinks.kafka(broker.bootstrap, topic, partitioner="round robin", guarantee=guarantee)
    assert opened(sink).write(spark.range(0, 400, 1, 2), 3) == 400
    found = [m.partition() for m in messages(broker, topic)]
    assert [found.count(p) for p in range(4)] == [100] * 4


@pytest.mark.nightly("test_kafka_security reaches what it reaches")
@BOTH
def test_messages_of_one_byte_and_of_five_megabytes(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    broker.create(topic, max_message_bytes=str(6 * MIB))
    rows = spark.sql(f"select repeat('x', n) as v from values (1), ({5 * MIB}), (0) as t(n)").coalesce(1)
    assert opened(sinks.kafka(broker.bootstrap, topic, value="v", guarantee=guarantee)).write(rows, 0) == 3
    found = sorted(messages(broker, topic), key=lambda m: len(m.value()))
    assert [len(m.value()) for m in found] == [0, 1, 5 * MIB]
    assert set(found[2].value()) == {ord("x")}


@BOTH
@pytest.mark.parametrize(
    ("arguments", "sql", "what", "got"),
    [
        (
            {"value": "v"},
            "'k' as k, repeat('secret', 400000) as v",
            "too large for the topic",
            "2,400,001 bytes",
        ),
        ({"value": "k", "partition": "v"}, "'k' as k, 9 as v", "partition that the topic", "9, in"),
        ({"value": "k", "partition": "v"}, "'k' as k, -1 as v", "partition that the topic", "-1, in"),
    ],
)
def test_a_row_that_kafka_would_refuse_fails_the_batch_and_names_topic_and_key(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any, arguments: Any, sql: str,
    what: str, got: str,
) -> None:  # fmt: skip
    broker.create(topic, 2, max_message_bytes=str(MIB))
    writer = opened(sinks.kafka(broker.bootstrap, topic, key="k", guarantee=guarantee, **arguments))
    with pytest.raises(OutputError, match=what) as caught:
        writer.write(spark.sql(f"select {sql}"), 0)
    told = str(caught.value)
    assert got in told
    assert topic in told
    assert "key 'k'" in told
    assert "secretsecret" not in told
    assert values(broker, topic) == []


@ONCE_AT_NIGHT
def test_records_are_written_as_avro_and_as_protobuf_and_what_does_not_fit_is_told(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any, tmp_path: Path
) -> None:
    broker.create(topic)
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Reading", "fields": fields}
    avro = sinks.kafka(broker.bootstrap, topic, format="avro", schema=json.dumps(schema), guarantee=guarantee)
    writer = opened(avro)
    assert writer.write(spark.sql("select 's' as s, 7 as n union all select null, 8"), 0) == 2
    read = [fastavro.schemaless_reader(io.BytesIO(m.value()), schema, None) for m in messages(broker, topic)]
    assert sorted(read, key=lambda row: row["n"]) == [{"n": 7, "s": "s"}, {"n": 8, "s": None}]
    with pytest.raises(OutputError, match="does not fit the avro schema"):
        writer.write(spark.sql("select 1 as n"), 1)
    with pytest.raises(OutputError, match="cannot be written as avro") as caught:
        writer.write(spark.sql("select cast(null as int) as n, 'secret' as s"), 1)
    assert "null in n" in str(caught.value)
    assert "secret" not in str(caught.value)

    described = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(described.file.add())
    (tmp_path / "messages.desc").write_bytes(described.SerializeToString())
    name = broker.create(f"{topic}-proto")
    proto = sinks.kafka(
        broker.bootstrap, name, format="protobuf", schema="google.protobuf.Timestamp", value="v", key="k",
        descriptors=str(tmp_path / "messages.desc"), guarantee=guarantee,
    )  # fmt: skip
    record = "named_struct('seconds', 5L, 'nanos', 6) as v"
    rows = spark.sql(f"select 'a' as k, {record} union all select 'b', null")
    assert opened(proto).write(rows, 7) == 2
    found = {m.key(): m.value() for m in messages(broker, name)}
    assert found == {b"a": timestamp_pb2.Timestamp(seconds=5, nanos=6).SerializeToString(), b"b": None}


def test_a_row_without_a_topic_is_told(spark: SparkSession, broker: Broker, topic: str, opened: Any) -> None:
    sink = sinks.kafka(broker.bootstrap, topic_column="to", key="k", guarantee="at least once")
    with pytest.raises(OutputError, match="has no topic") as caught:
        opened(sink).write(spark.sql("select 'lost' as k, cast(null as string) as to"), 0)
    assert "'lost'" in str(caught.value)


@BOTH
@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"value": "n", "format": "json"}, "a struct, a map or an array"),
        ({"value": "n", "format": "raw"}, "a binary column"),
        ({"value": F.struct("n"), "format": "text"}, "a single value"),
        ({"partition": F.lit("one")}, "whole number"),
        ({"headers": "n"}, "a map, or an array"),
        ({"key": "nobody"}, "there is no column 'nobody'"),
    ],
)
def test_columns_that_do_not_fit_are_told(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any, arguments: Any, what: str
) -> None:
    if guarantee == "exactly once":
        broker.create(topic)
        arguments = {**arguments, "topic": topic}
    else:
        arguments = {**arguments, "topic_column": "n"}
    with pytest.raises(DrivetrainError, match=re.escape(what)):
        opened(sinks.kafka(broker.bootstrap, guarantee=guarantee, **arguments)).write(
            spark.range(1).toDF("n"), 0
        )


@ONCE_AT_NIGHT
def test_a_topic_that_is_missing_is_told_or_created(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    with pytest.raises(OutputError, match="no such topic") as caught:
        opened(sinks.kafka(broker.bootstrap, topic, guarantee=guarantee)).validate()
    assert "create=" in str(caught.value)
    creating = opened(sinks.kafka(broker.bootstrap, topic, create=3, guarantee=guarantee))
    creating.validate()
    assert topic not in broker.admin.list_topics(timeout=10).topics
    assert creating.write(spark.range(5), 0) == 5
    assert len(broker.admin.list_topics(timeout=10).topics[topic].partitions) == 3
    assert len(messages(broker, topic)) == 5


@pytest.mark.usefixtures("quick")
@BOTH
def test_brokers_that_do_not_answer_are_told_in_time_and_no_secret_is(
    broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    with pytest.raises(UnavailableError, match="no Kafka broker answers"):
        opened(sinks.kafka("127.0.0.1:1", topic, guarantee=guarantee)).validate()
    jaas = (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter22";'
    )
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
    with pytest.raises(DrivetrainError) as caught:
        opened(sinks.kafka(broker.bootstrap, topic, guarantee=guarantee, options=options)).validate()
    assert "hunter22" not in f"{caught.value}{caught.value.__cause__}{vars(caught.value)}"
    with pytest.raises(OutputError, match="refuses the options"):
        opened(sinks.kafka(broker.bootstrap, topic, guarantee=guarantee, options={"no.such": "x"})).validate()


@pytest.mark.nightly("test_kafka_sink_once reaches what it reaches")
def test_a_large_batch_is_written_by_the_tasks_and_sent_whole(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    opened: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    broker.create(topic)
    rows: DataFrame = spark.range(0, 50_000, 1, 4).selectExpr("cast(id as string) as v")
    writer = opened(sinks.kafka(broker.bootstrap, topic, value="v"))
    assert writer.write(rows, 0) == 50_000
    assert values(broker, topic) == [str(i) for i in range(50_000)]
    assert not list((tmp_path / "s" / "outbox").rglob("*.arrow"))


@pytest.mark.parametrize("writer", ["Python", "Java"])
def test_whoever_wrote_the_files_every_byte_arrives_in_order(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    if writer == "Java":  # or Python in tasks, where Java's class is missing
        monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    broker.create(topic)
    # Repetitions of all lengths, near and far, and what cannot be compressed.
    value = (
        "concat(repeat(cast(id as string), id % 40), sha2(cast(id as string), 512), repeat('x', id % 300))"
    )
    key = "if(id % 5 = 0, null, concat('key-', id % 97))"
    rows = spark.range(0, 30_000, 1, 2).selectExpr(
        f"{key} as k", f"if(id % 11 = 0, null, {value}) as v", "map('n', cast(id as string)) as h"
    )
    wanted = [tuple(row) for row in rows.select("k", "v", "h").collect()]
    sink = sinks.kafka(broker.bootstrap, topic, key="k", value="v", headers="h")
    assert opened(sink).write(rows, 0) == 30_000
    found = [
        (
            None if m.key() is None else m.key().decode(),
            None if m.value() is None else m.value().decode(),
            {name: content.decode() for name, content in m.headers()},
        )
        for m in messages(broker, topic)
    ]
    assert found == wanted


def test_a_message_that_the_broker_refuses_is_named_and_nothing_of_its_batch_is_seen(
    spark: SparkSession, broker: Broker, topic: str, opened: Any
) -> None:
    broker.create(topic, cleanup_policy="compact")  # which takes no messages without a key
    writer = opened(sinks.kafka(broker.bootstrap, topic, key="k", value="v"))
    rows = spark.sql("select 'a' as k, 'private' as v union all select null, 'private'")
    with pytest.raises(OutputError, match="Kafka refuses") as caught:
        writer.write(rows, 0)
    assert f"topic {topic}, key ''" in str(caught.value)
    assert "private" not in str(caught.value)
    assert writer.write(rows.where("k is not null"), 0) == 1
    assert values(broker, topic) == ["private"]


@pytest.mark.nightly("test_kafka_security reaches what it reaches")
@BOTH
def test_a_batch_without_rows_sends_nothing_and_ends(
    spark: SparkSession, broker: Broker, topic: str, opened: Any, guarantee: Any
) -> None:
    broker.create(topic)
    writer = opened(sinks.kafka(broker.bootstrap, topic, guarantee=guarantee))
    assert writer.write(spark.range(10).where("id > 99"), 0) == 0
    assert writer.write(spark.range(0), 1) == 0
    assert writer.write(spark.range(1), 2) == 1
    assert values(broker, topic) == ['{"id":0}']
