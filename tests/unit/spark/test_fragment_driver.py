"""What one look at a fragment asks of its query, and what follows from the answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import DrivetrainError, UnavailableError, UserError
from drivetrain.spark.run.fragment_driver import FragmentDriver


class Query:
    """A query that is as it is told to be, and counts the questions that go to Spark."""

    def __init__(self) -> None:
        self.is_active, self.questions = True, 0
        self.state = FragmentState.RUNNING
        self.error: DrivetrainError | None = None
        self.fragment = SimpleNamespace(id="f")

    @property
    def active(self) -> bool:
        self.questions += 1
        return self.is_active

    @property
    def has_failed(self) -> bool:
        return self.error is not None

    def poll(self) -> None:
        """Nothing is new."""

    def failure(self) -> DrivetrainError | None:
        return None if self.active else self.error


def looked(query: Query) -> None:
    given: Any = query
    unused: Any = None
    FragmentDriver(given, unused, lambda: False).step(lambda _: None)


def test_of_a_query_that_runs_spark_is_asked_once() -> None:
    query = Query()
    looked(query)
    assert query.questions == 1


def test_the_error_of_a_batch_is_raised_in_the_look_that_finds_the_query_ended() -> None:
    query = Query()
    query.error = UserError("a function failed")
    looked(query)  # Spark has not ended it yet
    query.is_active = False
    with pytest.raises(UserError, match="a function failed"):
        looked(query)


def test_an_end_without_an_error_is_told() -> None:
    query = Query()
    query.is_active = False
    with pytest.raises(UnavailableError, match="stopped the query"):
        looked(query)
