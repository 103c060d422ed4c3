"""Each delivery mode gives what it says when the process is killed in the middle of a batch."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from harness import Harness, at, events

from drivetrain import Application, agg, windows
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.runtime.channel.store import ChannelStore
from drivetrain.spark.batch.skipped_batches import skipped_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("exactly once", "at least once", "at most once")

SCRIPT = """
import json, sys, threading, time
from pathlib import Path
from drivetrain import Application, run, sinks, sources
from drivetrain.config import Config
from drivetrain.spark.session.spark_session import session

here, modes = Path(sys.argv[1]), sys.argv[2:]
keys = {
    "state.dir": str(here / "state"), "run.max-batch-rows": "100",
    "spark.master": "local[2]", "spark.driver-memory": "1 GiB",
}

def build(mode):
    place = here / mode
    place.mkdir(exist_ok=True)

    def tell(table, batch_id):
        ids = table.column("id").to_pylist()
        parts = (ids[:len(ids) // 2], ids[len(ids) // 2:])
        for part in parts:
            with open(place / "told", "a") as file:
                file.writelines(f"{id}\\n" for id in part)
            if batch_id == 2 and not (here / "again").exists():
                (place / "halves").write_text(json.dumps(parts))
                (place / "in-the-middle").touch()
                time.sleep(600)

    app = Application(mode.replace(" ", "-"), delivery=mode)
    made = app.read(sources.generate(rows=400), name="made").filter("id >= 0", name="all")
    made.sink(sinks.parquet(place / "files"), name="to-files")
    made.sink(sinks.batches(tell), name="to-function")
    return app

config = Config.load(None, {}, keys)
session(config)
threads = [threading.Thread(target=run, args=(build(mode), config)) for mode in modes]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.timeout(600)
def test_every_mode_keeps_its_word_when_a_batch_is_killed(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modes.py").write_text(SCRIPT)
    line = [str(tmp_path / "modes.py"), str(tmp_path), *MODES]
    process = subprocess.Popen(
        [sys.executable, *line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    deadline = time.monotonic() + 200
    while not all((tmp_path / mode / "in-the-middle").exists() for mode in MODES):
        if process.poll() is not None or time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(process.communicate()[0].decode())
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (tmp_path / "again").touch()
    monkeypatch.setattr(sys, "argv", line)
    runpy.run_path(line[0])  # what goes on needs no process of its own

    files, told = {}, {}
    for mode in MODES:
        parts = sorted(map(str, (tmp_path / mode / "files").glob("*.parquet")))
        files[mode] = Counter(ds.dataset(parts).to_table().column("id").to_pylist())
        told[mode] = Counter(map(int, (tmp_path / mode / "told").read_text().split()))
        assert files[mode] == Counter(range(400)), "the batch was published before the kill, or after it"
    halves = {mode: json.loads((tmp_path / mode / "halves").read_text()) for mode in MODES}
    for mode in MODES[:2]:  # a function takes nothing back
        assert told[mode] == Counter(range(400)) + Counter(halves[mode][0])
    first, second = halves["at most once"]
    assert told["at most once"] == Counter(range(400)) - Counter(second)
    for mode in MODES:
        (home,) = (tmp_path / "state").glob(mode.replace(" ", "-") + "-*")
        (fragment,) = (home / "fragments").iterdir()
        known = skipped_batches(fragment)
        assert (known.batches, known.messages) == (
            (1, len(first + second)) if mode == "at most once" else (0, 0)
        )


class CrashError(RuntimeError):
    """What a fragment meets when it tells its subscribers of its last batch."""


@pytest.mark.nightly("simulated by test_attempts_under_faults")
def test_crashes_when_subscribers_are_told_of_the_last_windows_lose_none(
    drive: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First nobody has been told, in the next run one of two."""
    app = Application("last-windows")
    rows = [(at(second * 1000), second) for second in range(100)]
    timed = events(app, rows, "ts timestamp, n bigint")
    short = timed.window(windows.tumbling("10 s")).aggregate(step="short", n=agg.sum("n"))
    for name, length in (("minutes", "1 min"), ("halves", "30 s")):
        drive.sink(short.window(windows.tumbling(length)).aggregate(step=name, n=agg.sum("n")), name)
    append, ends, calls = ChannelStore._append, [], []
    crashes_at = [1, 3]  # the only one of the first run, and the second of the second run

    def failing(store: ChannelStore, *given: Any) -> Any:
        batch_id, _, clock_ms, *_ = given
        if store.fragment == "short" and batch_id is not None and clock_ms == FINAL_CLOCK_MS:
            calls.append(store.uri)
            if len(calls) in crashes_at:
                raise CrashError("before the entry is there")
            ends.append(store.uri)
        return append(store, *given)

    monkeypatch.setattr(ChannelStore, "_append", failing)
    for told in range(2):
        with pytest.raises(Exception, match="before the entry is there"):
            drive.run(app)
        assert len(set(ends)) == told
    assert drive.run(app).outcome is RunOutcome.FINISHED
    assert len(set(ends)) == 2
    for name in ("minutes", "halves"):
        assert sum(row["n"] for row in drive.rows(name)) == sum(range(100))
