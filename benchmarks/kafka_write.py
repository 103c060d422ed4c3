"""Eight million messages of 100 bytes to Kafka, from Parquet files.

Contenders: ours at least once (through Spark's connector, as plain PySpark), ours exactly once (a transaction
for each batch), plain PySpark with the same connector, the same with the settings of Kafka's client that ours
has as defaults, and a plain confluent-kafka producer that has the rows in memory already.

    python -m benchmarks.kafka_write [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import data, kafka, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main

ONCE = "drivetrain, exactly once"
CLIENT = "confluent-kafka producer"


def application(bootstrap: str, rows: Path, topic: str, guarantee: Any) -> Any:
    from drivetrain import Application, sinks, sources

    app = Application(f"kafka-write-{topic}")
    sink = sinks.kafka(
        bootstrap, topic, key="key", value="value", guarantee=guarantee, transaction_timeout="5 min"
    )
    app.read(sources.parquet(rows)).sink(sink)
    return app


def run_drivetrain(guarantee: str, scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run
    from drivetrain.spark.session.spark_session import session

    bootstrap = kafka.broker().bootstrap
    warm = kafka.out(kafka.beside(work, "warm"))
    with Timed() as starting:
        session(peers.config(work), kafka=True)
    run(application(bootstrap, kafka.rows(kafka.warm(scale)), warm, guarantee), peers.config(work / "warm"))
    app = application(bootstrap, kafka.rows(kafka.messages(scale)), kafka.out(work), guarantee)
    with Timed() as timed:
        result = run(app, peers.config(work))
    return timed.figures(start_s=starting.seconds, batches=result.batches)


def run_pyspark(scale: Scale, work: Path, *, same_settings: bool = False) -> dict[str, float]:
    from drivetrain.connectors.kafka.client_options import for_spark, sending

    settings = for_spark(sending(2**20)) if same_settings else {}
    spark, start_s = peers.start_pyspark(peers.TUNED, **kafka.connector())
    bootstrap = kafka.broker().bootstrap

    def write(rows: Path, topic: str, checkpoint: Path) -> None:
        read = spark.readStream.schema("key string, value string").parquet(str(rows))
        query = (
            read.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .options(**settings)
            .option("topic", topic)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    write(kafka.rows(kafka.warm(scale)), kafka.out(kafka.beside(work, "warm")), work / "warm-checkpoint")
    topic = kafka.out(work)
    with Timed() as timed:
        write(kafka.rows(kafka.messages(scale)), topic, work / "checkpoint")
    return timed.figures(start_s=start_s)


def run_client(scale: Scale, work: Path) -> dict[str, float]:
    from confluent_kafka import Producer

    topic = kafka.out(work)
    table = pq.ParquetDataset(kafka.rows(kafka.messages(scale))).read()
    messages = list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
    producer = Producer({"bootstrap.servers": kafka.broker().bootstrap, "partitioner": "murmur2_random"})
    with Timed() as timed:
        for key, value in messages:
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush()
    return timed.figures()


def check(scale: Scale, work: Path) -> None:
    found = kafka.consumed(kafka.broker().bootstrap, kafka.out(work), kafka.messages(scale))
    kafka.expect(scale, found)
    kafka.drop(work, kafka.beside(work, "warm"))


def prepare(scale: Scale) -> None:
    kafka.start()
    data.read_files(*(kafka.rows(count) for count in (kafka.warm(scale), kafka.messages(scale))))


JOB = Job(
    name="kafka_write",
    title="Eight million messages of 100 bytes to Kafka",
    unit="messages/s",
    contenders=(
        Contender(OURS, lambda scale, work: run_drivetrain("at least once", scale, work)),
        Contender(ONCE, lambda scale, work: run_drivetrain("exactly once", scale, work)),
        Contender(peers.TUNED, run_pyspark),
        Contender(kafka.SAME_SETTINGS, lambda scale, work: run_pyspark(scale, work, same_settings=True)),
        Contender(CLIENT, run_client),
    ),
    prepare=prepare,
    units=kafka.messages,
    check=check,
    goals={peers.TUNED: 0.95},
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
