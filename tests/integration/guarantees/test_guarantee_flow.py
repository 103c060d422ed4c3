"""A subscriber a hundred times slower than its source: memory and disk stay bounded, nothing is lost.

`TESTS_SLOW_S` says for how many seconds the slow sink is watched: a few, or two minutes at night.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from harness import Harness

from drivetrain import Application, sinks, sources
from drivetrain.core.channel.channel_progress import ChannelProgress
from drivetrain.core.job.run_progress import FragmentProgressed, ProgressEvent, RunOutcome
from drivetrain.spark.flow.flow_book import ChannelFullError
from nightly_run import is_nightly

WATCHED_S = float(os.environ.get("TESTS_SLOW_S", "120" if is_nightly() else "2"))
BATCH_ROWS = 2_000
WINDOW = {"channel__window_messages": "6_000", "run__max_batch_rows": str(BATCH_ROWS)}
MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30


class Watcher:
    """Stops the run when `enough` says so, and looks at everything that it may not exceed meanwhile."""

    def __init__(self, state: Path, enough: Callable[[Watcher], bool]) -> None:
        self.state = state
        self.enough = enough
        self.channels: dict[str, ChannelProgress] = {}
        self.rows: dict[str, int] = {}
        self.blocked_by: set[str] = set()
        self.most_unacknowledged = 0
        self.most_disk = 0
        self.memory: list[int] = []
        self.began_s = time.monotonic()
        self._looked_s = 0.0

    def on_event(self, event: ProgressEvent) -> None:
        if not isinstance(event, FragmentProgressed):
            return
        self.rows[event.fragment] = event.rows_total
        if event.blocked_by is not None:
            self.blocked_by.add(event.blocked_by)
        for channel in event.channels:
            channel.check()
            self.channels[channel.channel] = channel
            self.most_unacknowledged = max(self.most_unacknowledged, channel.unacknowledged_rows)

    def stop_requested(self) -> bool:
        if time.monotonic() - self._looked_s > 1:
            self._looked_s = time.monotonic()
            self.memory.append(_memory())
            self.most_disk = max(self.most_disk, _size(self.state))
        return self.enough(self)


def _memory() -> int:
    """Of this process and all that it has started, in bytes."""
    here = psutil.Process()
    return sum(_rss(process) for process in [here, *here.children(recursive=True)])


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has ended just now
        return 0


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*.arrow"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # trimmed just now
            continue
    return total


def slow_while(flag: Path) -> Callable[[int], int]:
    """What takes two milliseconds a message as long as the file is there."""
    path = str(flag)

    def slowly(id: int) -> int:
        import os
        import time

        if os.path.exists(path):
            time.sleep(0.002)
        return id

    return slowly


def application(drive: Harness, rows: int) -> Application:
    """A generator, two cuts, and behind one of them a slow function."""
    app = Application("pressure")
    made = app.read(sources.generate(rows=rows), name="made")
    slow = slow_while(drive.directory / "be-slow")
    behind = made.filter("id >= 0", name="left").cut()
    drive.sink(behind.with_columns(same=slow, step="slowly").select("id", "same"), "slow")
    drive.sink(made.filter("id >= 0", name="right").cut().select("id", step="quickly"), "quick")
    return app


def ids(drive: Harness, name: str) -> list[int]:
    return sorted(row["id"] for row in drive.rows(name))


@pytest.mark.timeout(900)
def test_a_slow_sink_holds_its_source_back_within_the_window_and_nothing_is_lost(drive: Harness) -> None:
    """Beside it another one goes ahead, by the window."""
    rows = int(10_000 + WATCHED_S * 1_500)
    (drive.directory / "be-slow").touch()
    ahead: list[int] = []

    def is_ahead(watcher: Watcher) -> bool:
        ahead.append(watcher.rows.get("quickly", 0) - watcher.rows.get("slowly", 0))
        quick = watcher.channels.get("right--quickly")
        is_enough = "slowly" in watcher.blocked_by and time.monotonic() > watcher.began_s + WATCHED_S
        return is_enough and quick is not None and quick.lag_rows == 0 < ahead[-1]

    watcher = Watcher(drive.directory / "state", is_ahead)
    before = _memory()  # whatever the tests before this one have left
    result = drive.run(application(drive, rows), listener=watcher, **WINDOW)
    assert result.outcome is RunOutcome.STOPPED  # though its producer waited for room
    assert watcher.blocked_by == {"slowly"}
    assert max(ahead) >= 6_000 - BATCH_ROWS
    assert watcher.most_unacknowledged < 6_000 + BATCH_ROWS
    assert 0 < watcher.most_disk < MEBIBYTE
    # Spark takes at most 1 GiB of heap, whenever it likes; the rest is what its Python processes need.
    assert max(watcher.memory) - before < 2 * GIBIBYTE
    (drive.directory / "be-slow").unlink()
    assert drive.run(application(drive, rows)).outcome is RunOutcome.FINISHED
    assert ids(drive, "slow") == ids(drive, "quick") == list(range(rows))


def test_a_channel_that_may_keep_no_more_fails_loudly_when_it_is_to(drive: Harness) -> None:
    (drive.directory / "be-slow").touch()
    with pytest.raises(ChannelFullError) as raised:
        drive.run(
            application(drive, 20_000),
            channel__max_bytes="20 KiB",
            channel__when_full="fail",
            run__max_batch_rows=str(BATCH_ROWS),
        )
    told = str(raised.value)
    assert "channel left--slowly of fragment" in told
    assert "fragment slowly does not keep up" in told
    assert "at most 20 KiB" in told
    assert "messages" in str(raised.value.got)


@pytest.mark.nightly("test_persistent_tasks reaches what it reaches")
def test_a_batch_takes_no_more_of_a_source_than_it_may_in_messages_and_bytes(drive: Harness) -> None:
    lines = [f'{{"n": "{n}"}}' for n in range(1_000, 2_000)]
    for number in range(10):
        (drive.directory / "native").mkdir(exist_ok=True)
        part = lines[number * 100 : (number + 1) * 100]
        (drive.directory / "native" / f"{number}.txt").write_text("".join(f"{line}\n" for line in part))
    (drive.directory / "ours.jsonl").write_text("".join(f"{line}\n" for line in lines))
    taken: dict[str, list[int]] = defaultdict(list)
    app = Application("bounded")

    def noting(name: str) -> Callable[[pa.Table, int], None]:
        def note(batch: pa.Table, _batch_id: int) -> None:
            taken[name].append(batch.num_rows)

        return note

    for name, source in {
        "native": sources.text(drive.directory / "native"),
        "ours": sources.json(drive.directory / "ours.jsonl", schema="n string"),
        "generated": sources.generate(rows=1_000),
        "items": sources.items([(n,) for n in range(1_000)], "n long"),
    }.items():
        app.read(source, name=name).sink(sinks.batches(noting(name)), name=f"{name}-out")
    keys = {"run__max_batch_bytes": "4 KiB", "run__min_batch_bytes": "1 KiB", "run__max_batch_rows": "150"}
    assert drive.run(app, **keys).outcome is RunOutcome.FINISHED
    line_bytes = len(lines[0]) + 1
    for name in ("native", "ours"):  # how many messages a file holds is known when it has been read
        assert sum(taken[name]) == 1_000
        assert (max(taken[name]) - 1) * line_bytes < 4 << 10  # a line belongs to where it begins
        assert len(taken[name]) < 15, "batches are not smaller than they need be"
    for name in ("generated", "items"):
        assert sum(taken[name]) == 1_000
        assert max(taken[name]) <= 150
