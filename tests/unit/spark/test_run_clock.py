"""The application's clock in an embedded run: a real actor system, a real file, no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drivetrain import Application, sinks, sources
from drivetrain.config import Config
from drivetrain.core.clock.clock_service import ClockedFragment
from drivetrain.core.clock.time_bounds import FINAL_CLOCK_MS
from drivetrain.core.plan.plan import Plan
from drivetrain.core.plan.planner import plan as make_plan
from drivetrain.errors import UnavailableError
from drivetrain.runtime.actor_thread import ActorThread
from drivetrain.runtime.clock_actor import clocked_fragments
from drivetrain.runtime.clock_file import ClockFile
from drivetrain.spark.run.run_clock import RunClock


def two_fragments() -> Plan:
    app = Application("clocked")
    app.read(sources.generate(rows=10)).cut().filter("id > 1").sink(sinks.none())
    return make_plan(app.graph())


PLAN = two_fragments()
FIRST, SECOND = (fragment.id for fragment in PLAN.fragments)


@pytest.fixture
def thread() -> Iterator[ActorThread]:
    made = ActorThread("clock-test", Config())
    yield made
    made.close()


def clock(thread: ActorThread, tmp_path: Path, **keys: str) -> RunClock:
    config = Config.load(None, {}, {"clock." + k.replace("_", "-"): v for k, v in keys.items()})
    return RunClock(PLAN, thread, ClockFile(tmp_path / "clock"), config)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def both(clock: RunClock, clock_ms: int) -> None:
    for fragment in (FIRST, SECOND):
        clock.report(fragment, 0, clock_ms, None)


def test_fragments_stand_behind_those_that_they_read() -> None:
    assert [f.upstreams for f in clocked_fragments(PLAN)] == [(), (FIRST,)]


def test_a_program_waits_for_a_time_which_is_on_disk_then(thread: ActorThread, tmp_path: Path) -> None:
    made = clock(thread, tmp_path, persist_interval="1 h")
    both(made, 10)
    wait_until(lambda: made.clock_ms == 10)
    seen: list[tuple[int, int | None]] = []
    waiter = threading.Thread(
        target=lambda: seen.append((made.wait_clock(25, 30_000), ClockFile(tmp_path / "clock").read()))
    )
    waiter.start()
    made.report(FIRST, 0, 40, None)
    made.report(SECOND, 0, 20, None)
    made.report(SECOND, 0, 30, None)
    waiter.join(30)
    assert seen == [(30, 30)]


def test_who_waits_in_vain_is_told_where_the_clock_is(thread: ActorThread, tmp_path: Path) -> None:
    made = clock(thread, tmp_path)
    both(made, 60_000)
    with pytest.raises(UnavailableError, match="has not reached 1970-01-01T00:02") as raised:
        made.wait_clock(120_000, 50)
    assert raised.value.got in ("1970-01-01T00:01:00+00:00", "no clock yet")


def test_the_end_of_a_run_waits_for_its_clock(thread: ActorThread, tmp_path: Path) -> None:
    made = clock(thread, tmp_path, persist_interval="1 h")
    assert made.settle(1_000) is None
    both(made, 10)
    both(made, 20)
    assert made.settle(20_000) == 20
    both(made, FINAL_CLOCK_MS)
    assert made.settle(20_000) == FINAL_CLOCK_MS
    assert ClockFile(tmp_path / "clock").read() == FINAL_CLOCK_MS


def test_the_next_run_begins_where_this_one_was(thread: ActorThread, tmp_path: Path) -> None:
    ClockFile(tmp_path / "clock").write(500)
    made = clock(thread, tmp_path)
    assert made.clock_ms == 500
    both(made, 400)
    assert made.settle(20_000) == 500


def test_a_damaged_file_is_set_aside_with_a_notice(thread: ActorThread, tmp_path: Path) -> None:
    (tmp_path / "clock").write_text("12 of no use")
    made = clock(thread, tmp_path)
    assert made.clock_ms is None
    assert (tmp_path / "clock.damaged").read_text() == "12 of no use"
    assert "taken from the channels" in made.notices[0]
    both(made, 7)
    assert made.settle(20_000) == 7


def test_a_clock_that_cannot_be_written_stands_and_goes_on_when_it_can(
    thread: ActorThread, tmp_path: Path
) -> None:
    made = RunClock(
        PLAN,
        thread,
        ClockFile(tmp_path / "later" / "clock"),
        Config.load(None, {}, {"clock.persist-interval": "10 ms"}),
    )
    both(made, 7)
    wait_until(lambda: bool(made.notices))
    assert "cannot be written" in made.notices[0]
    assert made.clock_ms is None
    (tmp_path / "later").mkdir()
    wait_until(lambda: made.clock_ms == 7)


def test_a_stall_is_named_with_its_reason_and_ends(thread: ActorThread, tmp_path: Path) -> None:
    made = clock(thread, tmp_path, stall_timeout="1 ms")
    made.report(FIRST, 0, 10, "room behind it")
    made.report(SECOND, 0, 10, None)
    wait_until(lambda: made.stall(SECOND)[1] == f"fragment {FIRST}")
    assert made.stall(FIRST)[1] == "room behind it"
    both(made, FINAL_CLOCK_MS)
    wait_until(lambda: made.stall(FIRST) == (0, None) == made.stall(SECOND))


def test_a_restart_is_waited_for(thread: ActorThread, tmp_path: Path) -> None:
    made = clock(thread, tmp_path, stall_timeout="1 ms")
    both(made, 10)
    made.restarted(FIRST, 1)
    wait_until(lambda: made.stall(FIRST)[1] == "its start")


def test_nobody_waits_for_ever_when_the_run_ends(tmp_path: Path) -> None:
    thread = ActorThread("clock-test", Config())
    made = clock(thread, tmp_path)
    seen: list[BaseException] = []

    def wait() -> None:
        try:
            made.wait_clock(10, 600_000)
        except UnavailableError as error:
            seen.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    wait_until(lambda: thread.system.purgatory.watched > 1)  # the ask and the wait behind it
    thread.close()
    waiter.join(20)
    assert len(seen) == 1


def test_the_clock_waits_for_a_fragment_from_its_start_on_and_no_more_once_it_has_left(
    thread: ActorThread, tmp_path: Path
) -> None:
    told = clock(thread, tmp_path, persist_interval="10 ms")
    told.report(FIRST, 0, 5_000, None)
    told.report(SECOND, 0, 4_000, None)
    wait_until(lambda: told.clock_ms == 4_000)
    told.changed((*clocked_fragments(PLAN), ClockedFragment("late", (FIRST,))))
    told.report(SECOND, 0, 9_000, None)
    told.report(FIRST, 0, 9_000, None)
    wait_until(lambda: told.clock_ms == 5_000)
    assert told.settle(2_000) == 5_000, "the new one began where its producer was"
    told.changed(clocked_fragments(PLAN))
    wait_until(lambda: told.clock_ms == 9_000)
