"""A fragment's state is lost or damaged: the application goes back to its last checkpoint, by itself."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batch_stops import StopAfterBatches, batches
from harness import Harness, at, ms

from drivetrain import Application, agg, sources, windows
from drivetrain.core.job.run_progress import NoticeGiven, ProgressEvent, RunOutcome
from drivetrain.errors import InputError
from drivetrain.runtime.checkpoints.transaction_file import CheckpointFiles
from drivetrain.spark.checkpoints.restoring import DAMAGED
from nightly_run import is_nightly

SECOND = 1000
SMALL = {"run__max_batch_rows": "40"}  # so many batches that a checkpoint is made long before the end
ROWS = [(at(i * 100), "abcd"[i % 4], i) for i in range(2000)]


class StopAtCheckpoint:
    """Asks to stop once so many transactions are committed and something is processed behind them."""

    def __init__(self, state: Path, txid: int) -> None:
        self.state = state
        self.txid = txid
        self.notices: list[str] = []

    def on_event(self, event: ProgressEvent) -> None:
        if isinstance(event, NoticeGiven):
            self.notices.append(event.text)

    def stop_requested(self) -> bool:
        for home in self.state.glob("*/checkpoints"):
            known = CheckpointFiles(home.parent).transaction()
            if known is not None and known.record is not None and known.record.txid >= self.txid:
                return True
        return False


def chained(drive: Harness) -> Application:
    """Windows behind windows: two stateful fragments, a channel, and a sink at each of them."""
    app = Application("chained")
    made = app.read(
        sources.generate(
            rows=len(ROWS),
            start="1970-01-01T00:00:00Z",
            every="100 ms",
            columns={"key": "element_at(array('a', 'b', 'c', 'd'), cast(id % 4 as int) + 1)"},
        )
    )
    short = made.group_by("key").window(windows.tumbling("10 s")).aggregate(step="short", n=agg.count())
    drive.sink(short, "short")
    long = short.group_by("key").window(windows.tumbling("1 min")).aggregate(step="long", n=agg.sum("n"))
    drive.sink(long, "long")
    return app


def check_output(drive: Harness) -> None:
    short = Counter((r["key"], ms(r["window_start"]), r["n"]) for r in drive.rows("short"))
    wanted: Counter[Any] = Counter((key, ms(ts) // 10_000 * 10_000) for ts, key, _ in ROWS)
    assert short == Counter((*group, n) for group, n in wanted.items())
    long = Counter((r["key"], ms(r["window_start"]), r["n"]) for r in drive.rows("long"))
    wanted = Counter((key, ms(ts) // 60_000 * 60_000) for ts, key, _ in ROWS)
    assert long == Counter((*group, n) for group, n in wanted.items())


def delete_checkpoint(fragment: Path) -> None:
    shutil.rmtree(fragment / "checkpoint")


def delete_commits(fragment: Path) -> None:
    for commit in (fragment / "checkpoint" / "commits").iterdir():
        commit.unlink()


class StopWithState(StopAtCheckpoint):
    """Asks to stop once there is a checkpoint, and a state that can be damaged."""

    def stop_requested(self) -> bool:
        return super().stop_requested() and any(map(has_state, self.state.glob("*/fragments/*")))


def has_state(fragment: Path) -> bool:
    """On a busy machine the second fragment may not have had a batch yet, or not before the checkpoint."""
    known = CheckpointFiles(fragment.parents[1]).transaction()
    assert known is not None
    assert known.record is not None
    is_saved = known.record.fragments[fragment.name].batch_id >= 0
    return is_saved and any((fragment / "checkpoint" / "state").rglob("[!.]*.changelog"))


def newest_state(fragment: Path) -> Path:
    files = [p for p in (fragment / "checkpoint" / "state").rglob("*.changelog") if p.name[0] != "."]
    return max(files, key=lambda path: (int(path.stem), path.stat().st_size))


def truncate_state(fragment: Path) -> None:
    path = newest_state(fragment)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_state(fragment: Path) -> None:
    path = newest_state(fragment)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def delete_state(fragment: Path) -> None:
    newest_state(fragment).unlink()


DAMAGES = [delete_checkpoint]  # and `truncate_state` in the test behind this one
if is_nightly():
    DAMAGES += [truncate_state, delete_commits, flip_state, delete_state]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.nightly("a restore that is interrupted, below, and the simulation of attempts")
def test_lost_state_takes_the_application_back_to_its_checkpoint(
    drive: Harness, damage: Callable[[Path], None]
) -> None:
    keys = {"checkpoint__mode": "on", "checkpoint__interval": "200 ms"}
    state = drive.directory / "state"
    stop = StopWithState(state, 1)
    first = drive.run(chained(drive), listener=stop, **keys, **SMALL)
    assert first.outcome is RunOutcome.STOPPED
    [home] = state.iterdir()
    fragments = [home / "fragments" / id for id in ("short", "long")]
    damage(random.Random(damage.__name__).choice([f for f in fragments if has_state(f)]))
    listener = StopAtCheckpoint(state, 1 << 40)
    second = drive.run(chained(drive), listener=listener, **keys)
    assert second.outcome is RunOutcome.FINISHED
    assert any("went back to checkpoint" in notice for notice in listener.notices), listener.notices
    known = CheckpointFiles(home).transaction()
    assert known is not None
    assert known.life == 2
    check_output(drive)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(
            None,
            marks=pytest.mark.nightly(
                "the same with a damage; test_shells_under_kills, at every change of a file"
            ),
        ),
        truncate_state,
    ],
    ids=["nothing of long yet", "truncate_state"],
)
def test_a_restore_that_is_interrupted_is_done_by_the_next_run(
    drive: Harness, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None] | None
) -> None:
    from drivetrain.spark.checkpoints import restoring

    keys = {"checkpoint__mode": "on", "checkpoint__interval": "200 ms"}
    state = drive.directory / "state"
    stop = StopAtCheckpoint(state, 0) if damage is None else StopWithState(state, 1)
    drive.run(chained(drive), listener=stop, **keys, **SMALL)
    [home] = state.iterdir()
    if damage is None:
        (home / "fragments" / "long" / DAMAGED).touch()
    else:
        damage(next(f for f in (home / "fragments" / id for id in ("long", "short")) if has_state(f)))
    restored: list[str] = []
    whole = restoring._restore

    def dies_after_the_first(plan: Any, fragment: Any, *rest: Any) -> None:
        if restored:
            raise KeyboardInterrupt
        whole(plan, fragment, *rest)
        restored.append(fragment.id)

    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_restore", dies_after_the_first)
        with pytest.raises(KeyboardInterrupt):
            drive.run(chained(drive), **keys)
    assert restored == ["short"]
    listener = StopAtCheckpoint(state, 1 << 40)
    drive.run(chained(drive), listener=listener, **keys)
    assert any("a restore was interrupted" in notice for notice in listener.notices), listener.notices
    check_output(drive)


@pytest.mark.nightly("test_restoring, without Spark")
def test_it_does_not_go_back_behind_results_that_were_published_without_checkpoints(drive: Harness) -> None:
    keys = {"checkpoint__mode": "on", "checkpoint__interval": "200 ms"}
    state = drive.directory / "state"
    drive.run(chained(drive), listener=StopWithState(state, 1), **keys, **SMALL)
    [home] = state.iterdir()
    stop = StopAfterBatches(state, "short", len(batches(home, "short")) + 12)
    drive.run(chained(drive), listener=stop, checkpoint__mode="off", **SMALL)
    checkpoint, aside = home / "fragments" / "short" / "checkpoint", drive.directory / "aside"
    checkpoint.rename(aside)
    for _ in range(2):
        with pytest.raises(InputError, match="no checkpoint has everything that was published"):
            drive.run(chained(drive), **keys)
    shutil.rmtree(checkpoint, ignore_errors=True)
    aside.rename(checkpoint)
    drive.run(chained(drive), **keys)
    check_output(drive)


def test_without_checkpoints_a_lost_state_is_an_error_and_no_result_is_missing(drive: Harness) -> None:
    state = drive.directory / "state"
    drive.run(chained(drive), listener=StopAfterBatches(state, "short", 6), **SMALL)
    [home] = state.iterdir()
    shown = len(drive.rows("short"))
    checkpoint, aside = home / "fragments" / "short" / "checkpoint", drive.directory / "aside"
    checkpoint.rename(aside)
    with pytest.raises(InputError, match="the state of fragment short is lost"):
        drive.run(chained(drive))
    assert len(drive.rows("short")) == shown
    shutil.rmtree(checkpoint, ignore_errors=True)
    aside.rename(checkpoint)
    drive.run(chained(drive))
    check_output(drive)
