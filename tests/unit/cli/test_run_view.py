"""What is shown while a run goes on, in a terminal and in a log."""

from __future__ import annotations

import dataclasses
import io

import msgspec
import pytest

from drivetrain.cli.views.run_view import LineView, LiveView, findings_of
from drivetrain.core.checkpoint.checkpoint_figures import CheckpointDone, CheckpointFailure, CheckpointFigures
from drivetrain.core.checkpoint.transaction import Action, Phase
from drivetrain.core.figures import show_clock, show_count, show_rate, show_share, show_span
from drivetrain.core.job.fragment_figures import FragmentFigures, LastBatch, Phases
from drivetrain.core.job.run_progress import (
    CheckpointsProgressed,
    FragmentProgressed,
    FragmentState,
    FragmentStateChanged,
    InputProgressed,
    NoticeGiven,
    RunStarted,
)
from drivetrain.core.job.run_state import FragmentView, RunState
from drivetrain.terminal import Console


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def progressed(fragment: str, rows: int) -> FragmentProgressed:
    return FragmentProgressed(fragment, 3, rows, 1_234_567.0, 250, lag_rows=12_000, clock_ms=0)


def test_lines_come_once_per_interval_and_only_for_what_has_changed() -> None:
    clock, stream = Clock(), io.StringIO()
    view = LineView(stream, 5_000, clock)
    view.on_event(RunStarted("app", ("one", "two"), resumed=True))
    view.on_event(progressed("one", 10))
    assert stream.getvalue() == "[00:00] app: 2 fragments, resuming where it stopped\n"
    clock.now_s += 5
    view.tick()
    assert stream.getvalue().splitlines()[1:] == [
        "[00:05] one: 10 messages, 1.23 M/s, lag 12,000, clock 1970-01-01 00:00:00, batch 250 ms"
    ]
    clock.now_s += 5
    view.on_event(progressed("two", 20))
    clock.now_s += 1
    view.on_event(progressed("two", 30))
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()[2:]] == ["[00:10] two: 20 messages"]


def test_changes_of_state_notices_and_the_share_of_input_are_lines() -> None:
    clock, stream = Clock(), io.StringIO()
    view = LineView(stream, 1_000, clock)
    view.on_event(FragmentStateChanged("one", FragmentState.RESTARTING, "it failed"))
    view.on_event(NoticeGiven("careful"))
    clock.now_s += 65
    view.on_event(InputProgressed(0.999))
    assert stream.getvalue().splitlines() == [
        "[00:00] one: restarting: it failed",
        "[00:00] careful",
        "[01:05] input: 99 %",
    ]


DONE = CheckpointDone(7, 3_600_000, 90_000, 2_000, 1_500_000, {"one": 150, "two": 1_900})


def figures(**changes: object) -> CheckpointFigures:
    known = CheckpointFigures(7, Phase.COMMITTED, False, None, 1, 0, DONE, ())
    return msgspec.structs.replace(known, **changes)


def test_the_last_checkpoint_is_told_with_its_age_size_and_slowest_fragment() -> None:
    clock, stream = Clock(), io.StringIO()
    view = LineView(stream, 1_000, clock)
    view.on_event(CheckpointsProgressed(figures()))
    clock.now_s += 5
    view.tick()
    assert stream.getvalue().splitlines() == [
        "[00:05] checkpoint 7, 13.0 s ago, 1.5 MB in 2.0 s (two 1.9 s), states as of 1970-01-01 01:00:00"
    ]
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    live = LiveView(console, clock)
    live.on_event(RunStarted("app", ("one",)))
    live.on_event(CheckpointsProgressed(figures()))
    console.print(live._draw())
    assert "checkpoint 7, 13.0 s ago" in console.file.getvalue()  # type: ignore[attr-defined]
    view.on_event(CheckpointsProgressed(figures(copied_to="s3://backup/shop-1")))
    clock.now_s += 5
    view.tick()
    assert stream.getvalue().endswith("01:00:00, copied to s3://backup/shop-1\n")


def test_a_checkpoint_that_failed_is_told_once_with_the_reason() -> None:
    clock, stream = Clock(), io.StringIO()
    view = LineView(stream, 1_000_000, clock)
    failure = CheckpointFailure(8, Action.PREPARE, 0, ("two",), "the disk is full")
    for failed in (figures(), figures(failed=1, failures=(failure,)), figures(failed=1, failures=(failure,))):
        view.on_event(CheckpointsProgressed(failed))
    assert stream.getvalue().splitlines() == ["[00:00] checkpoint 8 failed at two: the disk is full"]


def test_live_table_shows_every_fragment_and_the_overall_bar() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    view = LiveView(console, clock)
    with view.showing():
        view.on_event(RunStarted("app", ("one", "two")))
        view.on_event(FragmentStateChanged("one", FragmentState.RUNNING))
        view.on_event(progressed("one", 1_000))
        view.on_event(InputProgressed(0.25))
        view.on_event(NoticeGiven("careful"))
        clock.now_s += 60
    shown = console.file.getvalue()
    assert "careful" in shown
    for expected in (
        "messages/s",
        "1.23 M/s",
        "12,000",
        "250 ms",
        "running",
        "starting",
        "25 %",
        "3 min 0 s left",
    ):
        assert expected in shown


def test_signal_in_the_middle_of_a_print_is_told_at_the_next_tick() -> None:
    class Busy(io.StringIO):
        refuses = True

        def write(self, text: str) -> int:
            if self.refuses:
                raise RuntimeError("reentrant call")
            return super().write(text)

    stream = Busy()
    view = LineView(stream, 5_000, Clock())
    view.on_stop_requested()
    stream.refuses = False
    view.tick()
    view.tick()
    assert stream.getvalue().count("stopping after the batches in progress") == 1


def test_live_table_says_that_the_run_will_stop() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    view = LiveView(console, Clock())
    with view.showing():
        view.on_stop_requested()
    assert "stopping after the batches in progress" in console.file.getvalue()


def test_live_view_says_that_spark_starts_before_there_is_a_fragment() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    with LiveView(console).showing():
        pass
    assert "starting Spark" in console.file.getvalue()


def test_state_keeps_announced_order_and_the_share_never_decreases() -> None:
    state = RunState()
    for event in (
        RunStarted("app", ("b", "a")),
        progressed("a", 1),
        progressed("unannounced", 1),
        InputProgressed(0.5),
        InputProgressed(0.4),
        InputProgressed(1.7),
        NoticeGiven("x"),
    ):
        state = state.after(event)
    assert [view.fragment for view in state.fragments] == ["b", "a", "unannounced"]
    assert state.fraction == 1.0
    assert state.fragments[1].progress == progressed("a", 1)
    assert state.fragments[0].progress is None


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (show_count(None), "–"),
        (show_count(1_234_567), "1,234,567"),
        (show_rate(0.0), "0/s"),
        (show_rate(999.4), "999/s"),
        (show_rate(1_234.0), "1.23 k/s"),
        (show_rate(2.5e9), "2.5 G/s"),
        (show_span(12), "12 ms"),
        (show_span(1_500), "1.5 s"),
        (show_span(90_500), "1 min 30 s"),
        (show_span(7_260_000), "2 h 1 min"),
        (show_clock(None), "–"),
        (show_clock(-1), "1969-12-31 23:59:59"),
        (show_clock(2**63 - 1), "end"),
        (show_clock(-(2**62)), "–"),
        (show_share(0.999), "99 %"),
        (show_share(1.0), "100 %"),
    ],
)
def test_figures_are_written_for_people(shown: str, expected: str) -> None:
    assert shown == expected


def test_both_views_say_why_something_takes_long_in_the_words_of_explain() -> None:
    last = LastBatch(phases=Phases(computing_ms=5_000, sink_ms=55_000), sinks_ms={"to-db": 55_000})
    slow = dataclasses.replace(
        progressed("one", 10), lag_rows=None, batch_ms=60_000, figures=FragmentFigures(last=last)
    )
    clock, stream = Clock(), io.StringIO()
    lines = LineView(stream, 1_000, clock)
    console = Console(file=io.StringIO(), width=160, force_terminal=True)
    live = LiveView(console, clock)
    sentence = "one: its last batch took 1 min 0 s: results are late by that much"
    for view in (lines, live):
        view.on_event(RunStarted("app", ("one",)))
        clock.now_s += 5
        view.on_event(slow)
    for rows in (20, 30):
        clock.now_s += 5
        lines.on_event(dataclasses.replace(slow, rows_total=rows))
    console.print(live._draw())
    assert sentence in console.file.getvalue()  # type: ignore[attr-defined]
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()].count(sentence) == 1


def test_what_has_ended_is_not_waited_for() -> None:
    told = dataclasses.replace(progressed("one", 10), lag_rows=None, stalled_ms=5_000, blocked_by="two")
    run = RunState("app", fragments=(FragmentView("one", FragmentState.RUNNING, progress=told),))
    assert len(findings_of(run)) == 1
    finished = FragmentView("one", FragmentState.FINISHED, progress=told)
    assert findings_of(dataclasses.replace(run, fragments=(finished,))) == []
