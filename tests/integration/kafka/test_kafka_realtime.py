"""Kafka to Kafka in Spark's real-time mode, in processes of their own: it keeps its cores for itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from broker import Broker
from confluent_kafka import Producer
from topic_reading import values

from drivetrain import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.errors import GraphError
from drivetrain.spark.entry_points import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APPLICATION = """
from drivetrain import Application, col, sinks, sources

app = Application("fast", latency="realtime")
at, given, made = app.setting("bootstrap"), app.setting("given"), app.setting("made")
lines = app.read(sources.kafka(
    bootstrap=at, topic=given, format="json", schema="n long, ts timestamp",
    event_time="ts", max_disorder="1 s",
))
lines.filter(col("n") >= 0).select(n="n", twice="2 * n").sink(
    sinks.kafka(at, made, guarantee="at least once")
)
"""


@pytest.fixture
def command(tmp_path: Path, broker: Broker, topic: str) -> list[str]:
    file = tmp_path / "fast.py"
    file.write_text(APPLICATION)
    broker.create(f"{topic}-in", 1)
    broker.create(f"{topic}-out", 1)
    sets = {
        "bootstrap": broker.bootstrap,
        "given": f"{topic}-in",
        "made": f"{topic}-out",
        "spark.master": "local[2]",
        "spark.driver-memory": "512 MiB",
        "run.realtime-checkpoint-interval": "5 s",
        "run.progress-interval": "1 s",
    }
    line = [sys.executable, "-m", "drivetrain.cli", "run", str(file), "--state-dir", str(tmp_path / "state")]
    return [*line, *(part for name, value in sets.items() for part in ("--set", f"{name}={value}"))]


@pytest.fixture
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = start(command)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def send(broker: Broker, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for n in numbers:
        producer.produce(topic, json.dumps({"n": n, "ts": f"2024-05-01T00:00:{n % 60:02d}Z"}).encode())
    assert producer.flush(30) == 0


def wait_for(broker: Broker, topic: str, numbers: range, process: subprocess.Popen[str]) -> list[int]:
    deadline = time.monotonic() + 120
    while True:
        found = [json.loads(text)["n"] for text in values(broker, topic)]
        if set(numbers) <= set(found):
            return found
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{len(found)} messages"
        time.sleep(0.1)


def test_messages_pass_before_the_interval_is_over_and_none_is_missing_after_a_kill(
    broker: Broker, topic: str, command: list[str], started: subprocess.Popen[str], tmp_path: Path
) -> None:
    given, made = f"{topic}-in", f"{topic}-out"
    send(broker, given, range(100))
    wait_for(broker, made, range(100), started)
    deadline = time.monotonic() + 180
    while not [p for p in (tmp_path / "state").rglob("commits/*") if p.name.isdigit()]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    send(broker, given, range(100, 200))
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    send(broker, given, range(200, 300))
    again = start(command)
    try:
        found = wait_for(broker, made, range(300), again)
        assert set(found) == set(range(300))
        assert found.count(0) == 1, "what was noted does not come again"
        os.killpg(again.pid, signal.SIGINT)
        said, errors = again.communicate(timeout=180)
    finally:
        again.kill()
        again.wait()
    assert again.returncode == 128 + signal.SIGINT, errors
    assert "Traceback" not in errors
    assert "stopped" in said
    assert "ERROR" not in errors


def grown(n: int) -> int:
    return sum(ord(digit) for digit in str(n))


def test_a_function_that_stays_in_python_is_refused_by_name(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    for name in (topic, f"{topic}-out"):
        broker.create(name)
    app = Application("fast", latency="realtime")
    lines = app.read(sources.kafka(broker.bootstrap, topic, format="json", schema="n long"))
    lines.select(n=grown).sink(sinks.kafka(broker.bootstrap, f"{topic}-out", guarantee="at least once"))
    with pytest.raises(GraphError, match="real-time mode") as refused:
        run(app, Config.load(None, {}, {"state.dir": str(tmp_path / "state")}))
    assert "runs in Python" in str(refused.value)
