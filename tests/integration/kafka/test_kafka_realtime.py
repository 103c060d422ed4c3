"""Kafka to Kafka in Spark's real-time mode."""

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
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
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


KEYS = {"run.realtime-checkpoint-interval": "5 s", "run.progress-interval": "1 s"}


def settings(broker: Broker, topic: str) -> dict[str, str]:
    return {"bootstrap": broker.bootstrap, "given": f"{topic}-in", "made": f"{topic}-out"}


class UntilThere:
    """Stops a run when its topic has these messages and the run has noted some, or after too long.

    `found` are all that the topic has.
    """

    def __init__(self, broker: Broker, topic: str, numbers: range, state: Path) -> None:
        self._broker, self._topic, self._numbers = broker, topic, set(numbers)
        self._state = state
        self._patience_s = time.monotonic() + 180
        self._next_s = 0.0
        self.found: list[int] = []
        self.first_before_any_note = False

    def on_event(self, event: object) -> None: ...

    def stop_requested(self) -> bool:
        now_s = time.monotonic()
        if now_s > self._next_s:
            is_noted = has_noted(self._state)
            self.found = [json.loads(text)["n"] for text in values(self._broker, self._topic)]
            self.first_before_any_note |= bool(self.found) and not is_noted
            self._next_s = time.monotonic() + 0.2
        is_there = self._numbers <= set(self.found) and has_noted(self._state)
        return is_there or now_s > self._patience_s


def has_noted(state: Path) -> bool:
    """Whether a run has noted how far it is, as it does after each interval."""
    return any(note.name.isdigit() for note in state.rglob("commits/*"))


@pytest.fixture
def file(tmp_path: Path, broker: Broker, topic: str) -> Path:
    """The application, whose topics are there."""
    made = tmp_path / "fast.py"
    made.write_text(APPLICATION)
    broker.create(f"{topic}-in", 1)
    broker.create(f"{topic}-out", 1)
    return made


@pytest.fixture
def command(tmp_path: Path, broker: Broker, topic: str, file: Path) -> list[str]:
    sets = {
        **settings(broker, topic),
        **KEYS,
        "spark.master": "local[2]",
        "spark.driver-memory": "512 MiB",
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


@pytest.mark.usefixtures("spark")
def test_messages_pass_before_the_interval_is_over_and_none_is_missing_after_a_stop(
    broker: Broker, topic: str, file: Path
) -> None:
    given = f"{topic}-in"
    send(broker, given, range(100))
    first = goes_on(broker, topic, file, range(100))
    assert first.first_before_any_note, "messages have waited until the interval was over"
    send(broker, given, range(100, 200))
    second = goes_on(broker, topic, file, range(200))
    assert set(second.found) == set(range(200))
    assert second.found.count(0) == 1, "what was noted does not come again"


def goes_on(broker: Broker, topic: str, file: Path, numbers: range) -> UntilThere:
    """Run the application in this process until all these messages are there."""
    state = file.parent / "state"
    there = UntilThere(broker, f"{topic}-out", numbers, state)
    application = load_application(str(file), settings(broker, topic))
    result = run(application, Config.load(None, {}, {"state.dir": str(state), **KEYS}), there)
    result.check()
    assert result.outcome is RunOutcome.STOPPED
    return there


@pytest.mark.nightly("the stop, above; test_guarantee_delivery kills a run")
@pytest.mark.usefixtures("spark")
def test_none_is_missing_after_a_kill(
    broker: Broker, topic: str, started: subprocess.Popen[str], file: Path, tmp_path: Path
) -> None:
    """What goes on after the kill needs no process of its own."""
    given, made = f"{topic}-in", f"{topic}-out"
    send(broker, given, range(100))
    wait_for(broker, made, range(100), started)
    deadline = time.monotonic() + 180
    while not has_noted(tmp_path / "state"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    send(broker, given, range(100, 200))
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    send(broker, given, range(200, 300))
    there = goes_on(broker, topic, file, range(300))
    assert set(there.found) == set(range(300))
    assert there.found.count(0) == 1, "what was noted does not come again"


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
