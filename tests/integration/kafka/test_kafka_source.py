"""What a Kafka source delivers: formats, places, ends; on one broker that stays up."""

from __future__ import annotations

import datetime as dt
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest
from broker import Broker
from google.protobuf import descriptor_pb2, timestamp_pb2
from kafka_runs import KafkaRun, Running, send

from drivetrain import sources
from drivetrain.errors import DrivetrainError, InputError, UnavailableError
from drivetrain.spark.batch.read_dead_letters import dead_letters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
DAY_MS = int(DAY.timestamp() * 1000)


@pytest.fixture
def runs(spark: SparkSession, broker: Broker, tmp_path: Path) -> KafkaRun:
    """Runs in this test's directory."""
    return KafkaRun(broker, tmp_path)


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_everything_of_a_message_is_delivered_of_one_byte_and_of_five_megabytes(
    runs: KafkaRun, topic: str
) -> None:
    runs.broker.create(topic, 2)
    large = b"z" * 5_000_000
    send(
        runs.broker,
        topic,
        [
            {"value": b"a", "key": b"k", "partition": 0, "timestamp": DAY_MS, "headers": [("h", b"\x01")]},
            {"value": large, "partition": 1, "timestamp": DAY_MS + 1},
            {"value": None, "key": b"gone", "partition": 1, "timestamp": DAY_MS + 2},
        ],
    )
    rows = runs.read(topic, columns=["key", "headers", "topic", "partition", "offset", "timestamp"])
    by_place = {(row["partition"], row["offset"]): row for row in rows}
    assert set(by_place) == {(0, 0), (1, 0), (1, 1)}
    assert by_place[0, 0] == {
        "value": "a",
        "key": "k",
        "headers": [{"key": "h", "value": b"\x01"}],
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": DAY,
    }
    assert by_place[1, 0]["value"] == large.decode()
    assert (by_place[1, 1]["value"], by_place[1, 1]["key"]) == (None, "gone")


@pytest.mark.nightly("the unit tests of starts and ends; other tests of this module read with Spark")
def test_the_same_topic_read_on_where_it_ended_and_again_from_a_time_from_offsets_and_to_offsets(
    runs: KafkaRun, topic: str, tmp_path: Path
) -> None:
    runs.broker.create(topic, 2)
    # Disordered: partition 0 has its messages in another order than their timestamps.
    times = [5, 1, 9, 3, 7, 2, 8, 0, 6, 4]
    send(
        runs.broker,
        topic,
        [{"value": b"%d" % t, "partition": t % 2, "timestamp": DAY_MS + 1000 * t} for t in times],
    )

    def values(name: str, **arguments: object) -> list[int]:
        told = KafkaRun(runs.broker, tmp_path / name).read(topic, **arguments)
        return sorted(int(row["value"]) for row in told)

    assert values("all") == list(range(10))
    assert values("from", start=DAY + dt.timedelta(seconds=4)) == [4, 5, 6, 7, 8, 9]
    until = {"event_time": "timestamp", "max_disorder": "10 s", "end": DAY + dt.timedelta(seconds=4)}
    assert values("until", **until) == [0, 1, 2, 3]
    odd, even = [t for t in times if t % 2], [t for t in times if not t % 2]
    assert values("offsets", start={0: 3}) == sorted(odd + even[3:])
    assert values("to", end={0: 2, 1: 4}) == sorted(odd[:4] + even[:2])
    assert values("nothing", start="latest") == []
    with pytest.raises(InputError, match="cannot start at this offset"):
        values("beyond", start={0: 77})


@pytest.mark.nightly("the unit tests of starts and ends; other tests of this module read with Spark")
def test_json_that_does_not_fit_stops_the_application_by_name_or_is_set_aside(
    runs: KafkaRun, topic: str
) -> None:
    runs.broker.create(topic)
    good = [b'{"at":"2024-05-01T00:00:00Z","n":1,"more":[]}', b'{"at":"2024-05-01T02:00:00+02:00"}']
    bad = [b"{", b'{"at":"2024-05-01T00:00:00Z","n":"x"}', b"\xff\xfe", b'{"n":5}', b"", b"[1]"]
    send(runs.broker, topic, [{"value": v} for v in (good[0], *bad, good[1])])
    asked = {"format": "json", "schema": "at timestamp, n bigint", "event_time": "at"}
    with pytest.raises(InputError, match="not JSON of the schema") as failed:
        runs.read(topic, **asked)
    assert f"topic {topic}, partition 0, offset 1" in str(failed.value)
    aside = KafkaRun(runs.broker, runs.directory / "aside")
    rows = aside.read(topic, on_bad_record="dead_letter", columns=["offset"], **asked)
    assert [(row["offset"], row["at"], row["n"]) for row in rows if row["offset"] in (0, 7)] == [
        (0, DAY, 1),
        (7, DAY, None),
    ]
    assert len(rows) == 2
    letters = dead_letters(aside.application(aside.source(topic)), aside.config()).to_pylist()
    assert sorted((told["line"], told["file"]) for told in letters) == [
        (n, f"{topic}/0") for n in range(1, 7)
    ]


def test_a_topic_or_broker_that_is_not_there_is_told_before_anything_runs(runs: KafkaRun, topic: str) -> None:
    with pytest.raises(InputError, match="there is no topic"):
        runs.read(topic)
    with pytest.raises(UnavailableError, match="no Kafka broker listens there"):
        runs.run(runs.application(sources.kafka(bootstrap="127.0.0.1:9", topic=topic, end="latest")))


def test_secrets_are_in_no_error(runs: KafkaRun, topic: str) -> None:
    runs.broker.create(topic)
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="u" password="hush-hush";'
    with pytest.raises(DrivetrainError) as failed:
        runs.read(topic, options={**options, "sasl.jaas.config": login})
    assert "hush-hush" not in str(failed.value)
    assert "hush-hush" not in repr(runs.source(topic, options={"sasl.jaas.config": login}))


def test_avro_and_protobuf_messages_become_columns_and_poison_is_set_aside(
    runs: KafkaRun, topic: str, tmp_path: Path
) -> None:
    avro = topic + "-avro"
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Reading", "fields": fields}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), {"n": 7, "s": None})
    runs.broker.create(avro)
    send(runs.broker, avro, [{"value": written.getvalue()}, {"value": b"\x80"}, {"value": None}])
    aside = {"on_bad_record": "dead_letter", "columns": ["offset"]}
    rows = KafkaRun(runs.broker, tmp_path / "a").read(avro, format="avro", schema=json.dumps(schema), **aside)
    assert rows == [{"n": 7, "s": None, "offset": 0}, {"n": None, "s": None, "offset": 2}]

    described = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(described.file.add())
    (tmp_path / "messages.desc").write_bytes(described.SerializeToString())
    runs.broker.create(topic)
    value = timestamp_pb2.Timestamp(seconds=5, nanos=6).SerializeToString()
    send(runs.broker, topic, [{"value": value}, {"value": b"\xff\xff"}])
    asked = {"schema": "google.protobuf.Timestamp", "descriptors": str(tmp_path / "messages.desc")}
    rows = KafkaRun(runs.broker, tmp_path / "p").read(topic, format="protobuf", **asked, **aside)
    assert rows == [{"seconds": 5, "nanos": 6, "offset": 0}]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_headers_of_confluents_serializers_are_skipped_and_what_has_none_is_set_aside(
    runs: KafkaRun, topic: str
) -> None:
    schema = {"type": "record", "name": "Reading", "fields": [{"name": "n", "type": "long"}]}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), {"n": 7})
    runs.broker.create(topic)
    header = b"\x00\x00\x00\x00\x2a"
    send(runs.broker, topic, [{"value": v} for v in (header + written.getvalue(), written.getvalue(), b"")])
    asked = {"format": "avro", "schema": json.dumps(schema), "wire": "confluent"}
    rows = runs.read(topic, on_bad_record="dead_letter", columns=["offset"], **asked)
    assert rows == [{"n": 7, "offset": 0}]
    said = KafkaRun(runs.broker, runs.directory / "json")
    runs.broker.create(f"{topic}-json")
    values = (header + b'{"n":8}', b'{"n":9}', None, header + b"{")
    send(runs.broker, f"{topic}-json", [{"value": v} for v in values])
    asked = {"format": "json", "schema": "n bigint", "wire": "confluent"}
    rows = said.read(f"{topic}-json", on_bad_record="dead_letter", columns=["offset"], **asked)
    assert rows == [{"n": 8, "offset": 0}, {"n": None, "offset": 2}]


def test_several_topics_and_those_that_come_to_match_a_pattern_are_read_and_clocked(
    runs: KafkaRun, topic: str, tmp_path: Path
) -> None:
    broker = runs.broker
    a, b, c = (f"{topic}-{name}" for name in "abc")
    broker.create(a, 2)
    broker.create(b)

    def numbered(name: str, partition: int, values: range) -> None:
        send(
            broker,
            name,
            [{"value": b"%d" % n, "partition": partition, "timestamp": DAY_MS + 1000 * n} for n in values],
        )

    numbered(a, 0, range(10))
    numbered(a, 1, range(10, 20))
    numbered(b, 0, range(20, 30))
    several = KafkaRun(broker, tmp_path / "several")
    rows = several.read(topics=[a, b], start={a: {0: 5}}, columns=["topic"])
    assert sorted(int(row["value"]) for row in rows) == list(range(5, 30))
    assert {row["topic"] for row in rows} == {a, b}

    def told_numbers() -> list[int]:
        told = json.loads(next((tmp_path / "state").rglob("kafka.json")).read_text())["numbers"]
        return [n for parts in told.values() for n in parts.values()]

    # A hidden column tells the partitions apart: one that appears must not be taken for another.
    source = runs.source(pattern=f"{topic}-.", event_time="timestamp", idle_timeout="1 s")
    with Running(runs, runs.application(source)) as running:
        running.wait_until(lambda: len(runs.rows()) == 30)
        broker.create(c)
        broker.add_partitions(a, 3)
        numbered(c, 0, range(30, 40))
        numbered(a, 2, range(40, 50))
        running.wait_until(lambda: len(runs.rows()) == 50 and len(told_numbers()) == 5)
    assert sorted(int(row["value"]) for row in runs.rows()) == list(range(50))
    assert sorted(told_numbers()) == list(range(5))
    numbers = json.loads(next((tmp_path / "state").rglob("kafka.json")).read_text())["numbers"]
    assert [numbers[a]["0"], numbers[a]["1"], numbers[b]["0"]] == [0, 1, 2]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_partition_that_is_added_before_the_end_is_behind_it(runs: KafkaRun, topic: str) -> None:
    """The end was fixed at the start, of the partitions there were."""
    runs.broker.create(topic)

    def numbered(partition: int, values: range) -> None:
        send(runs.broker, topic, [{"value": b"%d" % n, "partition": partition} for n in values])

    def values() -> list[int]:
        return sorted(int(row["value"]) for row in runs.rows())

    numbered(0, range(20))
    app = runs.application(runs.source(topic, end="latest"))
    with Running(runs, app, run__max_batch_rows="5") as running:
        running.wait_until(lambda: len(values()) >= 5)
    runs.broker.add_partitions(topic, 2)
    numbered(1, range(100, 110))
    runs.run(app)
    assert values() == list(range(20))
