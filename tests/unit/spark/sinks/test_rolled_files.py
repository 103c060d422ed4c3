"""Files of many batches: when they are closed, what readers see before, and what a SIGKILL leaves."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_frame import frame, rows

from drivetrain import published_files
from drivetrain.api import sinks
from drivetrain.connectors.files import rolling
from drivetrain.connectors.files.staging import Target, join_files
from drivetrain.connectors.opening import open_sink
from drivetrain.errors import DiskFullError, GraphError
from drivetrain.spark.connector.sink import SinkContext
from nightly_run import is_nightly

LONG_AGO_S = 1_000_000_000


def opened(directory: Path, roll: Any = "10 min", compression: str | None = None, **kwargs: Any) -> Any:
    sink = sinks.parquet(directory / "out", roll=roll, compression=compression)
    return open_sink(sink, SinkContext("app-1", "a", str(directory / "state"), **kwargs))


def seen(directory: Path) -> dict[str, list[int]]:
    files = sorted((directory / "out").glob("part-*"))
    return {file.name: pq.read_table(file)["id"].to_pylist() for file in files}


def make_old(directory: Path) -> None:
    for file in (directory / "out" / "_drivetrain" / "rolling").iterdir():
        os.utime(file, (LONG_AGO_S, LONG_AGO_S))


def test_batches_wait_until_their_file_is_old_enough_and_become_one(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    assert [sink.write(rows(number), number) for number in range(3)] == [1, 1, 1]
    assert seen(tmp_path) == {}
    assert sink.write(rows(2), 2) == 0, "it was written before"
    make_old(tmp_path)
    sink.roll(1)
    assert seen(tmp_path) == {"part-a-00000000-to00000001.parquet": [0, 1]}, "Spark may run batch 2 again"
    sink.roll(2)
    assert seen(tmp_path)["part-a-00000002.parquet"] == [2]
    assert list((tmp_path / "out" / "_drivetrain" / "rolling").iterdir()) == []
    told = published_files(tmp_path / "out")
    assert [Path(path).name for path in told[str(tmp_path / "out")]] == list(seen(tmp_path))


@pytest.mark.parametrize("step_s", [-3_600, -30, 0])
def test_results_wait_no_longer_when_the_clock_of_the_machine_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    """Files have the time of the machine when they are written; then its clock is set back."""
    passed_s, begin_s, begin_ns = 0.0, time.monotonic(), time.time_ns()
    clock = SimpleNamespace(
        monotonic=lambda: begin_s + passed_s, time_ns=lambda: begin_ns + int((passed_s + step_s) * 1e9)
    )
    monkeypatch.setattr(rolling, "time", clock)
    sink = opened(tmp_path)
    for number, passed_s in enumerate((0.0, 300.0, 598.0)):  # noqa: B007 - the clock reads it
        sink.write(rows(number), number)
    sink.roll(2)
    assert seen(tmp_path) == {}, "the oldest has waited for less than ten minutes"
    passed_s = 601.0
    sink.roll(2)
    assert list(seen(tmp_path).values()) == [[0, 1, 2]]


def test_a_process_shows_what_waited_before_it_though_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).write(rows(1), 0)
    passed_s, begin_ns = 0.0, time.time_ns() - 3_600 * 10**9
    clock = SimpleNamespace(monotonic=lambda: passed_s, time_ns=lambda: begin_ns + int(passed_s * 1e9))
    monkeypatch.setattr(rolling, "time", clock)
    sink = opened(tmp_path)
    for passed_s in (0.0, 599.0):  # noqa: B007 - the clock reads it
        sink.roll(0)
        assert seen(tmp_path) == {}
    passed_s = 600.0
    sink.roll(0)
    assert list(seen(tmp_path).values()) == [[1]]


def test_a_file_is_closed_when_it_is_large_enough(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll=("1 kB", "1 h"))
    for number in range(6):
        sink.write(frame(id=pa.array(range(number * 10, number * 10 + 10), pa.int64())), number)
    files = seen(tmp_path)
    assert 1 < len(files) < 5
    sink.roll(5, ends=True)
    assert sorted(value for values in seen(tmp_path).values() for value in values) == list(range(60))
    assert {name: files[name] for name in files} == files, "a file that readers see does not change"


def test_another_process_goes_on_with_what_waits(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    sink = opened(tmp_path)
    sink.validate()
    assert sink.write(rows(1), 0) == 0
    sink.write(rows(2), 1)
    sink.roll(1, ends=True)
    assert seen(tmp_path) == {"part-a-00000000-to00000001.parquet": [1, 2]}


def test_files_end_where_columns_or_lives_change(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(rows(1), 0)
    sink.write(frame(id=pa.array([2], pa.int64()), more=pa.array(["x"])), 1)
    second = opened(tmp_path, life=2)
    second.write(rows(3), 5)
    second.roll(5, ends=True)
    assert list(seen(tmp_path).values()) == [[1], [2], [3]]


def test_a_sink_that_rolls_no_longer_shows_what_waited(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    sink = opened(tmp_path, roll=None)
    assert sink.write(rows(1), 0) == 0
    sink.write(rows(2), 1)
    assert list(seen(tmp_path).values()) == [[1], [2]]


def test_what_waits_of_a_state_that_is_gone_is_never_seen(tmp_path: Path) -> None:
    opened(tmp_path).write(rows(1), 0)
    sink = open_sink(
        sinks.parquet(tmp_path / "out", roll="1 h"), SinkContext("app-1", "a", str(tmp_path / "new"))
    )
    sink.validate()
    sink.roll(ends=True)
    assert seen(tmp_path) == {}
    assert sink.write(rows(2), 0) == 1
    sink.roll(0, ends=True)
    assert list(seen(tmp_path).values()) == [[2]]


def test_a_committed_transaction_waits_for_its_file_and_is_not_forgotten(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for number in range(4):
        sink.prepare(rows(number), number)
    assert sink.publish(1, {"a": 2}, {"a": sink}) == {"a": 3}
    assert seen(tmp_path) == {}
    assert sink.prepared() == [3]
    again = opened(tmp_path)
    again.abort(3)  # of a transaction that was not committed
    again.roll(ends=True)
    assert seen(tmp_path) == {"part-a-00000000-to00000002.parquet": [0, 1, 2]}
    assert again.prepare(rows(2), 2) == 0


def test_a_transaction_of_many_batches_is_one_file(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll=None)
    for number in range(3):
        sink.prepare(rows(number), number)
    sink.publish(1, {"a": 2}, {"a": sink})
    assert seen(tmp_path) == {"part-a-00000000-to00000002.parquet": [0, 1, 2]}


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_files_of_lines_keep_one_header(tmp_path: Path, compression: str | None) -> None:
    pack = gzip.compress if compression else bytes
    for number in range(3):
        (tmp_path / str(number)).write_bytes(pack(f"id,name\n{number},x\n".encode()))
    target = Target(str(tmp_path), "csv", b"id,name\n", compression)
    join_files([str(tmp_path / str(number)) for number in range(3)], 8, target, str(tmp_path / "whole"))
    whole = (tmp_path / "whole").read_bytes()
    assert (gzip.decompress(whole) if compression else whole) == b"id,name\n0,x\n1,x\n2,x\n"


def test_small_row_groups_become_larger_ones(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for number in range(20):
        sink.write(rows(number), number)
    sink.roll(19, ends=True)
    (name,) = seen(tmp_path)
    assert pq.ParquetFile(tmp_path / "out" / name).num_row_groups == 1


@pytest.mark.parametrize("roll", ["10", "soon", ("1 h", "2 h"), ()])
def test_a_limit_that_cannot_be_read_is_refused(roll: Any) -> None:
    with pytest.raises(GraphError, match="when to close files"):
        sinks.parquet("out", roll=roll)


def test_sinks_that_publish_together_do_not_roll() -> None:
    with pytest.raises(GraphError, match="each checkpoint"):
        sinks.json("out/a", together="out", roll="1 h")


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
from arrow_frame import ArrowFrame, frame
from drivetrain.api import sinks
from drivetrain.connectors.files import output_ownership, partitioned_files, rolling
from drivetrain.connectors.opening import open_sink
from drivetrain import durable
from drivetrain.runtime import whole_files
from drivetrain.spark.measure import small_batches
from drivetrain.spark.connector.sink import SinkContext

small_batches.small_table = ArrowFrame.toArrow
BATCHES, OPTIONS = 4, eval(sys.argv[3])

def rows(number):
    return frame(id=pa.array([2 * number, 2 * number + 1], pa.int64()), p=pa.array(["x", "y"]))

rows(1).schema.json()  # imports what it needs, once

def counted(call, left):
    def told(*args, **kwargs):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return call(*args, **kwargs)
    return told

def run(directory, steps):
    # What Spark does: the batch that was not committed runs again.
    left = [steps]
    for module, names in (
        (whole_files, ("sync",)), (durable.os, ("replace", "fsync")), (rolling, ("join_files",)),
        (output_ownership.OutputDirectory, ("publish",)), (rolling.Rolling, ("_delete_parts",)),
        (partitioned_files, ("sync", "_create_directory")),
        (partitioned_files.PartitionedFiles, ("show", "finish", "_write")),
    ):
        for name in names:
            setattr(module, name, counted(getattr(module, name), left))
    committed = directory / "committed"
    first = len(committed.read_text()) if committed.exists() else 0
    sink = open_sink(sinks.parquet(directory / "out", **OPTIONS),
                     SinkContext("app-1", "a", str(directory / "state")))
    sink.validate()
    for number in range(first, BATCHES):
        sink.write(rows(number), number)
        with open(committed, "a") as file:
            file.write("x")
    sink.roll(BATCHES - 1, ends=True)

def seen(directory):
    files = sorted((directory / "out").glob("**/*.parquet"))
    return sorted(v for f in files for v in pq.ParquetFile(f).read()["id"].to_pylist())

def forked(call, *args):
    pid = os.fork()
    if pid == 0:
        call(*args)
        os._exit(0)
    return os.waitpid(pid, 0)[1]

def expect(directory, whole):
    found = seen(directory)
    ok = found == list(range(2 * BATCHES)) if whole else len(set(found)) == len(found)
    os._exit(0 if ok else 1)

step, killed = 0, True
while killed:
    directory = Path(sys.argv[1]) / str(step)
    directory.mkdir()
    killed = forked(run, directory, step) == signal.SIGKILL
    assert forked(expect, directory, False) == 0, f"twice after a kill at step {step}"
    if killed:
        forked(run, directory, step // 2)  # perhaps killed again
        assert forked(run, directory, 10**9) == 0
    assert forked(expect, directory, True) == 0, f"not once after a kill at step {step}"
    step += int(sys.argv[4])
print(step)
"""


@pytest.mark.parametrize(
    "options",
    [
        {"roll": ("2 kB", "1 h")},
        {"partition_by": "p"},
        pytest.param(
            {"roll": ("2 kB", "1 h"), "partition_by": "p"},
            marks=pytest.mark.nightly("the two before, in one sink"),
        ),
    ],
    ids=["rolled", "partitioned", "both"],
)
def test_wherever_a_process_is_killed_every_message_is_in_one_file(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path), str(Path(__file__).parent), repr(options)]
    command.append("1" if is_nightly() else "4")  # how many steps further it is killed next
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > (30 if is_nightly() else 8)


def test_no_room_is_told_as_such_and_what_waits_is_shown_later(tmp_path: Path) -> None:
    sink = opened(tmp_path, compression="none")
    for number in range(5):
        sink.write(frame(id=pa.array(range(number * 300, number * 300 + 300), pa.int64())), number)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))  # no file may become larger
    try:
        with pytest.raises(DiskFullError) as caught:
            sink.roll(4, ends=True)
        with pytest.raises(DiskFullError):
            sink.write(frame(id=pa.array(range(100_000), pa.int64())), 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.exit_code == 4
    assert seen(tmp_path) == {}
    assert list((tmp_path / "out" / "_drivetrain").rglob("whole")) == []
    again = opened(tmp_path, compression="none")
    assert again.write(rows(-1), 5) == 1
    again.roll(5, ends=True)
    assert sorted(value for values in seen(tmp_path).values() for value in values) == list(range(-1, 1_500))
