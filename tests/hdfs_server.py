"""A real HDFS on this machine for the tests: a name node and a data node in one process of Java.

Hadoop's own cluster for tests, of the version whose client PySpark has; its jar (pinned) is fetched once into
the user's cache: by `make setup`, or `hdfs_server.py fetch`. A server that a test starts dies with the
process that started it. The user of the tests may do everything there, others may read.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from drivetrain.runtime.objects.hdfs_store import HdfsStore
from drivetrain.runtime.objects.settings import StoreSettings
from drivetrain.spark.session.jars import cached, fetch
from drivetrain.spark.session.java import java_program
from free_ports import free_port
from server_process import started
from stored_place import StoredPlace

PINS = {
    "org.apache.hadoop:hadoop-client-minicluster:3.5.0": (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    )
}
START_S = 180.0
_LIBRARIES = ("hadoop-client-*", "slf4j-api-*", "log4j-*", "jcl-over-slf4j-*")


class HdfsServer:
    """An HDFS whose files are in `directory`, on a free port."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.uri = f"hdfs://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, is_new: bool = True) -> HdfsServer:
        """Start it, and wait until it answers; unless it `is_new`, with the files that it has."""
        details = self.directory / "details.json"
        details.unlink(missing_ok=True)
        manager = ["org.apache.hadoop.test.MiniDFSClusterManager", *(["-format"] if is_new else [])]
        manager += ["-datanodes", "1", "-nnport", str(self.port), "-writeDetails", str(details)]
        manager += [f"-Dhdfs.minidfs.basedir={self.directory / 'data'}"]
        manager += ["-Ddfs.namenode.fs-limits.min-block-size=1024"]
        options = ["-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        log, command = self.directory / "log.txt", [*_java(), *options, *manager]
        self._process = started("HDFS", command, log, details.exists, within_s=START_S)
        return self

    def place(self, name: str) -> StoredPlace:
        """A directory as a place."""
        return StoredPlace(f"{self.uri}/{name}", self.sets())

    def kill(self) -> None:
        """End it at once; it keeps its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def stop(self) -> None:
        """Suspend it: it takes connections, and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End `stop`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def store(self, *, timeout_ms: int = 20_000, retry_ms: int = 60_000) -> HdfsStore:
        """Its files; a request of the whole of it takes so long at most."""
        return HdfsStore(self.uri.removeprefix("hdfs://"), self.settings(timeout_ms, retry_ms))

    def settings(self, timeout_ms: int = 20_000, retry_ms: int = 60_000) -> StoreSettings:
        """How it is reached."""
        return StoreSettings(hdfs_timeout_ms=timeout_ms, hdfs_retry_ms=retry_ms)

    def sets(self) -> dict[str, str]:
        """The same as keys of a configuration."""
        return {"hdfs.timeout": "20 s", "hdfs.retry-for": "60 s"}

    def admin(self, *words: str) -> str:
        """What `hdfs dfsadmin` says to these words."""
        command = [*_java(), "org.apache.hadoop.hdfs.tools.DFSAdmin", "-fs", self.uri, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def _java() -> list[str]:
    (jar,) = fetch(list(PINS), PINS)
    java = java_program()
    assert java is not None, "HDFS needs Java"
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    shipped = Path(found.origin).parent / "jars"
    libraries = [str(path) for pattern in _LIBRARIES for path in sorted(shipped.glob(f"{pattern}.jar"))]
    return [java, "-cp", os.pathsep.join([str(jar), *libraries])]


if __name__ == "__main__":
    if sys.argv[1:] == ["fetched"]:
        sys.exit(cached(list(PINS)) is None)
    print(*fetch(list(PINS), PINS))
