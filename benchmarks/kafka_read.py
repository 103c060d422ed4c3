"""Eight million messages of 100 bytes from Kafka, counted.

Contenders: ours; ours with the values as text, which it looks through for bytes that are none; plain PySpark
with the same connector, and bytes; the same with the settings of Kafka's client that are our defaults; and
a plain confluent-kafka consumer.

    python -m benchmarks.kafka_read [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import kafka, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main

TEXT = "drivetrain, text"
CLIENT = "confluent-kafka consumer"


def application(bootstrap: str, topic: str, name: str, form: str) -> Any:
    from drivetrain import Application, sinks, sources

    app = Application(name)
    app.read(sources.kafka(bootstrap, topic, format=form, end="latest")).sink(sinks.none(), name="counted")
    return app


def run_drivetrain(form: str, scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run
    from drivetrain.spark.session.spark_session import session

    bootstrap = kafka.broker().bootstrap
    with Timed() as starting:
        session(peers.config(work), kafka=True)
    run(application(bootstrap, kafka.topic(kafka.warm(scale)), "warm", form), peers.config(work / "warm"))
    app = application(bootstrap, kafka.topic(kafka.messages(scale)), "read", form)
    with Timed() as timed:
        result = run(app, peers.config(work))
    kafka.expect(scale, sum(output.messages for output in result.outputs))
    return timed.figures(start_s=starting.seconds, batches=result.batches)


def run_pyspark(scale: Scale, work: Path, *, same_settings: bool = False) -> dict[str, float]:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    from drivetrain.connectors.kafka.client_options import for_spark, reading

    spark, start_s = peers.start_pyspark(peers.TUNED, **kafka.connector())
    settings = for_spark(reading()) if same_settings else {}
    bootstrap = kafka.broker().bootstrap

    def count(topic: str, checkpoint: Path) -> int:
        found = [0]

        def drop(batch: DataFrame, _batch_id: int) -> None:
            seen = Observation()
            batch.observe(seen, F.count("value").alias("n")).write.format("noop").mode("overwrite").save()
            found[0] += seen.get["n"]

        read = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .options(**settings)
            .load()
        )
        query = (
            read.select("value")
            .writeStream.foreachBatch(drop)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found[0]

    count(kafka.topic(kafka.warm(scale)), work / "warm-checkpoint")
    with Timed() as timed:
        found = count(kafka.topic(kafka.messages(scale)), work / "checkpoint")
    kafka.expect(scale, found)
    return timed.figures(start_s=start_s)


def run_client(scale: Scale, work: Path) -> dict[str, float]:
    with Timed() as timed:
        found = kafka.consumed(
            kafka.broker().bootstrap, kafka.topic(kafka.messages(scale)), kafka.messages(scale)
        )
    kafka.expect(scale, found)
    return timed.figures()


def prepare(scale: Scale) -> None:
    kafka.fill(scale)
    kafka.read_files(scale)


def check(_scale: Scale, _work: Path) -> None:
    """Every contender has counted in its own process, and raised there."""


JOB = Job(
    name="kafka_read",
    title="Eight million messages of 100 bytes from Kafka",
    unit="messages/s",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain("raw", scale, work)),
        Contender(TEXT, lambda scale, work: run_drivetrain("text", scale, work)),
        Contender(peers.TUNED, run_pyspark),
        Contender(kafka.SAME_SETTINGS, lambda scale, work: run_pyspark(scale, work, same_settings=True)),
        Contender(CLIENT, run_client, reference=True),
    ),
    prepare=prepare,
    units=kafka.messages,
    check=check,
    goals={peers.TUNED: 0.95, kafka.SAME_SETTINGS: 0.97},
    grows=True,
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
