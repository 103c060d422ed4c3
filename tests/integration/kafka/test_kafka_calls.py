"""How often a small batch from Kafka, and to Kafka, asks Java; and what Spark has observed in it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import py4j.clientserver
import pytest
from broker import Broker
from pyspark.sql import Observation
from pyspark.sql import functions as SF  # noqa: N812 - beside Drivetrain's F
from topic_reading import values

from drivetrain import sinks
from drivetrain.connectors.kafka.kafka_admin import KafkaAdmin
from drivetrain.connectors.opening import open_sink
from drivetrain.spark.connector.sink import SinkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_CALLS = {"at least once": 12, "exactly once": 22}


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The list to which the calls of this thread are added, without those that free objects."""
    calls: list[str] = []
    here, send = threading.get_ident(), py4j.clientserver.JavaClient.send_command

    def counting(self: Any, command: str, *args: Any, **options: Any) -> Any:
        if threading.get_ident() == here and not command.startswith("m\n"):
            calls.append(command)
        return send(self, command, *args, **options)

    monkeypatch.setattr(py4j.clientserver.JavaClient, "send_command", counting)
    return calls


@pytest.mark.parametrize("guarantee", MOST_CALLS)
def test_a_small_batch_asks_java_a_bounded_number_of_times(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: Any,
) -> None:
    """Each call takes time from both processes; options and columns are the same in all batches."""
    broker.create(topic)
    sink = sinks.kafka(broker.bootstrap, topic, value="v", guarantee=guarantee)
    writer = open_sink(sink, SinkContext("app", "out", str(tmp_path)))
    calls = counted(monkeypatch)
    for batch in range(3):
        df = spark.sql(f"select 'batch {batch}' as v")
        assert df.schema  # as that of a batch, which is known
        calls.clear()
        assert writer.write(df, batch) == 1

    assert len(calls) <= MOST_CALLS[guarantee], calls
    assert values(broker, topic) == [f"batch {batch}" for batch in range(3)]


@pytest.mark.parametrize("guarantee", MOST_CALLS)
def test_what_was_observed_in_a_batch_can_be_read_once_it_was_sent(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, guarantee: Any
) -> None:
    broker.create(topic)
    sink = sinks.kafka(broker.bootstrap, topic, value="v", guarantee=guarantee)
    writer = open_sink(sink, SinkContext("app", "out", str(tmp_path)))
    seen = Observation()
    rows = spark.range(0, 500, 1, 3).observe(seen, SF.max("id").alias("most"))

    assert writer.write(rows.where("id % 2 = 0").selectExpr("cast(id as string) as v"), 0) == 250

    assert seen.get == {"most": 499}
    assert sorted(map(int, values(broker, topic))) == list(range(0, 500, 2))


@pytest.mark.nightly("a broker that is killed: test_kafka_source_survives; the tasks' sender: above")
def test_a_batch_counts_as_sent_only_once_the_brokers_have_it(
    spark: SparkSession, mortal: Broker, topic: str, tmp_path: Path
) -> None:
    mortal.create(topic)
    sink = sinks.kafka(mortal.bootstrap, topic, value="v", guarantee="at least once")
    writer = open_sink(sink, SinkContext("app", "out", str(tmp_path)))
    assert writer.write(spark.sql("select 'first' as v"), 0) == 1
    rows = spark.range(0, 2_000, 1, 2).selectExpr("cast(id as string) as v")
    with ThreadPoolExecutor(1) as pool:
        mortal.kill()
        sent = pool.submit(writer.write, rows, 1)
        mortal.start()
        assert sent.result(150) == 2_000

    assert set(values(mortal, topic)) == {"first", *map(str, range(2_000))}


def test_whether_topics_are_still_those_is_one_request_and_few_calls(
    spark: SparkSession, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch asks: a topic that was created again has the same name and another id."""
    names = [broker.create(topic), broker.create(f"{topic}-other")]
    admin = KafkaAdmin(spark, broker.bootstrap, {}, "here")
    known = {name: found.id for name, found in admin.topics(names).items()}
    assert admin.has_topics(known.values())
    calls = counted(monkeypatch)

    assert admin.has_topics(known.values())

    assert len(calls) <= 3, calls
    broker.delete(topic)
    assert not admin.has_topics(known.values())
    assert admin.has_topics([known[f"{topic}-other"]])
    broker.create(topic)
    assert not admin.has_topics(known.values())
    assert admin.has_topics(found.id for found in admin.topics(names).values())
    assert not admin.has_topics([*known.values(), "AAAAAAAAAAAAAAAAAAAAAA"]), "as brokers without ids say"
    admin.close()
