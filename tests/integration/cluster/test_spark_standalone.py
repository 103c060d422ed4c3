"""A real Spark cluster: a standalone master and two workers run a small application.

In the nightly run (`DRIVETRAIN_SEEDS`) the flights of examples/flights.py as well.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyspark
import pytest
from executor_world import family, kill_all
from test_executor import write_events

from drivetrain import run
from drivetrain.code.application_file import load_application
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import UnavailableError
from free_ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLIGHTS = Path(__file__).resolve().parents[3] / "examples" / "flights.py"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"

SPREAD = """
from drivetrain import Application, agg, sinks, sources, windows
app = Application("spread")
def kept(message) -> bool:
    return message.n >= 0
events = app.read(sources.parquet(app.setting("input"))).event_time("ts", max_disorder="20 s")
groups = events.filter(kept).cut().group_by("key").window(windows.tumbling("10 s"))
short = groups.aggregate(step="short", n=agg.count(), total=agg.sum("n"))
short.sink(sinks.parquet(app.setting("output")), name="windows")
"""


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


def settings(directory: Path) -> dict[str, str]:
    return {"data": str(directory / "data"), "output": str(directory / "out")}


def run_there(directory: Path, file: Path, master: str, sets: dict[str, str]) -> dict[str, int]:
    """Run an application with a Spark master; returns the messages by output that the command told."""
    sets = {
        **sets,
        "spark.master": master,
        "spark.driver-memory": "1 GiB",
        "spark.conf.spark.driver.host": "127.0.0.1",
        "spark.shuffle-partitions": "2",
    }
    given = (text for name, value in sets.items() for text in ("--set", f"{name}={value}"))
    command = [sys.executable, "-m", "drivetrain.cli", "run", str(file), "--json", *given]
    command += ["--state-dir", str(directory / "state")]
    while True:
        done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
        # On a busy machine Spark gives up a Python process that is late: the same command goes on.
        if done.returncode != UnavailableError.exit_code or "did not start in time" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["outcome"] == "finished"
    return {output["processor"]: output["messages"] for output in told["outputs"]}


def require_both_workers(directory: Path) -> None:
    assert all(any(directory.glob(f"work-{n}/app-*/*/stderr")) for n in range(2))


def fly_here(directory: Path) -> dict[str, int]:
    """Run them on the Spark of this process; returns the messages by output."""
    config = Config.load(None, {}, {"state.dir": str(directory / "state")})
    result = run(load_application(str(FLIGHTS), settings(directory)), config)
    assert result.outcome is RunOutcome.FINISHED
    return {output.processor: output.messages for output in result.outputs}


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


@pytest.mark.nightly("six Java processes; our code asks only whether Spark is local, see test_session")
@pytest.mark.timeout(900)
def test_on_a_standalone_cluster_functions_channels_and_states_are_those_of_this_machine(
    tmp_path: Path, standalone: str
) -> None:
    wanted = write_events(tmp_path / "in", 2000, 4)
    (tmp_path / "spread.py").write_text(SPREAD)
    sets = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    run_there(tmp_path, tmp_path / "spread.py", standalone, sets)
    require_both_workers(tmp_path)
    files = sorted(map(str, (tmp_path / "out").glob("*.parquet")))
    found = ds.dataset(files).to_table().to_pylist()
    assert wanted == Counter(
        (row["key"], round(row["window_start"].timestamp()) // 10, row["n"], row["total"]) for row in found
    )


@pytest.mark.nightly("five fragments, twice")
@pytest.mark.timeout(1800)
def test_the_flights_on_a_standalone_cluster_are_those_of_this_machine(
    tmp_path: Path, standalone: str, spark: SparkSession
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    load_application(str(FLIGHTS), {"data": str(there / "data")})  # which writes the flights
    here.mkdir()
    (here / "data").symlink_to(there / "data")
    on_cluster = run_there(there, FLIGHTS, standalone, settings(there))
    require_both_workers(tmp_path)
    assert on_cluster == fly_here(here)
    for name, format in (("very-late", "csv"), ("airports", "parquet"), ("worst-carriers", "json")):
        assert rows(there / "out", name, format) == rows(here / "out", name, format), name
