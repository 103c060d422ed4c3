"""A replay of a Kafka source begins where Kafka says that the moment is, and is exact all the same."""

from __future__ import annotations

import datetime as dt
import random
from pathlib import Path
from typing import TYPE_CHECKING

from broker import Broker
from kafka_runs import KafkaRun, send

from drivetrain.spark import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
DAY_MS = int(DAY.timestamp() * 1000)


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

    def values() -> list[int]:
        return sorted(int(row["value"]) for row in runs.rows())

    source = {"event_time": "timestamp", "max_disorder": "20 s", "end": "latest"}
    runs.run(runs.application(runs.source(topic, **source)))
    assert values() == list(range(200))
    moment = DAY + dt.timedelta(seconds=150)
    result = run(runs.application(runs.source(topic, **source)), runs.config(), replay_from=moment)
    assert result.life == 2
    assert values() == sorted([*range(200), *range(150, 200)]), result
    assert 0 < result.skipped <= 2 * 20, "it began near the moment, and dropped what was older"
