"""Applications that read Kafka, run on the session's Spark, and messages for them to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from broker import Broker
from confluent_kafka import Producer

from drivetrain import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunResult
from drivetrain.spark.entry_points import run

WAIT_S = 180.0


def send(broker: Broker, topic: str, messages: Iterable[Mapping[str, Any]]) -> None:
    """Send messages, each with the arguments of a producer: value, key, partition, timestamp, headers."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "log_level": 0, "message.max.bytes": 16 * 2**20}
    )
    failed: list[object] = []
    for message in messages:
        producer.produce(
            topic, on_delivery=lambda error, _: failed.append(error) if error else None, **message
        )
        producer.poll(0)
    assert producer.flush(60) == 0, "the broker did not take all messages"
    assert not failed, failed


class KafkaRun:
    """Applications whose state and output are in one directory; `rows` returns what they wrote."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.directory = directory

    def source(self, topic: str | None = None, **arguments: Any) -> sources.Source:
        """A source of this broker."""
        return sources.kafka(bootstrap=self.broker.bootstrap, topic=topic, **arguments)

    def application(self, source: sources.Source) -> Application:
        """An application that writes the messages of a source to a file sink."""
        app = Application("reader")
        app.read(source).sink(sinks.parquet(self.directory / "out"))
        return app

    def config(self, **keys: str) -> Config:
        """A configuration; `__` in a keyword stands for a dot, `_` for a dash."""
        given = {k.replace("__", ".").replace("_", "-"): v for k, v in keys.items()}
        return Config.load(None, {}, {"state.dir": str(self.directory / "state"), **given})

    def run(self, app: Application, *, fresh: bool = False, **keys: str) -> RunResult:
        """Run an application to its end; raises its error."""
        result = run(app, self.config(**keys), fresh=fresh)
        result.check()
        return result

    def read(self, topic: str | None = None, **arguments: Any) -> list[dict[str, Any]]:
        """The messages of a source up to an end, by default the current one."""
        arguments.setdefault("end", "latest")
        self.run(self.application(self.source(topic, **arguments)))
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        """The published rows, sorted by all columns."""
        directory = self.directory / "out"
        files = [str(p) for p in sorted(directory.glob("*.parquet"))] if directory.is_dir() else []
        table = ds.dataset(files).to_table() if files else pa.table({})
        return sorted(table.to_pylist(), key=repr)


class Running:
    """An application that does not end, in a thread of its own; leaving the block stops it at a batch's
    end."""

    def __init__(self, runs: KafkaRun, app: Application, **keys: str) -> None:
        self._runs = runs
        self._app = app
        self._keys = keys
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.result: RunResult | None = None
        self.error: BaseException | None = None

    def on_event(self, event: object) -> None:
        """Ignore all events: tests look at the output."""

    def stop_requested(self) -> bool:
        """Whether the block was left."""
        return self._stop.is_set()

    def _work(self) -> None:
        try:
            self.result = run(self._app, self._runs.config(**self._keys), self)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; raises when the application ends first."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            if not self._thread.is_alive() or time.monotonic() > deadline:
                state = self.error or self.result or "still running"
                raise AssertionError(f"it did not come to it: {state}; published: {self._runs.rows()[:30]}")
            time.sleep(0.1)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "it does not stop"
        if error is None and self.error is not None:
            raise self.error
