"""Runs a peer in a process of its own, which tells when its job begins and ends.

CPU seconds are those of the peer's whole process tree from `begin` to `end`, read from outside, the same way
for all. A peer that works through Kafka makes the broker work, too: `broker_cpu_s` tells how much.

Called by `peers`, `field_peers`, `field_topics` and the jobs of the field. The other side are
`peers_python/meter.py` and `peers_java/Meter.java`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import psutil

from benchmarks.measure import Timed

TIMEOUT_S = 850


def cores() -> int:
    """How many cores there are to use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_s(process: psutil.Process | None) -> float:
    """CPU seconds of a process so far, without its children; 0 of none."""
    if process is None:
        return 0.0
    times = process.cpu_times()
    return times.user + times.system


def run(
    command: list[str], given: Mapping[str, Any], broker: psutil.Process | None = None
) -> dict[str, float]:
    """Run a peer's process with the arguments `given`; its figures."""
    left_out = ("PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON")
    process = subprocess.Popen(
        [*command, json.dumps({"cores": cores(), **given})],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key not in left_out},
    )
    began_s = time.perf_counter()
    guard = threading.Timer(TIMEOUT_S, process.kill)
    guard.start()
    try:
        _await(process, "begin")
        start_s = time.perf_counter() - began_s
        broker_before_s = cpu_s(broker)
        with Timed() as timed:
            _go_on(process)
            _await(process, "end")
        broker_s = cpu_s(broker) - broker_before_s
        _go_on(process)
        assert process.stdout is not None
        process.stdout.read()
        if process.wait():
            raise RuntimeError(f"{command[-1]} ended with {process.returncode}")
    finally:
        guard.cancel()
        _end(process)
    of_broker = {} if broker is None else {"broker_cpu_s": broker_s}
    return timed.figures(start_s=start_s, **of_broker)


def _await(process: subprocess.Popen[str], what: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == what:
            return
        print(line, end="", file=sys.stderr)
    raise RuntimeError(f"the peer ended before its {what}, or took more than {TIMEOUT_S} s")


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _end(process: subprocess.Popen[str]) -> None:
    """End what is left of a peer that failed, and the processes that it started."""
    try:
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in tree:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()
