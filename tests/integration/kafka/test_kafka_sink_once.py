"""Exactly once to Kafka: what comes again, who publishes, and what is known after a crash."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec
from topic_reading import values

from drivetrain import sinks
from drivetrain.connectors.kafka.java_producer import JavaProducer
from drivetrain.connectors.opening import open_sink
from drivetrain.core.channel.channel_log import Segment
from drivetrain.core.checkpoint.publication import Marker
from drivetrain.errors import InternalError, OutputError
from drivetrain.spark.connector.sink import SinkContext
from drivetrain.spark.measure import small_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OpenAgain = Callable[..., Any]


@pytest.fixture
def again(broker: Broker, topic: str, tmp_path: Path) -> OpenAgain:
    """Opens the sink as a new process would: with the same state, unless told otherwise."""
    broker.create(topic, 2)

    def make(state: str = "state", *, on: Broker = broker, **arguments: Any) -> Any:
        sink = sinks.kafka(on.bootstrap, topic, value="v", **arguments)
        return open_sink(sink, SinkContext(f"app-{topic}", "out", str(tmp_path / state)))

    return make


def rows(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([(str(n),) for n in numbers], "v string")


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_batch_that_comes_again_adds_nothing_also_after_a_restart(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain
) -> None:
    writer = again()
    writer.validate()
    assert writer.write(rows(spark, 1, 2), 0) == 2
    assert writer.write(rows(spark), 1) == 0
    assert writer.write(rows(spark, 1, 2), 0) == 0
    restarted = again()
    restarted.validate()
    assert restarted.write(rows(spark, 1, 2), 0) == 0
    assert restarted.write(rows(spark, 3), 2) == 1
    assert sorted(values(broker, topic)) == ["1", "2", "3"]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_crash_between_commit_and_note_is_resolved_by_the_mark_in_kafka(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain, tmp_path: Path
) -> None:
    again().write(rows(spark, 1), 0)
    note = tmp_path / "state" / "publication.json"
    told = json.loads(note.read_text())
    note.write_text(json.dumps({**told, "published": -1, "begun": 0}))
    restarted = again()
    assert restarted.write(rows(spark, 1), 0) == 0
    assert restarted.write(rows(spark, 2), 1) == 1
    assert sorted(values(broker, topic)) == ["1", "2"]


def test_the_newest_batch_is_known_even_if_the_state_is_older(
    spark: SparkSession, topic: str, again: OpenAgain, tmp_path: Path
) -> None:
    writer, note = again(), tmp_path / "state" / "publication.json"
    assert writer.newest() == -1
    writer.write(rows(spark, 1), 0)
    older = note.read_text()
    writer.write(rows(spark, 2), 3)
    assert again().newest() == 3
    note.write_text(older)
    assert again().newest() == 3
    assert again("another").newest() == -1


@pytest.mark.nightly("the unit tests of transactions; other tests of this module use a broker")
def test_a_mark_that_has_expired_is_no_harm_unless_nobody_knows_how_a_transaction_ended(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain, tmp_path: Path
) -> None:
    again().write(rows(spark, 1), 0)
    forget_mark(broker, topic)
    restarted = again()
    assert restarted.write(rows(spark, 1), 0) == 0
    assert restarted.write(rows(spark, 2), 1) == 1
    note = tmp_path / "state" / "publication.json"
    told = json.loads(note.read_text())
    assert (told["published"], told["begun"]) == (1, None)
    note.write_text(json.dumps({**told, "published": 0, "begun": 1}))
    forget_mark(broker, topic)
    with pytest.raises(OutputError, match="unknown whether batch 1 was published") as caught:
        again().write(rows(spark, 2), 1)
    assert str(note) in str(caught.value.remedy)
    note.write_text(json.dumps({**told, "published": 1, "begun": None}))  # as the remedy says: it is there
    assert again().write(rows(spark, 2), 1) == 0
    assert sorted(values(broker, topic)) == ["1", "2"]


def forget_mark(broker: Broker, topic: str) -> None:
    group = f"drivetrain.app-{topic}.out"
    broker.admin.delete_consumer_groups([group])[group].result(30)


def test_results_of_a_state_that_is_gone_are_not_mixed_with_new_ones_unless_told(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain
) -> None:
    again().write(rows(spark, 1), 0)
    with pytest.raises(OutputError, match="another state directory"):
        again("another state").validate()
    with pytest.raises(OutputError, match="another state directory"):
        again("another state").write(rows(spark, 1), 0)
    with pytest.raises(OutputError, match="cannot delete") as caught:
        again().check_fresh()
    assert 'on_fresh="append"' in str(caught.value)
    appending = again("another state", on_fresh="append")
    appending.check_fresh()
    appending.fresh()
    appending.validate()
    assert appending.write(rows(spark, 1), 0) == 1
    assert values(broker, topic) == ["1", "1"]


def test_a_process_that_was_taken_for_dead_cannot_publish_any_more(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain
) -> None:
    zombie = again()
    zombie.write(rows(spark, 1), 0)
    successor = again()
    successor.write(rows(spark, 2), 1)
    with pytest.raises(OutputError, match="another process has taken over"):
        zombie.write(rows(spark, 2), 1)
    assert successor.write(rows(spark, 3), 2) == 1
    assert sorted(values(broker, topic)) == ["1", "2", "3"]


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_transaction_that_a_dead_process_left_open_does_not_keep_the_next_one_from_starting(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain
) -> None:
    dead = again()
    dead.write(rows(spark, 1), 0)
    dead.prepare(rows(spark, 2), 1)
    producer = dead._producer._producer
    producer.begin()
    for segment in dead._outbox.files(dead._outbox.prepared(1)):
        assert producer.send(segment) == 1
    producer.mark(*dead._target.position(Marker(dead._known.token, 1)))
    restarted = again(timeout="15 s")
    restarted.validate()
    assert restarted.write(rows(spark, 1), 0) == 0
    assert restarted.write(rows(spark, 2), 1) == 1
    assert sorted(values(broker, topic)) == ["1", "2"]


def test_prepared_batches_are_unseen_survive_and_are_committed_once_in_order_or_never(
    spark: SparkSession, broker: Broker, topic: str, again: OpenAgain
) -> None:
    writer = again()
    assert [writer.prepare(rows(spark, 10 * n, 10 * n + 1), n) for n in range(4)] == [2] * 4
    assert writer.prepare(rows(spark, 7), 1) == 1  # again, with other rows
    assert values(broker, topic) == []
    restarted = again()
    assert restarted.prepared() == [0, 1, 2, 3]
    with pytest.raises(InternalError, match="before"):
        restarted.commit(1)
    assert [restarted.commit(0), restarted.commit(0), restarted.commit(1)] == [2, 0, 1]
    restarted.abort(2)
    assert restarted.commit(3) == 2
    with pytest.raises(InternalError, match="not prepared"):
        restarted.commit(9)
    with pytest.raises(InternalError, match="is published"):
        restarted.abort(3)
    assert restarted.prepared() == []
    assert sorted(values(broker, topic)) == ["0", "1", "30", "31", "7"]


@pytest.mark.nightly("test_kafka_source_survives kills a broker, test_kafka_sink_killed the sink's process")
@pytest.mark.parametrize("strategy", ["none", "rebootstrap"])
def test_a_broker_that_is_killed_in_the_middle_of_a_batch_and_comes_back(
    spark: SparkSession,
    mortal: Broker,
    topic: str,
    again: OpenAgain,
    strategy: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mortal.create(topic, 2)
    writer = again(on=mortal, options={"metadata.recovery.strategy": strategy})
    writer.write(rows(spark, -1), 0)
    sending, killed = threading.Event(), threading.Event()
    plain = JavaProducer.send

    def slowly(producer: JavaProducer, segment: Segment) -> int:
        sent = plain(producer, segment)
        sending.set()
        assert killed.wait(60)
        return sent

    monkeypatch.setattr(JavaProducer, "send", slowly)
    monkeypatch.setattr(small_batches, "small_table", lambda _: None)
    numbers = spark.range(0, 60_000, 1, 3).selectExpr("cast(id as string) as v")
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(writer.write, numbers, 1)
        assert sending.wait(60)
        mortal.kill()
        killed.set()
        mortal.start()
        assert sent.result(150) == 60_000
    assert writer.write(rows(spark, 60_000), 2) == 1
    assert sorted(map(int, values(mortal, topic))) == list(range(-1, 60_001))


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_transaction_that_lasts_too_long_is_told_as_that(
    spark: SparkSession, mortal: Broker, topic: str, again: OpenAgain, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal.create(topic, 2)
    writer = again(on=mortal, transaction_timeout="1 s", timeout="30 s")
    writer.write(rows(spark, 1), 0)
    plain = JavaProducer.send

    def too_slowly(producer: JavaProducer, segment: Segment) -> int:
        sent = plain(producer, segment)
        deadline = time.monotonic() + 120
        for is_over in (False, True):  # first the message arrives
            while time.monotonic() < deadline and aborted(mortal, writer._target.group) != is_over:
                time.sleep(0.05)
        return sent

    monkeypatch.setattr(JavaProducer, "send", too_slowly)
    with pytest.raises(OutputError, match="longer than its transaction may last") as caught:
        writer.write(rows(spark, 2), 1)
    assert "transaction_timeout" in str(caught.value.remedy)
    monkeypatch.setattr(JavaProducer, "send", plain)
    assert writer.write(rows(spark, 2), 1) == 1
    assert sorted(values(mortal, topic)) == ["1", "2"]


def aborted(broker: Broker, transactional_id: str) -> bool:
    """Whether the broker has ended the sink's transaction, as the end of it can be read again."""
    topic = transactional_id.removeprefix("drivetrain.app-").removesuffix(".out")
    ends = []
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        places = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(2)}
        found = broker.admin.list_offsets(places, isolation_level=level)
        ends.append([future.result(10).offset for future in found.values()])
    return ends[0] == ends[1]
