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

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import peers, trickle
from benchmarks.measure import OURS, Contender, Job, Scale, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = f"{OURS}, state on the disk"
IN_STORE = f"{peers.TUNED}, checkpoint in the store"
ON_DISK = f"{peers.TUNED}, checkpoint on the disk"

_AWS: Final = "2.35.4"
_MODULES: Final = (
    "s3 s3-transfer-manager sts aws-core sdk-core auth regions http-client-spi apache-client "
    "netty-nio-client utils annotations profiles identity-spi http-auth-spi http-auth http-auth-aws "
    "http-auth-aws-eventstream checksums checksums-spi retries retries-spi endpoints-spi json-utils "
    "protocol-core aws-xml-protocol aws-query-protocol aws-json-protocol arns crt-core metrics-spi "
    "third-party-jackson-core"
)
PACKAGES: Final = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(f"software.amazon.awssdk:{module}:{_AWS}" for module in _MODULES.split()),
    "software.amazon.eventstream:eventstream:1.0.1",
    "org.reactivestreams:reactive-streams:1.0.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
"""What `s3a://` needs beside PySpark: 12 MB, where the bundle of the AWS SDK has 690."""
_FILES: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
READS: Final = ("GET", "HEAD", "action_http_get_request", "action_http_head_request")
WRITES: Final = ("PUT", "LIST", "object_put_request", "object_list_request", "object_continue_list_request")


@contextmanager
def store_of(work: Path) -> Iterator[Any]:
    """The object store of the tests, with the bucket `states`."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from object_store import ENVIRONMENT, S3Server

    os.environ.update(ENVIRONMENT)
    store = S3Server(work / "s3").start()
    try:
        store.bucket("states")
        yield store
    finally:
        store.kill()


def with_requests(figures: dict[str, float], requests: Counter[str]) -> dict[str, float]:
    """The figures, and how many requests there were for each batch."""
    batches = figures["batches"]
    return figures | {
        "reads": sum(requests[name] for name in READS) / batches,
        "writes": sum(requests[name] for name in WRITES) / batches,
    }


def run_drivetrain(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain.config import Config
    from drivetrain.runtime.objects.obstore_store import ObstoreStore

    requests, asked = Counter[str](), ObstoreStore._asked

    def counted(store: Any, method: str, *request: Any) -> Any:
        requests[method] += 1
        return asked(store, method, *request)

    with store_of(work) as store:
        keys = {"state.dir": "s3://states/trickle", "state.work-dir": str(work / "state")}
        ObstoreStore._asked = counted  # type: ignore[method-assign]
        figures = trickle.run_drivetrain(scale, work, Config.load(None, {}, keys | store.sets()))
    return with_requests(figures, requests)


def run_pyspark(scale: Scale, work: Path) -> dict[str, float]:
    from drivetrain.spark.session.jars import fetch

    requests = Counter[str]()

    def count(session: SparkSession) -> None:
        path = session._jvm.org.apache.hadoop.fs.Path("s3a://states/trickle")  # type: ignore[union-attr]
        files = path.getFileSystem(session._jsc.hadoopConfiguration())
        for name in (*READS, *WRITES):
            requests[name] += files.getIOStatistics().counters().getOrDefault(name, 0)

    with store_of(work) as store:
        given = store.settings().secrets()
        conf = {
            "spark.jars": ",".join(map(str, fetch(PACKAGES, {}))),
            "spark.sql.streaming.checkpointFileManagerClass": _FILES,
            "spark.hadoop.fs.s3a.endpoint": store.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": given["access_key_id"],
            "spark.hadoop.fs.s3a.secret.key": given["secret_access_key"],
        }
        figures = trickle.run_pyspark(peers.TUNED, scale, work, "s3a://states/trickle", conf, count)
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
    columns=(
        ("latency_ms", "latency, ms"),
        ("batches", "batches"),
        ("writes", "writes and lists a batch"),
        ("reads", "reads a batch"),
        ("peak_mib", "peak memory, MiB"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB, __doc__))
