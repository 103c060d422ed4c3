"""From a topic of Kafka to another: 5 million JSON events, of which half pass a filter, without their time.

At least once, as most do by default, and exactly once where that is a setting: a transaction for each batch,
or for ten seconds. The broker is on the same cores, and its CPU seconds are told apart.

python -m benchmarks.field_kafka [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.json as pa_json

from benchmarks import data, field_install, field_peers, field_topics, kafka, peer_process, peers
from benchmarks.measure import OURS, Contender, Job, Scale, main
from benchmarks.results import expect_equal

WARM_EVENTS = 20_000
BELOW = 5_000
"""Which values pass the filter: half of them."""
TRANSACTION_MS = 10_000
SCHEMA = "key string, value bigint"
ONCE = ", exactly once"


def directory(scale: Scale) -> Path:
    return data.events((100_000 if scale.quick else 5_000_000) * scale.times)


def both(scale: Scale) -> tuple[Path, Path]:
    return directory(scale), data.events(WARM_EVENTS)


def application(name: str, topics: tuple[str, str], guarantee: Any) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, col, sinks, sources

    app, bootstrap = Application(name), kafka.broker().bootstrap
    events = app.read(sources.kafka(bootstrap, topics[0], format="json", schema=SCHEMA, end="latest"))
    sink = sinks.kafka(bootstrap, topics[1], guarantee=guarantee, transaction_timeout="5 min")
    events.filter(col("value") < BELOW).select("key", "value").sink(sink)
    return app


def run_drivetrain(guarantee: str, scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run
    from drivetrain.spark.session.spark_session import session

    with field_topics.WithBroker() as starting:
        session(peers.config(work), kafka=True)
    topics, warm = topics_of(scale, work)
    run(application("warm", warm, guarantee), peers.config(work / "warm"))
    with field_topics.WithBroker() as timed:
        result = run(application("kafka", topics, guarantee), peers.config(work))
    return timed.figures(start_s=starting.seconds, batches=result.batches)


def run_pyspark(scale: Scale, work: Path, *, same_settings: bool = False) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    from drivetrain.connectors.kafka.client_options import for_spark, reading, sending

    spark, start_s = peers.start_pyspark(peers.TUNED, **kafka.connector())
    bootstrap = kafka.broker().bootstrap
    settings = [for_spark(reading()), for_spark(sending(2**20))] if same_settings else [{}, {}]

    def copy(topics: tuple[str, str], checkpoint: Path) -> None:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        read = (
            read.option("subscribe", topics[0]).option("startingOffsets", "earliest").options(**settings[0])
        )
        fields = read.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("event"))
        kept = fields.where(F.col("event.value") < BELOW).select(F.to_json("event").alias("value"))
        writing = kept.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        writing = writing.option("topic", topics[1]).options(**settings[1])
        writing = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        writing.start().awaitTermination()

    topics, warm = topics_of(scale, work)
    copy(warm, work / "warm-checkpoint")
    with field_topics.WithBroker() as timed:
        copy(topics, work / "checkpoint")
    return timed.figures(start_s=start_s)


def topics_of(scale: Scale, work: Path) -> tuple[tuple[str, str], tuple[str, str]]:
    """The topics to read and to write, and those of the warm-up."""
    made = field_topics.given(*both(scale), work)
    return (made["topic"], made["out_topic"]), (made["warm_topic"], made["warm_out_topic"])


# -- the peers of the field --------------------------------------------------------------------------


def given(scale: Scale, work: Path) -> dict[str, Any]:
    return {
        **field_topics.given(*both(scale), work),
        "below": BELOW,
        "units": JOB.units(scale),
        "results": expected(directory(scale)).height,
        "warm_units": WARM_EVENTS,
        "warm_results": expected(data.events(WARM_EVENTS)).height,
    }


def given_once(scale: Scale, work: Path) -> dict[str, Any]:
    return {**given(scale, work), "exactly_once": TRANSACTION_MS}


def run_flink(guarantee: str, scale: Scale, work: Path) -> dict[str, float]:
    jars = ";".join(f"file://{jar}" for jar in field_install.jars("flink_kafka"))
    told = {"work": str(work), "jars": jars, "guarantee": guarantee, **given(scale, work)}
    return peer_process.run(peers.flink_command("flink_kafka_job"), told, field_topics.process())


def flink_missing() -> str | None:
    return peers.flink_missing() or field_install.jars_missing("flink_kafka") or field_topics.missing()


def between(name: str, package: str, *, once: bool = False, little: bool = False) -> Contender:
    told = given_once if once else given
    return field_peers.between_topics(f"{name}{ONCE if once else ''}", package, "kafka", told, little=little)


# -- the check ---------------------------------------------------------------------------------------


def expected(directory: Path) -> pl.DataFrame:
    """What must be in the topic, by one batch query."""
    schema = {"key": pl.String, "value": pl.Int64}
    events = pl.concat(
        [pl.read_ndjson(file, schema=schema) for file in sorted((directory / "lines").iterdir())]
    )
    return events.filter(pl.col("value") < BELOW)


def check(scale: Scale, work: Path) -> None:
    got = pa_json.read_json(io.BytesIO(b"\n".join(field_topics.values(work))))
    wanted = expected(directory(scale)).to_arrow()
    expect_equal(got.select(wanted.column_names), wanted, ["key", "value"])
    field_topics.drop(work)


def prepare(scale: Scale) -> None:
    field_topics.fill(*both(scale), directory(Scale(quick=True, times=scale.times)))


JOB = field_peers.job(
    Job(
        name="kafka",
        title="5 million JSON events from a topic of Kafka to another",
        unit="events/s",
        contenders=(
            Contender(OURS, lambda scale, work: run_drivetrain("at least once", scale, work)),
            Contender(OURS + ONCE, lambda scale, work: run_drivetrain("exactly once", scale, work)),
            Contender(peers.TUNED, run_pyspark),
            Contender(kafka.SAME_SETTINGS, lambda scale, work: run_pyspark(scale, work, same_settings=True)),
            Contender(
                peers.FLINK, lambda scale, work: run_flink("at-least-once", scale, work), flink_missing
            ),
            Contender(
                peers.FLINK + ONCE, lambda scale, work: run_flink("exactly-once", scale, work), flink_missing
            ),
        ),
        prepare=prepare,
        units=lambda scale: data.total(directory(scale), "n"),
        check=check,
    ),
    between(field_peers.KAFKA_STREAMS, "kafka_streams"),
    between(field_peers.KAFKA_STREAMS, "kafka_streams", once=True),
    between(field_peers.BYTEWAX, "bytewax"),
    between(field_peers.PATHWAY, "pathway"),
    between(field_peers.QUIX, "quixstreams", little=True),
    between(field_peers.QUIX, "quixstreams", once=True, little=True),
    between(field_peers.STORM, "storm"),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
