"""Which error of a fragment's query its owner gets."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from drivetrain.core.job.run_progress import FragmentState
from drivetrain.errors import OutputError
from drivetrain.spark.batch.fragment_query import DrainedError, FragmentQuery


class EndedQuery(FragmentQuery):
    """A query that has ended, with nothing of Spark's."""

    def __init__(self) -> None:
        ended: Any = SimpleNamespace(is_active=False, exception=lambda: None, stop=lambda: None)
        self._query = ended
        self._outside = self.error = None
        self._draining = threading.Event()
        self.state = FragmentState.RUNNING
        self.trunk: Any = SimpleNamespace(sources={})
        self.fragment: Any = SimpleNamespace(id="hourly")


def test_a_drained_query_has_no_error() -> None:
    query = EndedQuery()
    query.error = DrainedError("hourly")
    assert query.failure() is None


def test_an_error_from_outside_is_not_replaced_by_that_of_the_batch_which_it_ended() -> None:
    query, error = EndedQuery(), OutputError("a snapshot cannot be written")
    query.fail(error)
    query.error = DrainedError("hourly")
    assert query.failure() is error
