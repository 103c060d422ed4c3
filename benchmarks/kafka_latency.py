"""How long a message takes from Kafka through an application to Kafka: 10,000 messages of 100 bytes a second.

Contenders: ours in real-time mode, ours in micro-batches at least once and exactly once, and plain PySpark
with the same connector in micro-batches and on its own real-time trigger. All copy text from a topic of one
partition to another, as fast as they can. The latency is from the moment when a plain producer is given a
message until a plain consumer has the copy; for exactly once the consumer reads committed messages. Producer
and consumer run in a process of their own, on the same cores. The first seconds are left out: until Java has
compiled what runs, every contender is slower than messages come, and works off what waits for long.

Apache Gearpump published 8 ms on average, between its own tasks on four servers of 32 cores: that stands
beside these figures as what was reached before, not for comparison.

    python -m benchmarks.kafka_latency [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks import kafka, peers
from benchmarks.kafka_load import PER_S, Load
from benchmarks.measure import OURS, Contender, Job, Scale, main

BATCHES = "drivetrain, micro-batches"
ONCE = "drivetrain, exactly once"
REALTIME = "pyspark, real-time"
INTERVAL_S = 10
"""In real-time mode, until offsets are noted and tasks start anew: short enough to be seen in the figures."""


def warm_s(scale: Scale) -> int:
    """Seconds at the beginning that do not count: with the first end of an interval."""
    return 3 if scale.quick else 3 * INTERVAL_S


def messages(scale: Scale) -> int:
    """How many messages are measured."""
    return PER_S * (3 if scale.quick else 15)


def started(scale: Scale, work: Path) -> Load:
    """The load of a run, which sends once it gets an answer."""
    given, made = (kafka.out(kafka.beside(work, name), 1) for name in ("given", "made"))
    return Load(kafka.broker().bootstrap, given, made, PER_S * warm_s(scale) + messages(scale))


def figures(scale: Scale, load: Load, start_s: float) -> dict[str, float]:
    """What a contender returns; raises when a message is missing."""
    warm = sorted(load.latencies_ms()[PER_S * warm_s(scale) :])
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
    from drivetrain.spark.session.spark_session import session

    config = Config.load(
        None, {}, {"state.dir": str(work / "state"), "run.realtime-checkpoint-interval": f"{INTERVAL_S} s"}
    )
    began_s = time.perf_counter()
    session(config, kafka=True)
    start_s = time.perf_counter() - began_s
    load = started(scale, work)
    app = Application("kafka_latency", latency=latency)
    read = app.read(sources.kafka(load.bootstrap, load.given))
    read.sink(sinks.kafka(load.bootstrap, load.made, value="value", guarantee=guarantee))
    run(app, config, load)
    return figures(scale, load, start_s)


def run_pyspark(scale: Scale, work: Path, *, realtime: bool) -> dict[str, float]:
    spark, start_s = peers.start_pyspark(peers.TUNED, **kafka.connector())
    load = started(scale, work)
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
    return figures(scale, load, start_s)


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
