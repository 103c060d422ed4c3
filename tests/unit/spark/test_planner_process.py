"""A process that plans a source ends without a word when Spark closes its connection."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.serializers import CPickleSerializer, write_int, write_with_length

from drivetrain.api.sources import TextFiles
from drivetrain.connectors.files.file_reader import FileDataSource, ReadPlan
from drivetrain.spark.channel.clock_source import ClockSource
from drivetrain.spark.connector.planner_process import RUNNER


def sources(directory: str) -> Iterator[Any]:
    yield ClockSource({"path": f"{directory}/clock"})
    yield FileDataSource({"plan": ReadPlan(TextFiles(path=directory), directory, 1, 1).to_json()})


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("lost", ["between two calls", "in the middle of a call"])
def test_a_closed_connection_ends_it_without_a_traceback(tmp_path: Any, number: int, lost: str) -> None:
    source = list(sources(str(tmp_path)))[number]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        env = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
        }
        process = subprocess.Popen([sys.executable, "-m", RUNNER], env=env, stderr=subprocess.PIPE, text=True)
        spark, _ = listening.accept()
    stream = spark.makefile("rwb")
    read_text(stream)
    for text in ("ok", f"{sys.version_info.major}.{sys.version_info.minor}", str(tmp_path)):
        write_with_length(text.encode(), stream)
    write_int(0, stream)
    write_with_length(CPickleSerializer().dumps(source), stream)
    write_with_length(b'{"type":"struct","fields":[]}', stream)
    write_int(100, stream)
    stream.flush()
    pid, ready = struct.unpack("!ii", stream.read(8))
    assert (pid, ready) == (process.pid, 0)
    if lost == "in the middle of a call":
        stream.write(struct.pack("!i", 1_000)[:2])
        stream.flush()
    # As when Java closes a socket that it has not read to the end.
    spark.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()
    spark.close()
    _, told = process.communicate(timeout=60)
    assert told == ""


def read_text(stream: Any) -> str:
    (length,) = struct.unpack("!i", stream.read(4))
    return str(stream.read(length), "utf-8")
