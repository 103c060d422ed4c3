"""Operators that act while the input goes on: timers, early results and named outputs, driven by a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drivetrain import Application, NamedOutput, PersistentTask, State, agg, sinks, sources, windows
from drivetrain.testing import TestRun

pytestmark = pytest.mark.usefixtures("spark")


class Reminders(PersistentTask[Any, tuple[str, int]]):
    """How many events a user has ten minutes after each; events without an amount go to an output."""

    key = "user"
    state = State(agg.count())
    outputs = {"empty": str}  # noqa: RUF012 - as users write it

    def on_next(self, event: Any) -> Iterator[NamedOutput]:
        self.state.update(event)
        self.state.set_timer(event.ms + 600_000)
        if event.amount is None:
            yield NamedOutput("empty", event.user)

    def on_timer(self, user: str, at_ms: int) -> list[tuple[str, int]]:
        return [(user, self.state.get())]


def application() -> Application:
    app = Application("reminders")
    schema = "at timestamp, user string, amount bigint"
    events = app.read(sources.json("in/", schema=schema, event_time="at", watch=True), name="events")
    reminders = events.with_columns(ms="unix_millis(at)").process(Reminders, name="reminders")
    reminders.sink(sinks.console(), name="reminded")
    reminders.output("empty").sink(sinks.console(), name="empty")
    hourly = events.group_by("user").window(windows.tumbling("1 h")).aggregate(step="hourly", n=agg.count())
    hourly.sink(sinks.console(), name="final")
    hourly.early.sink(sinks.console(), name="so_far")
    return app


@pytest.mark.nightly("test_test_run; random applications draw their operators")
def test_timers_early_results_and_outputs_of_an_input_that_goes_on() -> None:
    with TestRun(application()) as run:
        run.send("events", [("2026-01-01T00:10", "ada", 1), ("2026-01-01T00:11", "bob", None)])
        assert run.emitted("reminders-empty") == [{"value": "bob"}]
        assert sorted(r["user"] for r in run.emitted("so_far", "user")) == ["ada", "bob"]
        assert run.emitted("reminded") == []
        run.advance_clock("2026-01-01T00:20")
        assert run.emitted("reminded") == [{"key": "ada", "value": 1}], "without any message"
        run.send("events", [("2026-01-01T00:40", "ada", 2)])
        assert run.emitted("so_far", "user", "n")[-1] == {"user": "ada", "n": 2}
        assert run.emitted("final") == []
        run.advance_clock("2026-01-01T01:00")
        assert run.emitted("reminded") == [
            {"key": "ada", "value": 1},
            {"key": "bob", "value": 1},
            {"key": "ada", "value": 2},
        ]
        assert sorted(r["n"] for r in run.emitted("final", "n")) == [1, 2]
        assert len(run.emitted("so_far")) == 3


@pytest.mark.nightly("the unit tests of timers")
def test_a_timer_survives_the_run_that_has_set_it() -> None:
    with TestRun(application()) as run:
        run.send("events", [("2026-01-01T00:10", "ada", 1)])
        run.crash_at("before-commit")
        run.advance_clock("2026-01-01T00:30")
        run.restart()
        assert run.emitted("reminded") == [{"key": "ada", "value": 1}]
        run.advance_clock("2026-01-01T00:50")
        assert run.emitted("reminded") == [{"key": "ada", "value": 1}], "once"
