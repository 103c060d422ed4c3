"""What the benchmarks of states in an object store share: the store, and how requests to it are counted.

Called by `remote_state`, `remote_wordcount`, `remote_windows` and `remote_hop`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks import peers
from benchmarks.measure import OURS, Contender, Scale, Timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from drivetrain.config import Config

LOCAL = f"{OURS}, state on the disk"
IN_STORE = f"{peers.TUNED}, checkpoint in the store"
ON_DISK = f"{peers.TUNED}, checkpoint on the disk"
COLUMNS = (
    ("writes", "writes and lists a batch"),
    ("reads", "reads a batch"),
    ("peak_mib", "peak memory, MiB"),
)

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


@contextmanager
def remote_config(work: Path, name: str, **sets: str) -> Iterator[tuple[Config, Counter[str]]]:
    """A configuration whose state is in the store, and the requests of this process, as they are made.

    `sets` are further settings, with _ for - and __ for a dot.
    """
    from drivetrain.config import Config
    from drivetrain.runtime.objects.obstore_store import ObstoreStore

    requests, asked = Counter[str](), ObstoreStore._asked

    def counted(store: Any, method: str, *request: Any) -> Any:
        requests[method] += 1
        return asked(store, method, *request)

    more = {key.replace("__", ".").replace("_", "-"): value for key, value in sets.items()}
    with store_of(work) as store:
        keys = {"state.dir": f"s3://states/{name}", "state.work-dir": str(work / "state"), **more}
        ObstoreStore._asked = counted  # type: ignore[method-assign]
        try:
            yield Config.load(None, {}, keys | store.sets()), requests
        finally:
            ObstoreStore._asked = asked  # type: ignore[method-assign]


def spark_settings(store: Any) -> dict[str, str]:
    """With what PySpark keeps a checkpoint in the store."""
    from drivetrain.spark.session.jars import fetch

    given = store.settings().secrets()
    return {
        "spark.jars": ",".join(map(str, fetch(PACKAGES, {}))),
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
        "spark.hadoop.fs.s3a.endpoint": store.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": given["access_key_id"],
        "spark.hadoop.fs.s3a.secret.key": given["secret_access_key"],
    }


def spark_requests(session: SparkSession) -> Counter[str]:
    """The requests of a PySpark session to the store so far."""
    path = session._jvm.org.apache.hadoop.fs.Path("s3a://states/any")  # type: ignore[union-attr]
    counters = path.getFileSystem(session._jsc.hadoopConfiguration()).getIOStatistics().counters()
    return Counter({name: counters.getOrDefault(name, 0) for name in (*READS, *WRITES)})


@dataclass(frozen=True)
class RemoteJob:
    """A job in batches of a known size, with the state in the store or on the disk.

    `warm(scale)` and `input(scale)` are what is read; `application(input, out)` is ours. `batch(scale)` is
    the limit of a batch. `pyspark(session, input, out, checkpoint)` does the same, and returns how many
    batches it took; None: PySpark does not take part.
    """

    name: str
    warm: Callable[[Scale], Path]
    input: Callable[[Scale], Path]
    batch: Callable[[Scale], str]
    application: Callable[[Path, Path], Any]
    pyspark: Callable[[SparkSession, Path, Path, str], int] | None = None

    def contenders(self) -> tuple[Contender, ...]:
        """Ours with the state in the store, and on the disk; PySpark with its checkpoint there, if it can."""
        ours = (Contender(OURS, self._in_store), Contender(LOCAL, self._on_disk))
        if self.pyspark is None:
            return ours
        return (*ours, Contender(IN_STORE, self._spark_in_store), Contender(ON_DISK, self._spark_on_disk))

    def _in_store(self, scale: Scale, work: Path) -> dict[str, float]:
        with remote_config(work, self.name, run__max_batch_bytes=self.batch(scale)) as (config, requests):
            return with_requests(self._ours(scale, work, config), requests)

    def _on_disk(self, scale: Scale, work: Path) -> dict[str, float]:
        from drivetrain.config import Config

        sets = {"state.dir": str(work / "state"), "run.max-batch-bytes": self.batch(scale)}
        return self._ours(scale, work, Config.load(None, {}, sets))

    def _ours(self, scale: Scale, work: Path, config: Config) -> dict[str, float]:
        from drivetrain import run

        _, start_s = peers.start_drivetrain(work)
        run(self.application(self.warm(scale), work / "warm-out"), peers.config(work / "warm"))
        with Timed() as timed:
            result = run(self.application(self.input(scale), work / "out"), config)
        return timed.figures(start_s=start_s, batches=result.batches)

    def _spark_in_store(self, scale: Scale, work: Path) -> dict[str, float]:
        with store_of(work) as store:
            return self._spark(scale, work, f"s3a://states/{self.name}", spark_settings(store))

    def _spark_on_disk(self, scale: Scale, work: Path) -> dict[str, float]:
        return self._spark(scale, work, str(work / "checkpoint"), {})

    def _spark(self, scale: Scale, work: Path, checkpoint: str, conf: dict[str, str]) -> dict[str, float]:
        assert self.pyspark is not None, "only jobs that PySpark can do have it as a contender"
        spark, start_s = peers.start_pyspark(peers.TUNED, **conf)
        self.pyspark(spark, self.warm(scale), work / "warm-out", str(work / "warm-checkpoint"))
        before = spark_requests(spark) if conf else None
        with Timed() as timed:
            batches = self.pyspark(spark, self.input(scale), work / "out", checkpoint)
        figures = timed.figures(start_s=start_s, batches=batches)
        return figures if before is None else with_requests(figures, spark_requests(spark) - before)
