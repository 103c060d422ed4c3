"""Messages at an even pace into one topic, and how long each takes until its copy is in another.

In a process of its own: threads beside an engine's own Python would take turns with it, and cost an engine
that plans in Python more than one that does not. It still shares the cores.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from array import array
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.measure import WrongResultError

if TYPE_CHECKING:
    from drivetrain.core.job.run_progress import ProgressEvent

PER_S = 10_000
MESSAGE_BYTES = 100
TICK_S = 0.001
PATIENCE_S = 120.0
_AWAKE = b"awake?"


class Load:
    """Sends `count` messages from `given` on as soon as a first copy has come to `made`.

    It is the listener of a run as well, which ends when all copies have come.
    """

    def __init__(self, bootstrap: str, given: str, made: str, count: int) -> None:
        self.bootstrap, self.given, self.made = bootstrap, given, made
        self._count = count
        apart = multiprocessing.get_context("spawn")
        self._told, told = apart.Pipe(duplex=False)
        self._process = apart.Process(target=_carry, args=(bootstrap, given, made, count, told), daemon=True)
        self._process.start()
        told.close()

    def on_event(self, event: ProgressEvent) -> None:
        """Nothing to note: what counts is what comes out."""

    def stop_requested(self) -> bool:
        """Whether the copies are there, or nobody waits for them any more."""
        return self._told.poll()

    def latencies_ms(self) -> array[float]:
        """Of each message in the order of sending; raises when one is missing."""
        try:
            found: array[float] = self._told.recv()
        except EOFError:
            found = array("d")
        self._process.join(30)
        if len(found) != self._count:
            raise WrongResultError(f"{len(found)} of {self._count} messages arrived")
        return found


def _carry(bootstrap: str, given: str, made: str, count: int, told: Connection) -> None:
    awake = threading.Event()
    sender = threading.Thread(target=_send, args=(bootstrap, given, count, awake), daemon=True)
    sender.start()
    latencies_ms = _receive(bootstrap, made, count, awake)
    told.send(array("d", (latencies_ms[n] for n in sorted(latencies_ms))))


def _send(bootstrap: str, topic: str, count: int, awake: threading.Event) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})
    while not awake.is_set():
        producer.produce(topic, _AWAKE)
        producer.poll(0)
        awake.wait(0.2)
    began_s, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - began_s) * PER_S))
        for number in range(sent, due):
            text = f"{number:09d} {time.monotonic_ns():020d} "
            producer.produce(topic, text.ljust(MESSAGE_BYTES, "x").encode())
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush()


def _receive(bootstrap: str, topic: str, count: int, awake: threading.Event) -> dict[int, float]:
    """The milliseconds that each message took, by its number."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "latency",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, float] = {}
    until_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        text = message.value() or b""
        if text == _AWAKE:
            awake.set()
        else:
            number, sent_ns = int(text[:9]), int(text[10:30])
            found.setdefault(number, (time.monotonic_ns() - sent_ns) / 1e6)
    consumer.close()
    return found
