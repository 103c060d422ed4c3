"""New fragments that also get the messages that were before them, on real Spark.

A model counts all messages by two hours; what the window's sink shows is compared with that, exactly.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter

import pytest
from harness import Harness
from killed_runs import ask_to_change, run_killed_at
from shop import Feed, Stream, marks, program, rows, shop, wait_until
from typer.testing import CliRunner

from drivetrain import start
from drivetrain.cli.main import app
from drivetrain.core.change.change_events import Outcome
from drivetrain.core.change.change_options import ChangeOptions
from drivetrain.core.change.change_stages import StageName
from drivetrain.core.change.change_state import RolledBackError
from drivetrain.crash_points import CrashPoint
from drivetrain.errors import UnavailableError, UserError
from drivetrain.runtime.control_requests import asked_state
from drivetrain.runtime.run_directory import RunDirectory

TIMEOUT = "5 min"
OF_A_WINDOW = 4
"""Messages in two hours."""
FROM = "2024-01-01T05:00"
"""In the third window, which therefore is not whole."""
FROM_MS = int(dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC).timestamp() * 1000)
FIRST = 3
"""The first window that is whole."""


def of_state(drive: Harness) -> RunDirectory:
    return RunDirectory(str(drive.directory / "state"), "shop", {})


def window_of(n: int) -> int:
    return n // OF_A_WINDOW


def shown(drive: Harness) -> Counter[int]:
    """What the window's sink shows: the count of each window, each once."""
    found = [(window_of(row["last"]), row["n"]) for row in rows(drive.directory / "pairs")]
    assert len(dict(found)) == len(found), "a window is shown twice"
    return Counter(dict(found))


def shown_fours(drive: Harness) -> Counter[int]:
    """The messages in each window of four hours that is shown, which adds up two windows of two."""
    return Counter({row["last"] // (2 * OF_A_WINDOW): row["n"] for row in rows(drive.directory / "fours")})


def computed_fours(count: int) -> Counter[int]:
    """Those of each that has fired, without the one that has a window of two hours that is not whole."""
    fired = range(-(-FIRST // 2), window_of(count - 1) // 2)
    return Counter(dict.fromkeys(fired, 2 * OF_A_WINDOW))


def computed(count: int, first: int = FIRST) -> Counter[int]:
    """The messages of each window that has fired, from the first whole one on."""
    of_all = Counter(window_of(n) for n in range(count))
    return Counter({w: n for w, n in of_all.items() if first <= w < window_of(count - 1)})


def test_a_window_gets_the_messages_that_were_before_it_and_those_that_flow_meanwhile(drive: Harness) -> None:
    feed = Feed(drive.directory)
    feed.put(48)
    small = drive.config(run__max_batch_bytes="1 KiB", run__history_share="1.0")
    with start(shop(drive.directory, 1), small) as running, Stream(feed, 1.0) as stream:
        wait_until(lambda: len(marks(drive.directory)) >= 48, lambda: running.is_running)
        with pytest.raises(UserError, match="nothing in this change can get the messages"):
            running.update(shop(drive.directory, 2), TIMEOUT, history=FROM)
        with pytest.raises(UserError, match="does not fit") as refused:
            running.update(shop(drive.directory, 2, pairs=True, more=True), TIMEOUT, history=FROM)
        assert "even: --history: it would run in fragment read" in str(refused.value.got)
        chained = shop(drive.directory, 2, pairs=True, fours=True)
        assert running.update(chained, TIMEOUT, history=FROM) == 2
        before = min(n for n, version in marks(drive.directory).items() if version == 2)
        assert before >= 48
        stream.is_over.set()
        stream.thread.join()
        wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
        wanted = computed(feed.count)
        wait_until(lambda: len(shown(drive)) >= len(wanted), lambda: running.is_running)
        running.stop()
        result = running.wait(TIMEOUT)
    assert shown(drive) == wanted
    assert result.version == 2
    stages = {stage.stage for stage in of_state(drive).versions.stages(2)}
    assert StageName.HISTORY_READ in stages
    assert not (of_state(drive).home / "former-messages").exists()
    # The file of the version before does not fit any more, and need not: the version in force continues.
    with pytest.raises(UserError, match=r"state does not fit(.|\n)*--version in-force"):
        drive.run(shop(drive.directory, 1))
    with pytest.raises(UserError, match=r"no such version(.|\n)*1, 2"):
        start(shop(drive.directory, 1), small, version=7).wait(TIMEOUT)
    with pytest.raises(UserError, match="a version can only continue"):
        start(shop(drive.directory, 1), small, version="in-force", fresh=True).wait(TIMEOUT)
    feed.put(9)
    with start(shop(drive.directory, 1), small, version="in-force") as running:
        wait_until(lambda: len(shown(drive)) >= len(computed(feed.count)), lambda: running.is_running)
        explained = CliRunner().invoke(
            app, ["explain", "shop", "--state-dir", str(drive.directory / "state")]
        )
        assert explained.exit_code == 0, explained.output
        assert of_state(drive).app_id in explained.stdout
        wanted = computed_fours(feed.count)
        wait_until(lambda: len(shown_fours(drive)) >= len(wanted), lambda: running.is_running)
        running.stop()
        assert running.wait(TIMEOUT).version == 2
    assert shown(drive) == computed(feed.count)
    assert shown_fours(drive) == wanted
    assert set(list(marks(drive.directory).values())[-9:]) == {2}


@pytest.mark.nightly("simulated by test_shells_under_kills")
def test_a_version_with_a_history_that_fails_or_is_cancelled_leaves_nothing(drive: Harness) -> None:
    feed = Feed(drive.directory)
    feed.put(30)
    state = of_state(drive).path
    slow = drive.config(run__max_batch_bytes="1 KiB", run__history_share="0.01")
    with start(shop(drive.directory, 1), slow) as running:
        wait_until(lambda: len(marks(drive.directory)) >= 30, lambda: running.is_running)
        changed = shop(drive.directory, 2, pairs=True)
        with pytest.raises(UnavailableError, match="has not ended"):
            running.update(changed, "1 s", history=FROM)
        with pytest.raises(UserError, match="another change of the application is under way") as refused:
            running.update(changed, "1 s", history=FROM)
        assert "are read again" in str(refused.value.got)
        history = asked_state(of_state(drive)).history
        assert history is not None
        assert (history.from_ms, history.fragments, history.is_over) == (FROM_MS, ("pairs",), False)
        command = ["rollback", "shop", "--yes", "--state-dir", str(drive.directory / "state")]
        rolled_back = CliRunner().invoke(app, command)
        assert "version 2 was cancelled, version 1 continues" in rolled_back.output, rolled_back.output
        wait_until(lambda: asked_state(of_state(drive)).outcome, lambda: running.is_running)
        ended = asked_state(of_state(drive))
        assert ended.outcome is Outcome.REFUSED
        assert "was cancelled" in str(ended.why)
        assert not (state / "former-messages").exists()
        feed.put(3)
        wait_until(lambda: len(marks(drive.directory)) == 33, lambda: running.is_running)
        assert set(marks(drive.directory).values()) == {1}
        running.stop()
        running.wait(TIMEOUT)
    with start(shop(drive.directory, 1), drive.config(run__history_share="1.0")) as running:
        feed.put(3)
        wait_until(lambda: len(marks(drive.directory)) == 36, lambda: running.is_running)
        with pytest.raises(RolledBackError, match="has failed"), Stream(feed, 0.5):
            running.update(shop(drive.directory, 2, fails=True, pairs=True), TIMEOUT, history=FROM)
        wait_until(lambda: not (state / "channels" / "read--pairs").exists(), lambda: running.is_running)
        wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
    assert set(marks(drive.directory).values()) == {1}
    assert not shown(drive)


BY_SIMULATION = pytest.mark.nightly("test_shells_under_kills dies at every point")


@pytest.mark.nightly(
    "test_shells_under_kills dies at every point; other tests of this module read a history on Spark"
)
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(CrashPoint.HISTORY_PART, marks=BY_SIMULATION),
        pytest.param(CrashPoint.HISTORY_PLACED, marks=BY_SIMULATION),
        CrashPoint.AFTER_VERSION,
    ],
)
def test_after_a_kill_the_application_is_wholly_the_old_version_or_the_new_one(
    drive: Harness, point: CrashPoint
) -> None:
    feed = Feed(drive.directory)
    feed.put(30)
    file = program(drive.directory, 1)
    options = ("--set", "run.history-share=1.0")
    with run_killed_at(file, drive.directory, point, *options) as process:
        wait_until(lambda: len(marks(drive.directory)) == 30, lambda: process.poll() is None)
        with Stream(feed, 0.2):  # so that a batch is planned when the process dies
            ask_to_change(
                of_state(drive), shop(drive.directory, 2, pairs=True), ChangeOptions(history_ms=FROM_MS)
            )
            process.wait(100)
    is_new = point is CrashPoint.AFTER_VERSION
    version = 2 if is_new else 1
    in_force = of_state(drive).versions.in_force()
    assert in_force is not None
    assert in_force.number == version
    with start(shop(drive.directory, version, pairs=is_new), drive.config()) as running:
        feed.put(12)
        wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
        if not is_new:
            assert not (of_state(drive).path / "channels" / "read--pairs").exists()
            with Stream(feed, 0.5):  # its trial waits for a batch
                assert running.update(shop(drive.directory, 2, pairs=True), TIMEOUT, history=FROM) == 2
            wait_until(lambda: len(marks(drive.directory)) == feed.count, lambda: running.is_running)
        wanted = computed(feed.count)
        wait_until(lambda: len(shown(drive)) >= len(wanted), lambda: running.is_running)
        running.stop()
        running.wait(TIMEOUT)
    assert shown(drive) == wanted
