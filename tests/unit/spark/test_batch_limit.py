"""What readers are told of the size of batches, through a file."""

from __future__ import annotations

import threading
from pathlib import Path

from drivetrain.config import Config
from drivetrain.runtime.running_config import RunningConfig
from drivetrain.spark.measure.batch_limit import FILE, BatchLimit, limited

CONFIG = {"run.max-batch-bytes": "100 MiB", "run.min-batch-bytes": "1 MiB", "run.batch-target": "10 s"}


def limit(directory: Path) -> BatchLimit:
    config = RunningConfig(directory, Config.load(None, {}, CONFIG))
    return BatchLimit(directory, {"a": 100 << 20}, config)


def test_without_a_measurement_a_batch_is_as_large_as_it_may_be(tmp_path: Path) -> None:
    assert limited(1000, str(tmp_path / FILE)) == 1000
    assert limited(1000, None) == 1000
    assert limited(0, str(tmp_path / FILE)) == 0
    limit(tmp_path).record([1.0], 9_000)
    assert not (tmp_path / FILE).exists()


def test_a_batch_that_took_too_long_makes_the_next_one_smaller_and_a_restart_remembers(
    tmp_path: Path,
) -> None:
    measured = limit(tmp_path)
    measured.record([0.2, 1.0], 40_000)
    assert limited(1000, str(tmp_path / FILE)) == 250
    assert limit(tmp_path).share == 0.25
    measured.record([0.25], 10_000_000)
    assert limited(100 << 20, str(tmp_path / FILE)) == 1 << 20
    for _ in range(8):
        measured.record([measured.share], 100)
    assert limited(1000, str(tmp_path / FILE)) == 1000


def test_an_empty_file_after_a_power_cut_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("")
    assert limited(1000, str(tmp_path / FILE)) == 1000
    assert limit(tmp_path).share == 1.0


def test_limits_that_change_while_batches_run_hold_for_the_next_one(tmp_path: Path) -> None:
    measured, changes = limit(tmp_path), RunningConfig(tmp_path, Config.load(None, {}, CONFIG))
    changes.change({"run.max-batch-bytes": "25 MiB", "run.batch-target": "1 s"})
    assert limited(100 << 20, str(tmp_path / FILE)) == 100 << 20
    measured.look()
    assert limited(100 << 20, str(tmp_path / FILE)) == 25 << 20
    measured.record([0.25], 2_000)
    assert limited(100 << 20, str(tmp_path / FILE)) == 12.5 * (1 << 20)
    changes.change({}, ["run.max-batch-bytes", "run.batch-target"])
    measured.look()
    for _ in range(4):
        measured.record([measured.share], 100)
    assert limited(1000, str(tmp_path / FILE)) == 1000


def test_limits_change_in_one_thread_while_batches_are_measured_in_another(tmp_path: Path) -> None:
    measured, changes = limit(tmp_path), RunningConfig(tmp_path, Config.load(None, {}, CONFIG))
    is_over = threading.Event()

    def change() -> None:
        for number in range(200):
            changes.change({"run.max-batch-bytes": f"{20 + number % 2 * 40} MiB"})
            measured.look()
        is_over.set()

    changing = threading.Thread(target=change)
    changing.start()
    while not is_over.is_set():
        measured.record([measured.share], 20_000)
        measured.record([measured.share], 100)
    changing.join()
    assert 1 / 100 <= measured.share <= 0.6
