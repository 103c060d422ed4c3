"""Batches of these tests are Arrow tables: nothing has to come from Spark."""

from __future__ import annotations

from typing import Any

import pytest
from arrow_frame import ArrowFrame

from drivetrain.spark.measure import small_batches


@pytest.fixture(autouse=True)
def _batches_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_batches, "small_table", ArrowFrame.toArrow)


@pytest.fixture
def _staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outbox adds a column of Spark's to a batch, which is a table here."""
    from drivetrain.connectors.outbox import Outbox, PreparedBatch
    from drivetrain.runtime.channel.columns import TS
    from drivetrain.runtime.channel.segments import write_segment

    def staged(self: Outbox, df: Any, batch_id: int, *, kept: bool) -> PreparedBatch:
        assert kept
        table = df.withColumn(TS, None).toArrow()
        parts = [write_segment(self._files, "test", table.to_batches())] if table.num_rows else []
        return PreparedBatch(batch_id, tuple(parts))

    monkeypatch.setattr(Outbox, "_staged", staged)
