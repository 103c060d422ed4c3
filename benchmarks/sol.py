"""SOL, the speed of light: 100-byte messages, source → hash partition → counting sink.

The benchmark of Apache Gearpump's paper (0.14 million messages a second and core there), with messages like
its own: an id and 100 constant bytes. They are made natively, so that the way between source and sink is what
is measured, and the sink must get them whole: Spark is asked how many records went through its shuffle, and
the figures count only if each message did. With `--quick` the shuffle is not compressed, and the bytes are
counted too: at least 100 a message. Otherwise it is compressed as Spark does by default. Of Flink the plan is
checked; it does not compress what stays on one machine.

- `drivetrain` hands messages to the sink natively;
- `drivetrain, Task` has a counting Task in Python, a batch at a time, that looks at every payload;
- `pyspark, tuned` is `repartition` and an aggregation after it, with Drivetrain's Spark settings;
- `flink sql` is a window over the whole stream that counts after the hash partition (`flink_sol_job`).

    python -m benchmarks.sol [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import peer_process, peers
from benchmarks.measure import OURS, Contender, Job, Scale, Timed, WrongResultError, main
from drivetrain import Application, Processor, Task, partitioners, sinks, sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK = "drivetrain, Task"
PAYLOAD_BYTES = 100
PAYLOAD = "repeat('x', 100)"
WARM_MESSAGES = 200_000
BATCH_MESSAGES = 5_000_000


def messages(scale: Scale) -> int:
    return (1_000_000 if scale.quick else 20_000_000) * scale.times


@dataclass(frozen=True)
class Counted:
    """What the counting Task emits for a batch."""

    messages: int
    payload_bytes: int


class Count(Task[Any, Any]):
    """Counts messages and the bytes of their payloads, an Arrow batch at a time."""

    output = Counted

    def on_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """One row for a whole batch."""
        size = pc.sum(pc.binary_length(batch.column("payload"))).as_py()
        last = batch.column("__ts").slice(batch.num_rows - 1)
        columns = {"messages": pa.array([batch.num_rows]), "payload_bytes": pa.array([size]), "__ts": last}
        yield pa.RecordBatch.from_pydict(columns)


def generated(count: int) -> Any:
    return sources.generate(rows=count, columns={"payload": PAYLOAD})


def application(count: int) -> Application:
    """Messages straight to a sink that counts them."""
    app = Application("sol")
    source, sink = (
        Processor(generated(count), name="source"),
        Processor(sinks.none(), peer_process.cores(), "sink"),
    )
    app.connect(source, sink, partitioners.hash("id"))
    return app


def task_application(count: int, told: list[int]) -> Application:
    """Messages to a Task that counts them; `told` gets the numbers of messages and of bytes."""
    app = Application("sol_task")
    source, task = Processor(generated(count), name="source"), Processor(Count, peer_process.cores(), "count")
    app.connect(source, task, partitioners.hash("id"))

    def add(batch: pa.Table, _batch_id: int) -> None:
        told[0] += pc.sum(batch["messages"]).as_py() or 0
        told[1] += pc.sum(batch["payload_bytes"]).as_py() or 0

    app.connect(task, Processor(sinks.batches(add), name="sum"), partitioners.colocation())
    return app


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    spark, start_s = peers.start_drivetrain(work, **shuffle_settings(scale))
    run(application(WARM_MESSAGES), peers.config(work / "warm"))
    before = shuffled(spark)
    with Timed() as timed:
        result = run(application(messages(scale)), peers.config(work, **shuffle_settings(scale)))
    expect("messages in the sink", sum(o.messages for o in result.outputs), messages(scale))
    expect_shuffled(before, shuffled(spark), scale)
    return figures(timed, scale, start_s)


def run_task(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain import run

    spark, start_s = peers.start_drivetrain(work, **shuffle_settings(scale))
    run(task_application(WARM_MESSAGES, [0, 0]), peers.config(work / "warm"))
    told, before = [0, 0], shuffled(spark)
    with Timed() as timed:
        run(task_application(messages(scale), told), peers.config(work, **shuffle_settings(scale)))
    expect("messages in the task", told[0], messages(scale))
    expect("bytes of payload in the task", told[1], messages(scale) * PAYLOAD_BYTES)
    expect_shuffled(before, shuffled(spark), scale)
    return figures(timed, scale, start_s)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

    spark, start_s = peers.start_pyspark(peers.TUNED, **shuffle_settings(scale))

    def count(batch_messages: int, batches: int, checkpoint: Path) -> list[int]:
        told = [0, 0]

        def add(batch: DataFrame, _batch_id: int) -> None:
            row = batch.agg(F.count("*").alias("n"), F.sum(F.length("payload")).alias("bytes")).first()
            told[0] += row["n"]
            told[1] += row["bytes"] or 0
            if told[0] >= batch_messages * batches:
                done.append(True)

        done: list[bool] = []
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch_messages)
        ids = source.option("numPartitions", peer_process.cores()).load().withColumnRenamed("value", "id")
        query = (
            ids.select("id", F.expr(PAYLOAD).alias("payload"))
            .repartition(peer_process.cores(), "id")
            .writeStream.option("checkpointLocation", str(checkpoint))
            .foreachBatch(add)
            .start()
        )
        while not done and query.isActive:
            query.awaitTermination(0.01)
        query.stop()
        return told

    count(WARM_MESSAGES, 1, work / "warm-checkpoint")
    before = shuffled(spark)
    per_batch = min(BATCH_MESSAGES, messages(scale))
    with Timed() as timed:
        told = count(per_batch, messages(scale) // per_batch, work / "checkpoint")
    expect("messages in the sink", told[0], messages(scale))
    expect("bytes of payload in the sink", told[1], messages(scale) * PAYLOAD_BYTES)
    expect_shuffled(before, shuffled(spark), scale)
    return figures(timed, scale, start_s)


def run_flink(scale: Scale, work: Path) -> dict[str, float]:
    given = {"messages": messages(scale), "warm_messages": WARM_MESSAGES, "work": str(work)}
    told = peer_process.run(peers.flink_command("flink_sol_job"), given)
    counts = [
        line.split(",") for path in (work / "counted").iterdir() for line in path.read_text().splitlines()
    ]
    expect("messages in the sink", sum(int(count) for count, _ in counts), messages(scale))
    expect("bytes in the longest payload", max(int(size) for _, size in counts), PAYLOAD_BYTES)
    return told | {"per_s_and_core": per_s_and_core(told["seconds"], scale)}


# -- what went through the shuffle -----------------------------------------------------------------


def shuffled(spark: SparkSession) -> tuple[int, int]:
    """Records and bytes that all stages so far have read from Spark's shuffle."""
    context, gateway = spark.sparkContext._jsc.sc(), spark.sparkContext._gateway
    context.listenerBus().waitUntilEmpty()
    nothing, quantiles = gateway.jvm.java.util.ArrayList(), gateway.new_array(gateway.jvm.double, 0)
    stages = context.statusStore().stageList(nothing, False, False, quantiles, nothing)
    records = size = 0
    for index in range(stages.size()):
        stage = stages.apply(index)
        records += stage.shuffleReadRecords()
        size += stage.shuffleReadBytes()
    return records, size


def shuffle_settings(scale: Scale) -> dict[str, str]:
    """Uncompressed in a quick run, so that bytes tell whether payloads went through the shuffle."""
    return {"spark.shuffle.compress": "false"} if scale.quick else {}


def expect_shuffled(before: tuple[int, int], after: tuple[int, int], scale: Scale) -> None:
    """Raise `WrongResultError` unless all messages, in a quick run all bytes too, were shuffled."""
    records, size = after[0] - before[0], after[1] - before[1]
    least_bytes = messages(scale) * PAYLOAD_BYTES if scale.quick else 1
    if records < messages(scale) or size < least_bytes:
        raise WrongResultError(
            f"{records:,} records, {size:,} bytes of {messages(scale):,} messages shuffled"
        )


def expect(what: str, got: int, wanted: int) -> None:
    if got != wanted:
        raise WrongResultError(f"{got:,} {what} instead of {wanted:,}")


def figures(timed: Timed, scale: Scale, start_s: float) -> dict[str, float]:
    return timed.figures(start_s=start_s, per_s_and_core=per_s_and_core(timed.seconds, scale))


def per_s_and_core(seconds: float, scale: Scale) -> float:
    return messages(scale) / seconds / peer_process.cores()


JOB = Job(
    name="sol",
    title="SOL: 100-byte messages through a hash partition into a counting sink",
    unit="messages/s/core",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(TASK, run_task),
        Contender(peers.TUNED, run_pyspark),
        Contender(peers.FLINK, run_flink, peers.flink_missing, reference=True),
    ),
    prepare=lambda _scale: None,
    units=messages,
    check=lambda _scale, _work: None,  # each contender checks what its own sink got
    measure="per_s_and_core",
    goals={peers.FLINK: 1.0},
    grows=True,
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
