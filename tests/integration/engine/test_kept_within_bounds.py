"""Files of many batches and dead letters, from the start of an application to its end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Harness

from drivetrain import Application, sinks, sources
from drivetrain.runtime.dead_letter_pages import newest_of
from drivetrain.spark.batch.read_dead_letters import dead_letter_stores
from nightly_run import some_by_day

FILES = 8


def application(directory: Path, name: str, roll: str, *, watch: bool = False) -> Application:
    app = Application(name)
    lines = app.read(sources.json(directory / "in", schema="n int", on_bad_record="dead_letter", watch=watch))
    lines.sink(sinks.json(directory / name, roll=roll), name="out")
    return app


def given(directory: Path) -> None:
    (directory / "in").mkdir()
    for number in range(FILES):
        good = "".join(json.dumps({"n": number * 3 + n}) + " " * 120 + "\n" for n in range(3))
        (directory / "in" / f"{number:03}.jsonl").write_text(good + f"bad {number}\n")


def shown(out: Path) -> list[list[int]]:
    files = sorted(out.glob("part-*"))
    return [[json.loads(line)["n"] for line in file.read_text().splitlines()] for file in files]


class Until:
    """Stops a run when its output is there."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._patience_s = time.monotonic() + 120

    def on_event(self, event: Any) -> None: ...

    def stop_requested(self) -> bool:
        return bool(shown(self._out)) or time.monotonic() > self._patience_s


@pytest.mark.parametrize("mode", some_by_day(["off", "on"], ["on"], "with checkpoints, by day"))
def test_many_batches_become_one_file_at_the_end_and_every_bad_line_is_kept_once(
    drive: Harness, mode: str
) -> None:
    given(drive.directory)
    app = application(drive.directory, f"bounded-{mode}", "1 h")
    small = {"run__max_batch_bytes": "1 KiB", "checkpoint__mode": mode}
    result = drive.run(app, **small)
    assert max(fragment.batch_id for fragment in result.fragments) > 1
    assert shown(drive.directory / f"bounded-{mode}") == [list(range(3 * FILES))]
    stores = dead_letter_stores(app, drive.config())
    assert [row["message"] for row in newest_of(stores, 5)] == [f"bad {n}" for n in range(FILES - 5, FILES)]
    assert sum(store.messages for store in stores) == FILES


@pytest.mark.nightly("other tests of this module reach what it reaches")
def test_a_file_that_is_old_enough_is_shown_though_nothing_more_comes(drive: Harness) -> None:
    given(drive.directory)
    out = drive.directory / "silent"
    drive.run(application(drive.directory, "silent", "300 ms", watch=True), listener=Until(out))
    assert sorted(n for file in shown(out) for n in file) == list(range(3 * FILES))
