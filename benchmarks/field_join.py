"""A join of two streams: 5 million JSON events, orders and payments, by key and within ten seconds.

python -m benchmarks.field_join [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import data, field_data, field_peers, field_topics, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, main
from benchmarks.results import expect_equal, read_output

WARM_ORDERS = 10_000
WITHIN = "10 seconds"


def count(scale: Scale) -> int:
    """How many orders there are, and as many payments."""
    return (50_000 if scale.quick else 2_500_000) * scale.times


def lines(orders: int) -> tuple[Path, Path]:
    """The lines of orders and of payments."""
    return field_data.orders(orders) / "lines", field_data.payments(orders) / "lines"


def application(orders: Path, payments: Path, out: Path) -> Any:
    """The job as a Drivetrain application."""
    from drivetrain import Application, sinks, sources

    app = Application("join")

    def read(files: Path, name: str) -> Any:
        source = sources.json(files, schema=data.EVENT_SCHEMA, event_time="ts", max_disorder="5 s")
        return app.read(source, name=name)

    ordered = read(orders, "orders").select("key", amount="value")
    paid = read(payments, "payments").select("key", payment="value")
    ordered.join(paid, on="key", within="10 s").sink(sinks.parquet(out))
    return app


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    _, start_s = peers.start_drivetrain(work)
    run(application(*lines(WARM_ORDERS), work / "warm-out"), peers.config(work / "warm"))
    with Timed() as timed:
        result = run(application(*lines(count(scale)), work / "out"), peers.config(work))
    return timed.figures(start_s=start_s, batches=result.batches)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(peers.TUNED)

    def join(orders: Path, payments: Path, out: Path, checkpoint: Path) -> None:
        # An inner join gives each pair as soon as it is there: nothing is kept back at the end.
        reader = spark.readStream.schema(data.EVENT_SCHEMA).format("json")
        ordered = reader.load(str(orders)).selectExpr("ts AS at", "key", "value AS amount")
        paid = reader.load(str(payments)).selectExpr("ts AS paid_at", "key AS order", "value AS payment")
        near = f"paid_at BETWEEN at - INTERVAL {WITHIN} AND at + INTERVAL {WITHIN}"
        ordered, paid = ordered.withWatermark("at", "5 seconds"), paid.withWatermark("paid_at", "5 seconds")
        pairs = ordered.join(paid, F.expr(f"key = order AND {near}")).select("payment", "key", "amount")
        writer = pairs.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        writer.option("path", str(out)).trigger(availableNow=True).start().awaitTermination()

    join(*lines(WARM_ORDERS), work / "warm-out", work / "warm-checkpoint")
    with Timed() as timed:
        join(*lines(count(scale)), work / "out", work / "checkpoint")
    return timed.figures(start_s=start_s)


def given(scale: Scale, _work: Path) -> dict[str, Any]:
    orders, payments = lines(count(scale))
    warm_orders, warm_payments = lines(WARM_ORDERS)
    return {
        "lines": str(orders),
        "payments": str(payments),
        "units": results(count(scale)),  # whoever has no end is over when all pairs are there
        "warm_lines": str(warm_orders),
        "warm_payments": str(warm_payments),
        "warm_units": results(WARM_ORDERS),
        "within_ms": field_data.WITHIN_MS,
    }


def results(orders: int) -> int:
    """How many pairs there are."""
    return int(pq.read_metadata(field_data.payments(orders) / "expected.parquet").num_rows)


def both(scale: Scale) -> tuple[Path, Path]:
    return field_data.orders(count(scale)), field_data.orders(WARM_ORDERS)


def given_topics(scale: Scale, work: Path) -> dict[str, Any]:
    return {
        **given(scale, work),
        "payments_topic": field_topics.topic(field_data.payments(count(scale))),
        "warm_payments_topic": field_topics.topic(field_data.payments(WARM_ORDERS)),
    }


def prepare(scale: Scale) -> None:
    for orders in (count(scale), count(Scale(quick=True, times=scale.times)), WARM_ORDERS):
        field_topics.fill(field_data.orders(orders), field_data.payments(orders))


def check(scale: Scale, work: Path) -> None:
    expected = pq.read_table(field_data.payments(count(scale)) / "expected.parquet")
    got = read_output(work / "out", expected.column_names)
    expect_equal(got.select(expected.column_names), expected, ["payment"])


JOB = field_peers.job(
    Job(
        name="join",
        title="Orders and payments, 5 million JSON events, joined within ten seconds",
        unit="events/s",
        contenders=(
            Contender(OURS, run_drivetrain),
            Contender(peers.TUNED, run_pyspark),
            field_peers.in_flink(peers.FLINK, "join", given),
        ),
        prepare=prepare,
        units=lambda scale: 2 * count(scale),
        check=check,
    ),
    field_peers.in_python(field_peers.PATHWAY, "join", given),
    field_peers.on_kafka(field_peers.KAFKA_STREAMS, "join", given_topics, both),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
