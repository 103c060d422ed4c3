"""What happens between the batches of a query whose source has got partitions."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from drivetrain.core.job.run_progress import FragmentState
from drivetrain.spark.batch import idle_clock
from drivetrain.spark.batch.idle_clock import IdleClock
from drivetrain.spark.prepare.source_clock import PartitionsChangedError


class OutgrownQuery:
    """A query whose source has more partitions than it knows, and whose next batch waits for the turn."""

    def __init__(self) -> None:
        self.state = FragmentState.RUNNING
        self.turn = threading.Lock()
        self.active = self.waits_for_data = True
        self.clock = SimpleNamespace(waiting_for="partition 1", looked=lambda: False)
        self.steps = self
        self.error: BaseException | None = None
        self.has_run = False

    def is_committed(self) -> bool:
        return True

    def check_partitions(self) -> None:
        raise PartitionsChangedError("a source has more partitions", remedy="nothing to do")

    def fail(self, error: BaseException) -> None:
        """End the query, which waits for its batch as Spark does."""
        batch = threading.Thread(target=self._batch, daemon=True)
        batch.start()
        batch.join(10)
        self.error = error

    def _batch(self) -> None:
        with self.turn:
            self.has_run = True


def test_a_query_with_new_partitions_ends_though_a_batch_waits_for_its_turn(monkeypatch: Any) -> None:
    monkeypatch.setattr(idle_clock, "LOOK_S", 0.0)
    query = OutgrownQuery()
    IdleClock(cast(Any, query)).look()
    assert query.has_run, "the turn was held while the query ended"
    assert isinstance(query.error, PartitionsChangedError)
    assert not query.turn.locked()
