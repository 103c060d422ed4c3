from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil

from drivetrain.spark.session.python_launcher import socket_settings

NOT_A_VERSION = b"none"
"""What a worker reads instead of Python's version: it has an error to send."""


def said_of_a_closed_connection(module: str, folder: Path) -> str:
    """What the daemon of `module` says when a connection is closed before its worker has sent an error."""
    env = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", module, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as daemon:
        assert daemon.stdout is not None
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        place = daemon.stdout.read(length).decode()
        with socket.socket(socket.AF_UNIX) as java:
            java.connect(place)
            (worker,) = struct.unpack("!i", java.recv(4))
            java.shutdown(socket.SHUT_RD)
            java.sendall(struct.pack("!ii", 0, len(NOT_A_VERSION)) + NOT_A_VERSION)
        deadline = time.monotonic() + 60
        while psutil.pid_exists(worker):
            assert time.monotonic() < deadline, "the worker does not end"
            time.sleep(0.05)
        end = daemon.communicate()[1]
    return end.decode()


def test_a_worker_whose_connection_is_closed_ends_without_a_word() -> None:
    folder = Path(socket_settings()["spark.python.unix.domain.socket.dir"])
    assert "BrokenPipeError" in said_of_a_closed_connection("pyspark.daemon", folder), "Spark's own"
    assert said_of_a_closed_connection("drivetrain.spark.session.worker_daemon", folder) == ""
