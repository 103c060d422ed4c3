"""An MQTT source that is received into its store, without Spark: in this process, or in one of its own.

As a program: `received.py BROKER TOPIC DIRECTORY ARGUMENTS` receives until it is killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from drivetrain.api import sources
from drivetrain.connectors.mqtt.mqtt_feed import MqttFeed
from drivetrain.runtime.channel.segments import read_segment
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.channel.ingest import Ingest, IngestLimits
from drivetrain.spark.channel.ingest_threads import IngestThreads

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.string()),
        ("qos", pa.int32()),
        ("retained", pa.bool_()),
        ("received", pa.timestamp("us", "UTC")),
    ]
)


class Receiving:
    """A source of `broker` that is received into `directory`, from `start` on."""

    def __init__(
        self, broker: str, topic: Any, directory: Path, *, unread_bytes: int = 1 << 30, **how: Any
    ) -> None:
        self.directory = directory
        source = sources.mqtt(broker, topic, **{"client_id": f"drivetrain-{directory}", **how})
        self.feed = MqttFeed(source, str(source.client_id), directory / "home")
        schema = SCHEMA if source.format == "text" else SCHEMA.set(1, pa.field("payload", pa.binary()))
        limits = IngestLimits(wait_ms=self.feed.wait_ms, unread_bytes=unread_bytes)
        store = ChannelStore(str(directory / "store"), fragment="ingest")
        self.threads = IngestThreads(Ingest(store, schema, limits=limits), self.feed)

    def __enter__(self) -> Receiving:
        self.threads.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.threads.stop()

    def rows(self) -> list[dict[str, Any]]:
        """The stored rows, in order."""
        return stored_in(self.directory)

    def payloads(self) -> list[Any]:
        return [row["payload"] for row in self.rows()]

    def wait(self, condition: Callable[[list[Any]], bool], timeout_s: float = 60) -> None:
        """Wait until `condition` holds for the payloads."""
        deadline = time.monotonic() + timeout_s
        while not condition(self.payloads()):
            self.threads.raise_error()
            assert time.monotonic() < deadline, f"still {self.payloads()[-20:]}"
            time.sleep(0.02)

    def wait_error(self, *others: Receiving, timeout_s: float = 100) -> Exception:
        """Wait for an error of this one or one of the others."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                for each in (self, *others):
                    each.threads.raise_error()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                return error
            time.sleep(0.02)
        raise AssertionError("there is no error")

    def wait_connected(self) -> None:
        """Wait until the broker has granted the subscription."""
        deadline = time.monotonic() + 30
        while not (self.directory / "home" / "session.json").exists() or not self.feed._is_connected:
            self.threads.raise_error()
            assert time.monotonic() < deadline
            time.sleep(0.01)


def stored_in(directory: Path) -> list[dict[str, Any]]:
    """The rows in the store of a directory, in order."""
    store = ChannelStore(str(directory / "store"))
    return [
        row
        for entry in store.entries(store.start())
        for segment in entry.segments
        for batch in read_segment(store.files, segment)
        for row in batch.to_pylist()
    ]


if __name__ == "__main__":
    how = json.loads(sys.argv[4])
    with Receiving(sys.argv[1], sys.argv[2], Path(sys.argv[3]), **how) as receiving:
        while True:
            receiving.threads.raise_error()
            time.sleep(0.1)
