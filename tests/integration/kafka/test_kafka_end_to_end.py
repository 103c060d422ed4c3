"""Kafka → windows → Kafka, killed at random: each result of one computation over all messages.

Once in the topic of a sink that publishes exactly once; at least once in that of one that promises no more.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from broker import Broker
from confluent_kafka import Producer
from topic_reading import ends, values

from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.spark.entry_points import run
from nightly_run import is_nightly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = int(os.environ.get("DRIVETRAIN_SEED", "11"))
NIGHTLY = is_nightly()
KILLS, MESSAGES = (6, 3000) if NIGHTLY else (1, 1500)

APPLICATION = """
from drivetrain import Application, agg, sinks, sources, windows
app = Application("windowed")
kafka = app.setting("bootstrap")
events = app.read(sources.kafka(
    kafka, app.setting("input"), format="json", schema="key string, at timestamp, n long", event_time="at",
    max_disorder="20 s", end="latest",
))
grouped = events.group_by("key").window(windows.tumbling("10 s"))
sums = grouped.aggregate(count=agg.count(), total=agg.sum("n"))
sums.sink(sinks.kafka(kafka, app.setting("output"), key="key"))
sums.sink(sinks.kafka(kafka, "e2e-least", key="key", guarantee="at least once"))
"""


@pytest.mark.nightly("random applications and test_kafka_sink_once stay in every run")
@pytest.mark.timeout(900)
def test_windows_from_kafka_to_kafka_are_published_once_whatever_is_killed(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    events = disordered()
    broker.create("e2e-in", 2)
    broker.create("e2e-out", 2)
    broker.create("e2e-least", 2)
    produce(broker, "e2e-in", events)
    app = tmp_path / "windowed.py"
    app.write_text(APPLICATION)
    draw = random.Random(SEED)
    for _ in range(KILLS):
        process = started(app, tmp_path, broker)
        goal = sum(ends(broker, "e2e-out")) + 1
        deadline = time.monotonic() + 240
        while process.poll() is None and sum(ends(broker, "e2e-out")) < goal:
            assert time.monotonic() < deadline, f"seed {SEED}"
            time.sleep(0.02)
        time.sleep(draw.random())  # not waiting for anything: a random moment to die at
        assert process.poll() is None, f"seed {SEED}: it had ended, {process.communicate()[0].decode()}"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
    again = load_application(str(app), settings(broker))
    config = {"run.max-batch-rows": "300", "state.dir": str(tmp_path / "state")}
    result = run(again, Config.load(None, {}, config))
    result.check()
    assert result.outcome is RunOutcome.FINISHED
    once = values(broker, "e2e-out")
    assert set(values(broker, "e2e-least")) == set(once), f"seed {SEED}"
    found = Counter(
        (told["key"], told["window_start"][:19], told["count"], told["total"])
        for told in map(json.loads, once)
    )
    assert found == in_one_go(events), f"seed {SEED}"


def disordered() -> list[tuple[str, int, int]]:
    """Key, milliseconds and number of each message, up to 20 s out of order."""
    draw = random.Random(SEED)
    known = [(draw.randrange(300_000), i) for i in range(MESSAGES)]
    known.sort(key=lambda pair: pair[0] + draw.randrange(20_000))
    return [("abc"[i % 3], ms, i) for ms, i in known]


def moment(ms: int) -> str:
    return (dt.datetime(2024, 5, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)).isoformat()


def produce(broker: Broker, topic: str, events: list[tuple[str, int, int]]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for i, (key, ms, n) in enumerate(events):
        producer.produce(topic, json.dumps({"key": key, "at": moment(ms), "n": n}), partition=i % 2)
    assert producer.flush(60) == 0


def in_one_go(events: list[tuple[str, int, int]]) -> Counter[Any]:
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, ms, n in events:
        groups[key, ms // 10_000 * 10_000].append(n)
    return Counter((key, moment(start)[:19], len(ns), sum(ns)) for (key, start), ns in groups.items())


def settings(broker: Broker) -> dict[str, str]:
    return {"bootstrap": broker.bootstrap, "input": "e2e-in", "output": "e2e-out"}


def started(app: Path, directory: Path, broker: Broker) -> subprocess.Popen[bytes]:
    sets = settings(broker) | {
        "spark.driver-memory": "1 GiB",
        "spark.master": "local[2]",
        "run.max-batch-rows": "300",
    }
    line = [sys.executable, "-m", "drivetrain.cli", "run", str(app), "--state-dir", str(directory / "state")]
    line += [word for name, value in sets.items() for word in ("--set", f"{name}={value}")]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
