"""A state in an object store, beside a state on the disk: batch times, latency, requests.

The job of `trickle`: a file of 200 lines every half second, whose words are counted. Its store is S3Proxy on
this machine, which answers within a few milliseconds; a store elsewhere takes ten to fifty.

- *ours, state in a store*: `state.dir` is a place in the store. The state is on the disk while batches run,
  and each checkpoint, one a second, is copied before its results are shown.
- *PySpark, checkpoint in the store*: through `s3a://`, with the jars that Spark lacks (fetched on first use),
  and with the manager of checkpoint files that reports failed writes.

Requests are those of the process to the store, as it counts them itself, for each batch.

    python -m benchmarks.remote_state [--quick] [--json] [--rounds N] [--only CONTENDER]
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers, trickle
from benchmarks.measure import OURS, Contender, Job, Scale, main
from benchmarks.remote_store import (
    COLUMNS,
    IN_STORE,
    LOCAL,
    ON_DISK,
    remote_config,
    spark_requests,
    spark_settings,
    store_of,
    with_requests,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    with remote_config(work, "trickle") as (config, requests):
        return with_requests(trickle.run_drivetrain(scale, work, config), requests)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    requests = Counter[str]()

    def count(session: SparkSession) -> None:
        requests.update(spark_requests(session))

    with store_of(work) as store:
        place, conf = "s3a://states/trickle", spark_settings(store)
        figures = trickle.run_pyspark(peers.TUNED, scale, work, place, conf, count)
    return with_requests(figures, requests)


JOB = Job(
    name="remote_state",
    title="A state in an object store: median batch time of small inputs",
    unit="ms per batch",
    contenders=(
        Contender(OURS, run_drivetrain),
        Contender(LOCAL, trickle.run_drivetrain),
        Contender(IN_STORE, run_pyspark),
        Contender(ON_DISK, lambda scale, work: trickle.run_pyspark(peers.TUNED, scale, work)),
    ),
    prepare=lambda _scale: None,
    units=trickle.files,
    check=lambda _scale, _work: None,  # the running counts are compared where they arrive
    measure="batch_ms",
    lower_is_better=True,
    columns=(("latency_ms", "latency, ms"), ("batches", "batches"), *COLUMNS),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
