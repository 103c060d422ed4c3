"""A real Spark cluster: a standalone master and two workers run the flights of examples/flights.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyspark
import pytest
from executor_world import family, kill_all

from free_ports import free_port

FLIGHTS = Path(__file__).resolve().parents[3] / "examples" / "flights.py"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


def wait_for(condition: Callable[[], bool], what: Callable[[], str], within_s: float = 180) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The address of a Spark master with two registered workers, of one core and one gibibyte each."""
    port = free_port()
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        with open(log, "wb") as output:
            started.append(
                subprocess.Popen(
                    [str(spark_class), *arguments],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "SPARK_LOCAL_DIRS": str(tmp_path / name)},
                )
            )
        return log

    address = f"spark://127.0.0.1:{port}"
    local = ("--host", "127.0.0.1", "--webui-port", "0")
    try:
        master = start("master", MASTER, "--port", str(port), *local)
        wait_for(lambda: "Starting Spark master" in master.read_text(), master.read_text)
        for n in range(2):
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work-{n}"))
            start(f"worker-{n}", WORKER, *local, *room, address)
        wait_for(lambda: master.read_text().count("Registering worker") == 2, master.read_text)
        yield address
    finally:
        for process in reversed(started):
            for member in family(process)[:0:-1]:
                member.kill()
            kill_all(process)


def fly(directory: Path, master: str) -> dict[str, Any]:
    """Run the flights with a Spark master; returns what the command told."""
    command = [
        sys.executable, "-m", "drivetrain.cli", "run", str(FLIGHTS), "--json",
        "--set", f"spark.master={master}", "--set", f"data={directory / 'data'}",
        "--set", f"output={directory / 'out'}", "--state-dir", str(directory / "state"),
        "--set", "spark.driver-memory=1 GiB", "--set", "spark.conf.spark.driver.host=127.0.0.1",
        "--set", "spark.shuffle-partitions=2",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def rows(out: Path, name: str, format: str) -> Counter[str]:
    """The rows of an output, floats rounded: sums of them depend on the order of the terms."""
    files = sorted(map(str, (out / name).glob(f"*.{format}")))
    assert files, f"{name} has no output"
    table = pa.concat_tables(
        [ds.dataset(f, format=format).to_table() for f in files], promote_options="default"
    )
    return Counter(repr(_rounded(row)) for row in table.to_pylist())


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 6)
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case _:
            return value


@pytest.mark.timeout(1800)
def test_the_flights_on_a_standalone_cluster_are_those_of_this_machine(
    tmp_path: Path, standalone: str
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    on_cluster = fly(there, standalone)
    executors = list(tmp_path.glob("work-*/app-*/*/stderr"))
    assert len(executors) == 2, "both of Spark's workers took part"
    (here / "data").parent.mkdir(parents=True)
    (here / "data").symlink_to(there / "data")
    undisturbed = fly(here, "local[2]")

    for name, format in (("very-late", "csv"), ("airports", "parquet"), ("worst-carriers", "json")):
        assert rows(there / "out", name, format) == rows(here / "out", name, format), name
    told = [{o["processor"]: o["messages"] for o in r["outputs"]} for r in (on_cluster, undisturbed)]
    assert told[0] == told[1]
    assert on_cluster["outcome"] == "finished"
