"""What a Kafka source survives, or stops at with an error that names it; its broker is killed."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import Broker
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kafka_runs import KafkaRun, Running, send

from drivetrain import Application, agg, sinks, windows
from drivetrain.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
DAY_MS = int(DAY.timestamp() * 1000)
HOUR_MS = 3_600_000


@pytest.fixture
def runs(spark: SparkSession, mortal: Broker, tmp_path: Path) -> KafkaRun:
    """Runs in this test's directory."""
    return KafkaRun(mortal, tmp_path)


def values(runs: KafkaRun) -> list[int]:
    return sorted(int(row["value"]) for row in runs.rows())


def numbered(begin: int, end: int, partitions: int = 1) -> list[dict[str, object]]:
    return [{"value": b"%d" % n, "partition": n % partitions} for n in range(begin, end)]


def stopped_by_itself(runs: KafkaRun, topic: str) -> BaseException:
    """What an application stops with that nobody stops."""
    running = Running(runs, runs.application(runs.source(topic)))
    with pytest.raises(InputError) as stopped, running:
        running.wait_until(lambda: running.error is not None)
    return stopped.value


def test_a_killed_broker_and_added_partitions_cost_no_message_and_the_group_shows_how_far_it_is(
    runs: KafkaRun, topic: str
) -> None:
    broker = runs.broker
    broker.create(topic, 2)
    send(broker, topic, numbered(0, 100, 2))
    source = runs.source(topic, group=f"{topic}-group")
    with Running(runs, runs.application(source)) as running:
        running.wait_until(lambda: values(runs) == list(range(100)))
        broker.kill()
        broker.start()
        broker.add_partitions(topic, 3)
        send(broker, topic, numbered(100, 200, 3))
        running.wait_until(lambda: values(runs) == list(range(200)))
        wanted = sorted((TopicPartition(topic, n).partition) for n in range(3))
        asked = ConsumerGroupTopicPartitions(f"{topic}-group")

        def committed() -> dict[int, int]:
            told = broker.admin.list_consumer_group_offsets([asked])[f"{topic}-group"].result(20)
            return {place.partition: place.offset for place in told.topic_partitions}

        running.wait_until(lambda: sum(committed().values()) == 200 and sorted(committed()) == wanted)


def test_messages_that_retention_took_stop_the_application_by_name_and_it_goes_on_only_if_told(
    runs: KafkaRun, topic: str
) -> None:
    broker = runs.broker
    broker.create(topic)
    send(broker, topic, numbered(0, 10))
    state = runs.directory / "state"
    with Running(runs, runs.application(runs.source(topic))) as running:
        # Not only published: a batch that Spark has not committed is read again, and would be gone, too.
        running.wait_until(lambda: values(runs) == list(range(10)) and any(state.rglob("commits/0")))
    send(broker, topic, numbered(10, 30))
    broker.delete_records(topic, {0: 20})
    stopped = stopped_by_itself(runs, topic)
    assert "deleted in Kafka before they were read" in str(stopped)
    assert f"topic {topic}, partition 0: offsets 10 to 19" in str(stopped)
    with Running(runs, runs.application(runs.source(topic, on_data_loss="continue"))) as running:
        running.wait_until(lambda: values(runs) == [*range(10), *range(20, 30)])
    send(broker, topic, numbered(30, 31))
    with Running(runs, runs.application(runs.source(topic, on_data_loss="continue"))) as running:
        running.wait_until(lambda: values(runs)[-1] == 30)
    assert running.result is not None
    assert running.result.lost == 10, "since the state began"


@pytest.mark.nightly("the unit tests of offsets; a killed broker in this module")
def test_a_topic_that_was_deleted_and_created_again_is_not_taken_for_the_old_one(
    runs: KafkaRun, topic: str
) -> None:
    broker = runs.broker
    broker.create(topic)
    send(broker, topic, numbered(0, 10))
    with Running(runs, runs.application(runs.source(topic))) as running:
        running.wait_until(lambda: values(runs) == list(range(10)))
    broker.delete(topic)
    broker.create(topic)
    send(broker, topic, numbered(1000, 1100))
    assert "deleted and created again" in str(stopped_by_itself(runs, topic))
    assert values(runs) == list(range(10))


@pytest.mark.nightly("test_guarantee_clock, with files")
def test_of_twelve_partitions_an_idle_one_stops_no_window_and_one_hours_late_loses_no_message(
    runs: KafkaRun, topic: str
) -> None:
    broker = runs.broker
    broker.create(topic, 12)
    late, idle = 10, 11
    sent: Counter[int] = Counter()

    def send_hours(hours: range, partitions: list[int], skew_ms: int = 0) -> None:
        messages = []
        for hour in hours:
            for partition in partitions:
                # Clocks that are not set alike: each producer's is off by up to half a minute.
                # So far into the hour that the hour before is over, whatever the disorder.
                at = DAY_MS + hour * HOUR_MS + 300_000 + partition * 5_000 - skew_ms
                messages.append({"value": b"x", "partition": partition, "timestamp": at})
                sent[hour] += 1
        send(broker, topic, messages)

    app = Application("twelve")
    source = runs.source(topic, event_time="timestamp", max_disorder="2 min", idle_timeout="2 s")
    counted = app.read(source).window(windows.tumbling("1 h")).aggregate(n=agg.count())
    counted.sink(sinks.parquet(runs.directory / "out"))

    def found() -> dict[int, int]:
        return {int((row["window_start"] - DAY).total_seconds() // 3600): row["n"] for row in runs.rows()}

    others = [n for n in range(12) if n not in (late, idle)]
    send_hours(range(5), others)
    send_hours(range(2), [late])
    with Running(runs, app) as running:
        running.wait_until(lambda: found().get(0) == sent[0])
        send_hours(range(2, 5), [late], skew_ms=30_000)
        send_hours(range(5, 6), [*others, late])
        running.wait_until(lambda: set(range(5)) <= set(found()))
        assert {hour: n for hour, n in found().items() if hour < 5} == {h: sent[h] for h in range(5)}
