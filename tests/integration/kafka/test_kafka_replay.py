"""A replay of a Kafka source begins where the application knows that the moment is, and misses nothing."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import Broker
from kafka_runs import KafkaRun, send

from drivetrain import sources
from drivetrain.core.job.run_progress import RunResult
from drivetrain.errors import InputError
from drivetrain.spark.entry_points import run
from nightly_run import first_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
DAY_MS = int(DAY.timestamp() * 1000)
SEED = first_seed(1)
SCHEMA = "at timestamp, n bigint"


def replayed(runs: KafkaRun, source: sources.Source, second: int, **keys: str) -> RunResult:
    """Replay from that second of the day."""
    moment = DAY + dt.timedelta(seconds=second)
    result = run(runs.application(source), runs.config(**keys), replay_from=moment)
    result.check()
    return result


def numbers(runs: KafkaRun, name: str = "n") -> list[int]:
    return sorted(int(row[name]) for row in runs.rows())


@pytest.mark.nightly("the test of messages whose time has nothing to do with Kafka's")
def test_a_disordered_topic_is_replayed_from_a_moment_without_reading_what_lies_before_it(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    runs = KafkaRun(broker, tmp_path)
    broker.create(topic, 2)
    times = list(range(200))
    draw = random.Random(3)
    times.sort(key=lambda t: t + draw.randrange(20))
    send(
        broker,
        topic,
        [{"value": b"%d" % t, "partition": t % 2, "timestamp": DAY_MS + 1000 * t} for t in times],
    )
    source = runs.source(topic, event_time="timestamp", max_disorder="20 s", end="latest")
    runs.run(runs.application(source))
    assert numbers(runs, "value") == list(range(200))
    result = replayed(runs, source, 150)
    assert result.life == 2
    assert numbers(runs, "value") == sorted([*range(200), *range(150, 200)]), result
    assert 0 < result.skipped <= 2 * 20, "it began near the moment, and dropped what was older"
    broker.delete_records(topic, {0: 100, 1: 100})  # Kafka knows nothing of what it has deleted; the notes do
    with pytest.raises(InputError, match="deleted in Kafka"):
        replayed(runs, source, 150)


@pytest.mark.nightly("other tests of this module replay")
@pytest.mark.parametrize(
    "kept_in_topic",
    [pytest.param(False, marks=pytest.mark.nightly("the same, with offsets in a file")), True],
)
def test_messages_whose_time_has_nothing_to_do_with_kafkas_are_replayed_exactly_from_any_moment(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, kept_in_topic: bool
) -> None:
    """Several runs of small batches, replays one after the other, messages that come in between."""
    draw = random.Random(SEED)
    runs = KafkaRun(broker, tmp_path)
    broker.create(topic, 2)
    times: list[int] = []

    def more(begin: int, end: int) -> None:
        new = list(range(begin, end))
        new.sort(key=lambda t: t + draw.randrange(60))
        messages = []
        for t in new:
            at = (DAY + dt.timedelta(seconds=t)).isoformat()
            unrelated_ms = DAY_MS - draw.randrange(10**9)  # Kafka's own timestamp says nothing
            value = b'{"at":"%s","n":%d}' % (at.encode(), t)
            messages.append({"value": value, "partition": draw.randrange(2), "timestamp": unrelated_ms})
        send(broker, topic, messages)
        times.extend(new)

    kept = {"offset_topic": f"{topic}-offsets"} if kept_in_topic else {}
    source = runs.source(topic, format="json", schema=SCHEMA, event_time="at", end="latest", **kept)
    more(0, 240)
    runs.run(runs.application(source), run__max_batch_rows="60")
    wanted = list(range(240))
    assert numbers(runs) == wanted
    for begin, end in ((240, 270), (270, 300)):
        more(begin, end)
        second = draw.randrange(150, begin)
        if kept_in_topic:
            # With it the state may be lost: what is in the topic says where the moment is.
            shutil.rmtree(tmp_path / "state")
            shutil.rmtree(tmp_path / "out")
            wanted = []
        result = replayed(runs, source, second, run__max_batch_rows="60")
        wanted = sorted([*wanted, *range(second, end)])
        assert numbers(runs) == wanted, (SEED, second, result)
        assert result.skipped < second, f"it began at the beginning: seed {SEED}, from {second}"


def test_a_replay_of_messages_that_kafka_has_deleted_says_so_and_goes_on_only_if_told(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    runs = KafkaRun(broker, tmp_path)
    broker.create(topic)
    at = [(DAY + dt.timedelta(seconds=t)).isoformat().encode() for t in range(20)]
    send(broker, topic, [{"value": b'{"at":"%s","n":%d}' % (at[t], t)} for t in range(20)])
    asked = {"format": "json", "schema": SCHEMA, "event_time": "at", "end": "latest"}
    runs.run(runs.application(runs.source(topic, **asked)))
    broker.delete_records(topic, {0: 10})
    with pytest.raises(InputError, match="deleted in Kafka") as told:
        replayed(runs, runs.source(topic, **asked), 5)
    assert f"topic {topic}, partition 0: offsets 0 to 9" in str(told.value)
    replayed(runs, runs.source(topic, on_data_loss="continue", **asked), 5)
    assert numbers(runs) == sorted([*range(20), *range(10, 20)])
