"""A process that runs applications may fork: its threads keep their connections to Java."""

from __future__ import annotations

import subprocess
import threading
from typing import Any

from pyspark.sql import SparkSession

from drivetrain.spark.session.forked_children import close_connections_only_here


def test_a_fork_does_not_cut_the_connections_of_other_threads(spark: SparkSession) -> None:
    close_connections_only_here()
    client: Any = spark.sparkContext._gateway._gateway_client
    ports: list[int] = []
    forked = threading.Event()

    def call() -> None:
        """Call Java before and after the fork; PySpark replaces a connection that was cut."""
        spark._jsc.sc().isStopped()
        ports.append(client.get_thread_connection().socket.getsockname()[1])
        ready.set()
        assert forked.wait(60)
        spark._jsc.sc().isStopped()
        ports.append(client.get_thread_connection().socket.getsockname()[1])

    ready = threading.Event()
    thread = threading.Thread(target=call)
    thread.start()
    assert ready.wait(60)
    # Python runs in the child between fork and exec.
    subprocess.run(["true"], preexec_fn=lambda: None, check=True)
    forked.set()
    thread.join(60)

    before, after = ports
    assert after == before
