"""How long a message takes from Kafka through an application to Kafka: 10,000 messages of 100 bytes a second.

Contenders: ours in real-time mode, ours in micro-batches at least once and exactly once, and plain PySpark
with the same connector in micro-batches and on its own real-time trigger. All copy text from a topic of one
partition to another, as fast as they can. The latency is from the moment when a plain producer is given a
message until a plain consumer has the copy; for exactly once the consumer reads committed messages. Producer
and consumer run in the contender's process, and on its cores. The first seconds are left out.

Apache Gearpump published 8 ms on average, between its own tasks on four servers of 32 cores: that stands
beside these figures as what was reached before, not for comparison.

    python -m benchmarks.kafka_latency [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import kafka, peers
from benchmarks.measure import OURS, Contender, Job, Scale, WrongResultError, main

if TYPE_CHECKING:
    from drivetrain.core.progress import ProgressEvent

BATCHES = "drivetrain, micro-batches"
ONCE = "drivetrain, exactly once"
REALTIME = "pyspark, real-time"
PER_S = 10_000
MESSAGE_BYTES = 100
INTERVAL_S = 10
"""In real-time mode, until offsets are noted and tasks start anew: short enough to be seen in the figures."""
TICK_S = 0.001
PATIENCE_S = 120.0


def warm_s(scale: Scale) -> int:
    """Seconds at the beginning that do not count: with the first end of an interval."""
    return 3 if scale.quick else INTERVAL_S + 2


def messages(scale: Scale) -> int:
    """How many messages are measured."""
    return PER_S * (3 if scale.quick else 15)


class Load:
    """Sends messages at an even pace once the first copy has come, and notes when each copy comes."""

    def __init__(self, scale: Scale, work: Path) -> None:
        self.bootstrap = kafka.broker().bootstrap
        self.given = kafka.out(kafka.beside(work, "given"), 1)
        self.made = kafka.out(kafka.beside(work, "made"), 1)
        self._cold = PER_S * warm_s(scale)
        self._count = self._cold + messages(scale)
        self._latencies_ms: dict[int, float] = {}
        self._awake = threading.Event()
        self._done = threading.Event()
        self._threads = [threading.Thread(target=part, daemon=True) for part in (self._send, self._receive)]
        self._until_s = time.monotonic() + PATIENCE_S
        for thread in self._threads:
            thread.start()

    # -- what tells a run when to end --------------------------------------------------------------

    def on_event(self, event: ProgressEvent) -> None:
        """Nothing to note: what counts is what comes out."""

    def stop_requested(self) -> bool:
        return self._done.is_set() or time.monotonic() > self._until_s

    # -- the two ends --------------------------------------------------------------------------------

    def _send(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "acks": 1})
        while not self._awake.is_set():
            producer.produce(self.given, b"awake?")
            producer.poll(0)
            self._awake.wait(0.2)
        began_s, sent = time.monotonic(), 0
        while sent < self._count:
            due = min(self._count, int((time.monotonic() - began_s) * PER_S))
            for number in range(sent, due):
                text = f"{number:09d} {time.monotonic_ns():020d} "
                producer.produce(self.given, text.ljust(MESSAGE_BYTES, "x").encode())
            sent = max(sent, due)
            producer.poll(0)
            time.sleep(TICK_S)
        producer.flush()

    def _receive(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
        }
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(self.made, 0, 0)])
        while len(self._latencies_ms) < self._count and not self.stop_requested():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            text = message.value() or b""
            if text == b"awake?":
                self._awake.set()
            else:
                number, sent_ns = int(text[:9]), int(text[10:30])
                self._latencies_ms.setdefault(number, (time.monotonic_ns() - sent_ns) / 1e6)
        self._done.set()
        consumer.close()

    def figures(self, start_s: float) -> dict[str, float]:
        """What a contender returns; raises when a message is missing."""
        for thread in self._threads:
            thread.join(30)
        if len(self._latencies_ms) != self._count:
            raise WrongResultError(f"{len(self._latencies_ms)} of {self._count} messages arrived")
        warm = sorted(ms for number, ms in self._latencies_ms.items() if number >= self._cold)
        at = {part: warm[int(len(warm) * part / 1000)] for part in (500, 990, 999)}
        return {
            "p50_ms": at[500],
            "p99_ms": at[990],
            "p999_ms": at[999],
            "worst_ms": warm[-1],
            "start_s": start_s,
        }


def run_drivetrain(scale: Scale, work: Path, *, latency: Any, guarantee: Any) -> dict[str, float]:
    from drivetrain import Application, run, sinks, sources
    from drivetrain.config import Config
    from drivetrain.spark.session import session

    config = Config.load(
        None, {}, {"state.dir": str(work / "state"), "run.realtime-checkpoint-interval": f"{INTERVAL_S} s"}
    )
    began_s = time.perf_counter()
    session(config, kafka=True)
    start_s = time.perf_counter() - began_s
    load = Load(scale, work)
    app = Application("kafka_latency", latency=latency)
    read = app.read(sources.kafka(load.bootstrap, load.given))
    read.sink(sinks.kafka(load.bootstrap, load.made, value="value", guarantee=guarantee))
    run(app, config, load)
    return load.figures(start_s)


def run_pyspark(scale: Scale, work: Path, *, realtime: bool) -> dict[str, float]:
    spark, start_s = peers.start_pyspark(peers.TUNED, **kafka.connector())
    load = Load(scale, work)
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", load.bootstrap)
    read = read.option("subscribe", load.given).option("startingOffsets", "earliest")
    lines = read.load().selectExpr("cast(value as string) as value")
    written = lines.writeStream.format("kafka").option("kafka.bootstrap.servers", load.bootstrap)
    written = written.option("topic", load.made).option("checkpointLocation", str(work / "checkpoint"))
    if realtime:
        written = written.outputMode("update").trigger(realTime=f"{INTERVAL_S} seconds")
    query = written.start()
    while not load.stop_requested() and query.isActive:
        time.sleep(0.05)
    query.stop()
    return load.figures(start_s)


def check(_scale: Scale, work: Path) -> None:
    """Every contender has counted in its own process; here its topics go."""
    kafka.drop(kafka.beside(work, "given"), kafka.beside(work, "made"))


JOB = Job(
    name="kafka_latency",
    title="Kafka to Kafka: ms until a message is there, at 10,000 messages of 100 bytes a second",
    unit="ms, p50",
    contenders=(
        Contender(
            OURS,
            lambda scale, work: run_drivetrain(scale, work, latency="realtime", guarantee="at least once"),
        ),
        Contender(
            BATCHES,
            lambda scale, work: run_drivetrain(scale, work, latency="micro-batch", guarantee="at least once"),
        ),
        Contender(
            ONCE,
            lambda scale, work: run_drivetrain(scale, work, latency="micro-batch", guarantee="exactly once"),
            reference=True,
        ),
        Contender(peers.TUNED, lambda scale, work: run_pyspark(scale, work, realtime=False)),
        Contender(REALTIME, lambda scale, work: run_pyspark(scale, work, realtime=True), reference=True),
    ),
    prepare=lambda _scale: kafka.start(),
    units=messages,
    check=check,
    measure="p50_ms",
    lower_is_better=True,
    columns=(("p99_ms", "p99"), ("p999_ms", "p99.9"), ("worst_ms", "worst"), ("start_s", "session start, s")),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
