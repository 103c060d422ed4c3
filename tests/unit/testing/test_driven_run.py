"""A run that a test drives goes on after each death, also one during its restart, but not for ever."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain import Application, plan, sinks, sources
from drivetrain.config import Config
from drivetrain.core.job.run_progress import RunOutcome
from drivetrain.errors import UnavailableError
from drivetrain.spark.batch.micro_batch_query import MicroBatchQuery
from drivetrain.spark.checkpoints.participation import RestoreNeededError
from drivetrain.spark.run.embedded import MOST_RESTORES
from drivetrain.testing.driven_run import DrivenRun
from drivetrain.testing.failures import Failures, InjectedFailureError


class FakeQuery(MicroBatchQuery):
    """Notes to which time the clock is advanced; fails with the first of `errors` when it is."""

    active = False

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors
        self.advanced: list[int] = []
        own: Any = SimpleNamespace(advance=self.advance)
        self.idle_clock = own

    def advance(self, clock_ms: int) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.advanced.append(clock_ms)


class FakeDriver:
    fragment = "a"
    is_recovering = False

    def __init__(self, query: FakeQuery) -> None:
        self.query = query


class FakeLoop:
    def __init__(self, query: FakeQuery) -> None:
        self.drivers = {"a": FakeDriver(query)}

    def step(self, now_ms: int) -> RunOutcome | None:
        return None


class FakedRun(DrivenRun):
    """A run whose starts fail with `at_start`, and whose clock with `at_clock`, while there are any."""

    def __init__(self, place: Path, at_start: list[Exception], at_clock: list[Exception]) -> None:
        app = Application("shop")
        app.read(sources.generate(rows=1), name="orders").sink(sinks.none())
        self.failures = Failures()
        super().__init__(plan(app), Config.load(None, {}, {"state.dir": str(place)}), self.failures, 1.0)
        self.at_start = at_start
        self.query = FakeQuery(at_clock)
        self._loop = FakeLoop(self.query)  # type: ignore[assignment] - what is used of it

    def start(self) -> None:
        if self.at_start:
            raise self.at_start.pop(0)
        self._announced_ms = None

    def dying(self, point: str) -> Exception:
        self.failures.arm(point)
        with pytest.raises(InjectedFailureError) as caught:
            self.failures._reached(next(iter(self.failures._waiting)))
        return caught.value


def needed() -> RestoreNeededError:
    return RestoreNeededError("the application goes back to its newest checkpoint", where="fragment a")


def test_a_death_during_a_restart_is_one_more_death(tmp_path: Path) -> None:
    run = FakedRun(tmp_path, [], [])
    run.at_start += [run.dying("batch-begins"), needed()]
    run.query.errors.append(run.dying("before-commit"))
    run.advance(1000)
    assert run.restarts == 3
    assert run.query.advanced == [1000]


def test_a_restart_of_the_test_may_die_as_well(tmp_path: Path) -> None:
    run = FakedRun(tmp_path, [], [])
    run.at_start.append(run.dying("batch-begins"))
    run.restart()
    assert run.restarts == 2


def test_the_clock_is_announced_once_and_again_after_a_restart(tmp_path: Path) -> None:
    run = FakedRun(tmp_path, [], [])
    run.advance(1000)
    run.settle()
    run.advance(500)
    assert run.query.advanced == [1000]
    run.restart()
    assert run.query.advanced == [1000, 1000]


def test_a_run_that_always_goes_back_ends_with_an_error_that_says_so(tmp_path: Path) -> None:
    run = FakedRun(tmp_path, [], [needed() for _ in range(MOST_RESTORES + 1)])
    with pytest.raises(UnavailableError, match="again and again"):
        run.advance(1000)
    assert run.restarts == MOST_RESTORES


def test_an_error_of_the_application_is_raised_from_a_restart(tmp_path: Path) -> None:
    run = FakedRun(tmp_path, [ValueError("its own")], [needed()])
    with pytest.raises(ValueError, match="its own"):
        run.advance(1000)
